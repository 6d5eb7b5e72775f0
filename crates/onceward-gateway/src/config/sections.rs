//! `[tls]` and `[jwt]`.

use std::{collections::BTreeMap, path::Path};

use super::{
    Jwt, JwtKeys, Place, Tls, addresses,
    mistake::Mistakes,
    reader::{Reader, Section, Setting},
};

pub(super) fn tls(section: Section, directory: &Path, mistakes: &mut Mistakes) -> Option<Tls> {
    let mut reader = Reader::new(section, mistakes);
    let cert = file(&mut reader, "cert", directory);
    let key = file(&mut reader, "key", directory);
    let client_ca = file(&mut reader, "client_ca", directory);
    for (option, setting) in [("cert", &cert), ("key", &key)] {
        if setting.is_missing() {
            let place = reader.place().clone();
            let help = format!("write {option} = \"{option}.pem\" below [tls]");
            reader.mistakes.error(&place, format!("[tls] has no `{option}`"), help);
        }
    }
    reader.finish();
    let client_ca = match client_ca {
        Setting::Missing => None,
        Setting::Wrong => return None,
        Setting::Given(placed) => Some(placed.value),
    };
    Some(Tls {
        certificate: cert.given()?.value.clone(),
        key: key.given()?.value.clone(),
        client_ca,
    })
}

fn file(
    reader: &mut Reader<'_>,
    option: &'static str,
    directory: &Path,
) -> Setting<std::path::PathBuf> {
    let text = reader.text(option, "\"file.pem\"");
    text.then(|text, place| addresses::file(option, text, place, directory, reader.mistakes))
}

pub(super) fn jwt(
    section: Section,
    directory: &Path,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<Jwt> {
    let mut reader = Reader::new(section, mistakes);
    let jwks = file(&mut reader, "jwks", directory);
    let secret = reader.text("secret_env", "\"JWT_SECRET\"").then(|name, place| {
        check_variable(name, place, environment, reader.mistakes).then(|| name.clone())
    });
    let issuer = not_empty(&mut reader, "issuer", "\"https://login.example.com\"");
    let audience = not_empty(&mut reader, "audience", "\"payments\"");
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

fn not_empty(reader: &mut Reader<'_>, option: &'static str, example: &str) -> Setting<String> {
    reader.text(option, example).then(|text, place| {
        if text.is_empty() {
            let help = format!("write {option} = {example}, or leave it out");
            reader.mistakes.error(place, format!("`{option}` is empty"), help);
            return None;
        }
        Some(text.clone())
    })
}

/// The value is never quoted: somebody may have written the secret itself.
fn check_variable(
    name: &str,
    place: &Place,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> bool {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        let message = "`secret_env` is not the name of an environment variable";
        let help = "write its name, as \"JWT_SECRET\", and keep the secret itself out of the file";
        mistakes.error(place, message, help);
    } else if environment.get(name).is_none_or(String::is_empty) {
        let message = "the environment variable that `secret_env` names is not set here";
        mistakes.warning(
            place,
            message,
            "set it where the gateway runs: it does not start without",
        );
    }
    is_name
}
