//! `[tls]`, `[jwt]` and `[admin_tokens]`.

use std::{collections::BTreeMap, path::Path};

use super::{
    addresses,
    process::{JwtOptions, TlsOptions, TokenOptions},
};
use crate::config::{
    AdminToken, Jwt, JwtKeys, SourceLocation, Tls,
    diagnostics::mistake::Mistakes,
    parse::reader::{Placed, Reader, Section, Setting, Value},
};

pub(crate) fn tls(section: Section, directory: &Path, mistakes: &mut Mistakes) -> Option<Tls> {
    let mut reader = Reader::new(section, mistakes);
    let TlsOptions { cert, key, client_ca } = TlsOptions::read(&mut reader);
    let mut file = |option, name: Setting<String>| {
        name.then(|name, place| addresses::file(option, name, place, directory, reader.mistakes))
    };
    let (cert, key) = (file("cert", cert), file("key", key));
    let client_ca = file("client_ca", client_ca);
    for (option, setting) in [("cert", &cert), ("key", &key)] {
        if setting.is_missing() {
            let place = reader.place().clone();
            let help = format!("write {option} = \"{option}.pem\" below [tls]");
            reader.mistakes.error(&place, format!("[tls] has no `{option}`"), help);
        }
    }
    reader.finish();
    let client_ca = client_ca.optional()?;
    Some(Tls {
        certificate: cert.given()?.value.clone(),
        key: key.given()?.value.clone(),
        client_ca,
    })
}

pub(crate) fn jwt(
    section: Section,
    directory: &Path,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<Jwt> {
    let mut reader = Reader::new(section, mistakes);
    let JwtOptions { jwks, secret_env, issuer, audience } = JwtOptions::read(&mut reader);
    let jwks =
        jwks.then(|name, place| addresses::file("jwks", name, place, directory, reader.mistakes));
    let secret = secret_env.then(|name, place| {
        check_variable("secret_env", name, place, environment, reader.mistakes)
            .then(|| name.clone())
    });
    let issuer = not_empty(issuer, "issuer", "\"https://login.example.com\"", reader.mistakes);
    let audience = not_empty(audience, "audience", "\"payments\"", reader.mistakes);
    let place = reader.place().clone();
    let help = "choose jwks = \"keys.json\" (a file of public keys) or secret_env = \"NAME\" (the \
                environment variable that holds a shared secret)";
    if jwks.is_missing() && secret.is_missing() {
        reader.mistakes.error(&place, "[jwt] does not say how a token is verified", help);
    } else if !jwks.is_missing() && !secret.is_missing() {
        let message = "[jwt] has both `jwks` and `secret_env`";
        reader.mistakes.error(&place, message, help);
    }
    reader.finish();
    let keys = match (jwks, secret) {
        (Setting::Given(file), Setting::Missing) => JwtKeys::Jwks(file.value),
        (Setting::Missing, Setting::Given(name)) => JwtKeys::SecretEnv(name.value),
        _ => return None,
    };
    let text = |setting: Setting<String>| setting.given().map(|placed| placed.value.clone());
    Some(Jwt { keys, issuer: text(issuer), audience: text(audience) })
}

/// Who may use the operators' listener: a name for each token, and its role.
pub(crate) fn admin_tokens(
    section: Section,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Vec<AdminToken> {
    let mut tokens = Vec::new();
    for (name, place, found) in section.into_entries() {
        tokens.extend(admin_token(name, &place, found, environment, mistakes));
    }
    tokens
}

fn admin_token(
    name: String,
    place: &SourceLocation,
    found: Placed<Value>,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<AdminToken> {
    let help = format!("write {name} = {{ token_env = \"ONCEWARD_TOKEN\", role = \"read\" }}");
    let is_name = !name.is_empty() && name.len() <= 64;
    if !is_name || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    {
        let message = "the name of a token has letters, digits, `-`, `_` and `.`, 64 at most";
        mistakes.error(place, message, "it is how the trail says who changed something");
        return None;
    }
    let Value::Table(section) = found.value else {
        mistakes.error(&found.place, "a token is a table with `token_env` and `role`", help);
        return None;
    };
    let mut reader = Reader::new(section, mistakes);
    let TokenOptions { token_env, role } = TokenOptions::read(&mut reader);
    let variable = token_env.then(|name, place| {
        check_variable("token_env", name, place, environment, reader.mistakes).then(|| name.clone())
    });
    for (option, is_missing) in [("token_env", variable.is_missing()), ("role", role.is_missing())]
    {
        if is_missing {
            reader.mistakes.error(place, format!("this token has no `{option}`"), help.clone());
        }
    }
    reader.finish();
    let (token_env, role) = (variable.given()?.value.clone(), role.given()?.value);
    Some(AdminToken { name, token_env, role })
}

fn not_empty(
    setting: Setting<String>,
    option: &str,
    example: &str,
    mistakes: &mut Mistakes,
) -> Setting<String> {
    setting.then(|text, place| {
        if text.is_empty() {
            let help = format!("write {option} = {example}, or leave it out");
            mistakes.error(place, format!("`{option}` is empty"), help);
            return None;
        }
        Some(text.clone())
    })
}

/// Never quotes the value: an operator may have written the secret itself.
pub(super) fn check_variable(
    option: &str,
    name: &str,
    place: &SourceLocation,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> bool {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        let message = format!("`{option}` is not the name of an environment variable");
        let help = "write its name, as \"JWT_SECRET\", and keep the secret itself out of the file";
        mistakes.error(place, message, help);
    } else if environment.get(name).is_none_or(String::is_empty) {
        let message = format!("the environment variable that `{option}` names is not set here");
        mistakes.warning(
            place,
            message,
            "set it where the gateway runs: it does not start without",
        );
    }
    is_name
}
