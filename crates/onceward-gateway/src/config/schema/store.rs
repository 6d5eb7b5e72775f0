//! Where the records are: a file of this machine, or a server.

use std::path::{Path, PathBuf};

use super::postgres::{PostgresUrl, UrlMistake};
use crate::config::{
    SourceLocation, StoreUrl,
    diagnostics::mistake::{Mistakes, nearest},
};

/// What stores are called that others have.
const LATER: [&str; 3] = ["redis", "rediss", "mysql"];

const EXAMPLE: &str = "name a file as \"sqlite://onceward.db\", or a server as \
                       \"postgres://user:password@host:5432/database\"";

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
                StoreUrl::Postgres(_) => {}
            }
            Some(store)
        }
        Err(UrlMistake { message, help }) => {
            mistakes.error(place, message, help);
            None
        }
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
        match scheme {
            "sqlite" => sqlite(rest, directory).map(Self::Sqlite),
            "postgres" | "postgresql" => PostgresUrl::parse(text).map(Self::Postgres),
            later if LATER.contains(&later) => {
                refuse("this version has no such `store`: only sqlite and postgres", EXAMPLE)
            }
            other => match nearest(other, ["sqlite", "postgres", "postgresql"]) {
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
