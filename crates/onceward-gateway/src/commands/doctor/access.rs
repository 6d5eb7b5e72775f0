//! Who can reach the gateway and its files.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::Path, slice};

use super::finding::{Findings, texts};
use crate::{
    admin::Access,
    config::{AdminToken, Config, Encryption, JwtKeys, Unmatched},
};

/// The bits of a mode for the group and for all other users.
const GROUP_READS: u32 = 0o040;
const OTHERS_READ: u32 = 0o004;
const OTHERS_WRITE: u32 = 0o022;

pub(super) fn examine(config: &Config, findings: &mut Findings) {
    if config.unmatched == Unmatched::Pass && config.serves {
        let texts = texts(
            "a write with a key that matches no route passes",
            "it is not protected, each of its retries runs again: as /Charges and /charges/, where the \
             upstream takes them for /charges; its answer says `Onceward-Unprotected: no-route`, and \
             `onceward_gateway_unmatched_total` counts it",
            "unmatched = \"refuse\"",
        );
        findings.note("unmatched-pass", "unmatched", texts);
    }
    listeners(config, findings);
    tokens(config, findings);
    if let Some(JwtKeys::SecretEnv(name)) = config.jwt.as_ref().map(|jwt| &jwt.keys)
        && env::var(name).unwrap_or_default().is_empty()
    {
        let texts = texts(
            "the environment variable that `secret_env` names is not set here",
            "no token can be verified, so that the gateway does not start",
            "set it where the gateway runs",
        );
        findings.problem("jwt-secret-unset", "jwt", texts);
    }
    if config
        .jwt
        .as_ref()
        .is_some_and(|jwt| jwt.issuer.is_none() && matches!(jwt.keys, JwtKeys::Jwks(_)))
    {
        let texts = texts(
            "[jwt] has a file of public keys and no `issuer`",
            "the gateway takes a token of any issuer that signs with one of these keys, and two issuers may \
             each have an \"alice\": they would share their stored answers",
            "issuer = \"https://login.example.com\", as the tokens say it in `iss`",
        );
        findings.warning("jwt-any-issuer", "jwt", texts);
    }
    if let Some(tls) = &config.tls {
        secret_file("tls-key-permissions", "tls", &tls.key, findings);
    }
    match &config.encryption {
        Some(Encryption { file: Some(file), .. }) => {
            secret_file("encryption-key-permissions", "encryption", file, findings);
        }
        Some(_) => {}
        None if config.routes.iter().any(|route| route.takes_keys() && !route.status_only) => {
            let texts = texts(
                "answers are kept as they are, without [encryption]",
                "a user who can read the file or a backup of it can read them",
                "[encryption] with key_file = \"onceward.key\", made with `openssl rand -base64 32`",
            );
            findings.note("not-encrypted", "encryption", texts);
        }
        None => {}
    }
}

fn listeners(config: &Config, findings: &mut Findings) {
    let (is_plain, listen) = (config.tls.is_none(), config.listen);
    if is_plain && !listen.ip().is_loopback() {
        let texts = texts(
            format!("{listen} can be reached from other machines, without TLS"),
            "keys, credentials and answers cross that network in the clear: a listener there \
             can ask for stored answers",
            "listen = \"127.0.0.1:8080\" behind a proxy that speaks TLS, or [tls] with cert and key",
        );
        findings.warning("listen-plain", "listen", texts);
    }
    let Some(admin) = config.admin else {
        let texts = texts(
            "there is no listener for operators",
            "no metrics and no readiness; operations are repaired on the store itself, with \
             `onceward keys --config`",
            "admin = \"127.0.0.1:8081\"",
        );
        findings.note("no-admin", "admin", texts);
        return;
    };
    if config.admin_tokens.is_empty() {
        let texts = texts(
            "the listener for operators asks for no token",
            "every user of this machine may see and change all operations, and the trail calls all of \
             them `loopback`",
            "[admin_tokens] with ops = { token_env = \"ONCEWARD_TOKEN\", role = \"resolve\" }",
        );
        findings.note("admin-without-tokens", "admin", texts);
    }
    if is_plain && !admin.ip().is_loopback() {
        let texts = texts(
            format!("operators connect to {admin} from other machines, without TLS"),
            "a listener on that network has their tokens, and may end or delete operations",
            "admin = \"127.0.0.1:8081\", or [tls] with cert and key",
        );
        findings.warning("admin-plain", "admin", texts);
    }
}

fn tokens(config: &Config, findings: &mut Findings) {
    let wrong = |token: &&AdminToken| Access::new(slice::from_ref(*token)).is_err();
    let mut are_right = true;
    for token in config.admin_tokens.iter().filter(wrong) {
        are_right = false;
        let (name, variable) = (&token.name, &token.token_env);
        let (code, what) = match env::var(variable).is_ok_and(|value| !value.is_empty()) {
            true => ("token-short", format!("the token of `{name}` has fewer than 16 characters")),
            false => ("token-unset", format!("the token of `{name}` is not set here")),
        };
        let texts = texts(
            what,
            "the gateway does not start: an attacker who guesses a token may change all operations",
            format!("export {variable}=$(openssl rand -hex 32)"),
        );
        findings.problem(code, "admin_tokens", texts);
    }
    if let Err(error) = Access::new(&config.admin_tokens)
        && are_right
    {
        let texts = texts(
            error,
            "the gateway does not start: the trail could not say who did something",
            "another token for each name",
        );
        findings.problem("token-twice", "admin_tokens", texts);
    }
}

/// A file that only the user of the gateway should be able to read.
pub(super) fn secret_file(code: &'static str, about: &str, file: &Path, findings: &mut Findings) {
    let Ok(mode) = fs::metadata(file).map(|found| found.permissions().mode()) else { return };
    let name = file.display();
    let mend = format!("chmod 600 {name}");
    if mode & (OTHERS_READ | OTHERS_WRITE) != 0 {
        let texts = texts(
            format!("{name} can be read or changed by others (mode {:03o})", mode & 0o777),
            "a user with this key can pretend to be this gateway, or read what it keeps",
            mend,
        );
        findings.problem(code, about, texts);
    } else if mode & GROUP_READS != 0 {
        let texts = texts(
            format!("{name} can be read by its group (mode {:03o})", mode & 0o777),
            "each of them can pretend to be this gateway, or read what it keeps",
            mend,
        );
        findings.warning(code, about, texts);
    }
}

pub(super) fn store_file(file: &Path, findings: &mut Findings) {
    let Ok(mode) = fs::metadata(file).map(|found| found.permissions().mode()) else { return };
    let (name, shown) = (file.display(), mode & 0o777);
    if mode & OTHERS_WRITE != 0 {
        let texts = texts(
            format!("{name} can be changed by others (mode {shown:03o})"),
            "they decide by it what retries get, and no guarantee holds",
            format!("chmod 600 {name}"),
        );
        findings.problem("store-permissions", "store", texts);
    } else if mode & (GROUP_READS | OTHERS_READ) != 0 {
        let texts = texts(
            format!("{name} can be read by others (mode {shown:03o})"),
            "they can read the answers that are kept there",
            format!("chmod 600 {name}"),
        );
        findings.warning("store-permissions", "store", texts);
    }
}
