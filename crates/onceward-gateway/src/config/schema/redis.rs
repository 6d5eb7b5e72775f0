//! `redis://…`: never shown with its password.

use std::fmt;

use onceward::store::redis::{Address, OpenError};

use super::postgres::UrlMistake;

/// What the address of a Redis or Valkey server, of a cluster or of sentinels may begin with.
pub(crate) const SCHEMES: [&str; 12] = [
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
    "valkey",
    "valkeys",
    "valkey+cluster",
    "valkeys+cluster",
    "valkey+sentinel",
    "valkeys+sentinel",
];

/// Where a Redis or Valkey server is and who asks it, as it was written.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl {
    /// With the password: only to connect. It begins with `redis`, whatever was written.
    whole: String,
    shown: String,
}

impl RedisUrl {
    pub(crate) fn parse(written: &str) -> Result<Self, UrlMistake> {
        let is_valkey = written.starts_with("valkey");
        let whole =
            if is_valkey { written.replacen("valkey", "redis", 1) } else { written.to_owned() };
        match whole.parse::<Address>() {
            Ok(address) => {
                let shown = address.to_string();
                let shown = if is_valkey { shown.replacen("redis", "valkey", 1) } else { shown };
                Ok(Self { whole, shown })
            }
            Err(OpenError::Address { message, help }) => {
                Err(UrlMistake { message: format!("`store` {message}"), help })
            }
            Err(error) => {
                let message = format!("`store` cannot be used: {error}");
                Err(UrlMistake { message, help: "see docs/redis.md".to_owned() })
            }
        }
    }

    /// All of it, with the password: to connect, and for nothing else.
    pub(crate) fn with_password(&self) -> &str {
        &self.whole
    }

    /// The same server for keys that no other installation has: their names begin as those of this address do, and go on
    /// with this.
    pub(crate) fn apart(&self, name: &str) -> Result<Self, UrlMistake> {
        let (place, query) = self.whole.split_once('?').unwrap_or((&self.whole, ""));
        let is_prefix = |option: &&str| option.starts_with("prefix=");
        let prefix = query.split('&').find(is_prefix).unwrap_or("prefix=onceward");
        let others = query.split('&').filter(|option| !option.is_empty() && !is_prefix(option));
        let options: Vec<_> =
            others.map(str::to_owned).chain([format!("{prefix}{name}")]).collect();
        Self::parse(&format!("{place}?{}", options.join("&")))
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkeys_own_words_mean_the_same() {
        for (written, whole, shown) in [
            ("valkey://:sesame@h/1", "redis://:sesame@h/1", "valkey://:***@h/1"),
            ("valkeys://h", "rediss://h", "valkeys://h"),
            ("redis+cluster://valkey", "redis+cluster://valkey", "redis+cluster://valkey"),
        ] {
            let url = RedisUrl::parse(written).unwrap();
            assert_eq!((url.with_password(), url.to_string().as_str()), (whole, shown));
        }
    }

    #[test]
    fn other_keys_on_the_same_server() {
        for (written, apart) in [
            ("redis://:sesame@h", "redis://:sesame@h?prefix=onceward-demo"),
            ("redis://h?prefix=shop&timeout=1", "redis://h?timeout=1&prefix=shop-demo"),
        ] {
            let url = RedisUrl::parse(written).unwrap().apart("-demo").unwrap();
            assert_eq!(url.with_password(), apart);
        }
    }
}
