//! `postgres://…`: never shown with its password.

use std::fmt;

use onceward::store::postgres::{Address, Dialect, OpenError};

/// Where a PostgreSQL server is and who asks it, as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PostgresUrl {
    /// With the password: only to connect.
    whole: String,
    shown: String,
    dialect: Dialect,
}

/// What is wrong with it, and what to write instead. Nothing of the URL is quoted but names of options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UrlMistake {
    pub(crate) message: String,
    pub(crate) help: String,
}

impl PostgresUrl {
    pub(crate) fn parse(whole: &str) -> Result<Self, UrlMistake> {
        match whole.parse::<Address>() {
            Ok(address) => Ok(Self {
                whole: whole.to_owned(),
                shown: address.to_string(),
                dialect: address.dialect(),
            }),
            Err(OpenError::Address { message, help }) => {
                Err(UrlMistake { message: format!("`store` {message}"), help })
            }
            Err(error) => {
                let message = format!("`store` cannot be used: {error}");
                Err(UrlMistake { message, help: "see docs/postgres.md".to_owned() })
            }
        }
    }

    /// All of it, with the password: to connect, and for nothing else.
    pub(crate) fn with_password(&self) -> &str {
        &self.whole
    }

    /// Whether it is another engine, which has the tables alone and says nothing of what it promises.
    pub(crate) fn is_relative(&self) -> bool {
        self.dialect == Dialect::Wire
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}
