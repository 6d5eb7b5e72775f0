//! `[encryption]`: the keys that hide stored answers, from the environment or a file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use onceward::{Fingerprint, seal::Keyring};

use super::{addresses, limits, process::EncryptionOptions};
use crate::config::{
    Config, SourceLocation,
    diagnostics::mistake::Mistakes,
    parse::reader::{Reader, Section, Setting},
};

/// Where keys come from, and the keys.
#[derive(Clone, Debug)]
pub(crate) struct Encryption {
    /// `None`: the environment variable is not set here.
    keys: Option<Arc<Keyring>>,
    /// The file of the keys, if they are in one.
    pub(crate) file: Option<PathBuf>,
}

impl Config {
    /// The keys to serve with, if answers are to be hidden; `Err`: they should be and cannot.
    pub(crate) fn keys(&self) -> Result<Option<Arc<Keyring>>, String> {
        let Some(encryption) = &self.encryption else { return Ok(None) };
        let keys = encryption.keys.clone().ok_or(
            "the environment variable that `key_env` in [encryption] names is not set, and nothing is \
             served without its key; set it, or remove [encryption] to store answers as they are",
        )?;
        Ok(Some(keys))
    }
}

/// Whether they write and read the same.
pub(crate) fn are_same(one: Option<&Keyring>, other: Option<&Keyring>) -> bool {
    let shown = |keys: &Keyring| keys.fingerprints(Fingerprint::from_parts(0, [0; 32]));
    one.map(shown) == other.map(shown)
}

pub(crate) fn read(
    section: Section,
    directory: &Path,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<Encryption> {
    let mut reader = Reader::new(section, mistakes);
    let EncryptionOptions { key_file, key_env } = EncryptionOptions::read(&mut reader);
    let variable =
        key_env.then(|name, place| from_variable(name, place, environment, reader.mistakes));
    let file = key_file
        .then(|name, place| addresses::file("key_file", name, place, directory, reader.mistakes))
        .then(|file, place| {
            let keys = from_file(file, place, reader.mistakes)?;
            Some(Encryption { keys: Some(keys), file: Some(file.clone()) })
        });
    let place = reader.place().clone();
    let help = "choose key_file = \"onceward.key\" (made with `openssl rand -base64 32`) or key_env = \
                \"NAME\" (the environment variable that holds such a key)";
    if variable.is_missing() && file.is_missing() {
        reader.mistakes.error(&place, "[encryption] does not say where its key is", help);
    } else if !variable.is_missing() && !file.is_missing() {
        reader.mistakes.error(&place, "[encryption] has both `key_env` and `key_file`", help);
    }
    reader.finish();
    match (variable, file) {
        (Setting::Given(keys), Setting::Missing) => {
            Some(Encryption { keys: keys.value, file: None })
        }
        (Setting::Missing, Setting::Given(encryption)) => Some(encryption.value),
        _ => None,
    }
}

/// Quotes neither the name nor the value: an operator may have written the key itself.
fn from_variable(
    name: &str,
    place: &SourceLocation,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<Option<Arc<Keyring>>> {
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name {
        let message = "`key_env` is not the name of an environment variable";
        let help = "write its name, as \"ONCEWARD_KEY\", and keep the key itself out of the file";
        mistakes.error(place, message, help);
        return None;
    }
    let Some(text) = environment.get(name).filter(|text| !text.is_empty()) else {
        let message = "the environment variable that `key_env` names is not set here";
        let help = "set it where the gateway runs: it does not start without";
        mistakes.warning(place, message, help);
        return Some(None);
    };
    parsed("key_env", text, place, mistakes).map(Some)
}

fn from_file(
    file: &PathBuf,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Arc<Keyring>> {
    let is_small = fs::metadata(file).is_ok_and(|data| data.len() <= limits::MAX_KEY_FILE_BYTES);
    let Some(text) = is_small.then(|| fs::read_to_string(file).ok()).flatten() else {
        let message = format!("`key_file`: {} is not a readable text of keys", file.display());
        let help = "make one with `openssl rand -base64 32` that this user may read";
        mistakes.error(place, message, help);
        return None;
    };
    if is_open_to_others(file) {
        let message = format!("`key_file`: others than its owner may use {}", file.display());
        mistakes.warning(place, message, format!("run: chmod 600 {}", file.display()));
    }
    parsed("key_file", &text, place, mistakes)
}

fn parsed(
    option: &str,
    text: &str,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<Arc<Keyring>> {
    match Keyring::parse(text) {
        Ok(keys) => Some(Arc::new(keys)),
        Err(error) => {
            let message = format!("`{option}`: {error}");
            let help = "one key in a line, the one that writes first; nothing is served without";
            mistakes.error(place, message, help);
            None
        }
    }
}

fn is_open_to_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(file).is_ok_and(|data| data.permissions().mode() & 0o077 != 0)
}
