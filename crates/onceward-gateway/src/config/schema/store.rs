//! Where the records are: a file of this machine, or a server.

use std::path::{Path, PathBuf};

use super::{
    postgres::{PostgresUrl, UrlMistake},
    process::ProcessOptions,
    redis::{self, RedisUrl},
};
use crate::config::{
    Guarantee, SourceLocation, StoreUrl,
    diagnostics::mistake::{Mistakes, nearest},
};

/// What stores are called that others have.
const LATER: [&str; 2] = ["mysql", "mariadb"];

const EXAMPLE: &str = "name a file as \"sqlite://onceward.db\", or a server as \
                       \"postgres://user:password@host:5432/database\" or, if records may be lost, \
                       \"redis://user:password@host:6379\"";

/// What the gateway does not have on such a server.
const RELATIVE: &str = "`store` says `dialect=wire`: what the server keeps cannot be asked, and guarantee = \"strict\" \
                        rests on what you know of it; duplicates that wait in other processes ask the store \
                        again and again; no test ran on an engine other than PostgreSQL";

/// The store; relative names start at `directory`.
pub(crate) fn url(
    text: &str,
    place: &SourceLocation,
    directory: &Path,
    mistakes: &mut Mistakes,
) -> Option<StoreUrl> {
    match StoreUrl::parse(text, directory) {
        Ok(store) => {
            match &store {
                StoreUrl::Sqlite(file) => warn_of_missing_directory(file, place, mistakes),
                StoreUrl::Postgres(url) if url.is_relative() => mistakes.note(place, RELATIVE),
                StoreUrl::Postgres(_) | StoreUrl::Redis(_) => {}
            }
            Some(store)
        }
        Err(UrlMistake { message, help }) => {
            mistakes.error(place, message, help);
            None
        }
    }
}

/// What goes with a Redis or Valkey server, and what does not.
pub(crate) fn check_redis(
    options: &ProcessOptions,
    relays: bool,
    whole: &SourceLocation,
    mistakes: &mut Mistakes,
) {
    let store = options.store.given().map_or(whole, |store| &store.place);
    if relays {
        let message = "`store` is a Redis or Valkey server, which has no outbox: there are no messages to deliver";
        let help = "keep the outbox where the service commits, store = \"postgres://…\" or \
                    \"sqlite://…\", in a file of its own for onceward relay; and leave [[sink]] out here";
        mistakes.error(store, message, help);
    } else if options.guarantee.value_or(Guarantee::Strict) == Some(Guarantee::Strict) {
        let place = options.guarantee.given().map_or(store, |guarantee| &guarantee.place);
        let usual =
            if options.guarantee.is_missing() { ", which counts if nothing is said," } else { "" };
        let message = format!(
            "guarantee = \"strict\"{usual} does not go with a Redis or Valkey server: it may lose a record that it \
             acknowledged, and a retry of that operation then runs again"
        );
        let help = "write guarantee = \"relaxed\", or set ONCEWARD_GUARANTEE=relaxed, if that is acceptable (onceward \
                    doctor says what can be lost); else store = \"postgres://…\" or \"sqlite://…\"";
        mistakes.error(place, message, help);
    }
}

impl StoreUrl {
    /// What an argument names; a file may be named without a scheme.
    pub(crate) fn of_argument(text: &str) -> Result<Self, String> {
        let is_file = !text.contains("://");
        let file = text.strip_prefix("sqlite:").unwrap_or(text);
        let whole = if is_file { format!("sqlite://{file}") } else { text.to_owned() };
        Self::parse(&whole, Path::new(""))
            .map_err(|UrlMistake { message, help }| format!("{message}; {help}"))
    }

    /// Nothing of it is quoted in a mistake: it may hold a password.
    fn parse(text: &str, directory: &Path) -> Result<Self, UrlMistake> {
        let refuse = |message: &str, help: &str| {
            Err(UrlMistake { message: message.to_owned(), help: help.to_owned() })
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("`store` has no scheme", EXAMPLE);
        };
        let known = ["sqlite", "postgres", "postgresql"];
        match scheme {
            "sqlite" => sqlite(rest, directory).map(Self::Sqlite),
            "postgres" | "postgresql" => PostgresUrl::parse(text).map(Self::Postgres),
            scheme if redis::SCHEMES.contains(&scheme) => RedisUrl::parse(text).map(Self::Redis),
            later if LATER.contains(&later) => {
                refuse("this version has no such `store`: only sqlite, postgres and redis", EXAMPLE)
            }
            other => match nearest(other, known.into_iter().chain(redis::SCHEMES)) {
                Some(near) => {
                    refuse("`store` is of an unknown kind", &format!("did you mean \"{near}://\"?"))
                }
                None => refuse("`store` is of an unknown kind", EXAMPLE),
            },
        }
    }
}

fn sqlite(file: &str, directory: &Path) -> Result<PathBuf, UrlMistake> {
    let refuse = |message: &str, help: &str| {
        Err(UrlMistake { message: message.to_owned(), help: help.to_owned() })
    };
    match file {
        "" => refuse("`store` names no file", EXAMPLE),
        ":memory:" => refuse("`store` in memory would forget every key at a restart", EXAMPLE),
        file if file.contains(['?', '#']) => {
            refuse("`store` has options behind the file", "leave out `?` or `#` and what follows")
        }
        file => Ok(directory.join(file)),
    }
}

fn warn_of_missing_directory(file: &Path, place: &SourceLocation, mistakes: &mut Mistakes) {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        let message = format!("`store`: there is no directory {}", directory.display());
        mistakes.warning(place, message, "make it before the gateway starts");
    }
}
