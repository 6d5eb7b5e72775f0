//! The address of a server, a cluster or a group of sentinels: taken apart, checked, and shown without passwords.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use super::OpenError;

const EXAMPLE: &str = "write \"redis://user:password@host:6379/0\", \"rediss://…\" for TLS, \
                       \"redis+cluster://host1,host2\" or \"redis+sentinel://host1,host2/0?service=name\"";

/// A password is where these are found by accident.
const ESCAPES: &str = "characters that mean something in a URL are written in a password as %40 for @, \
                       %2F for /, %3A for :, %3F for ?, %23 for # and %25 for %";

/// What may stand behind `?`.
const OPTIONS: [&str; 14] = [
    "cacert",
    "cert",
    "connect_timeout",
    "connections",
    "key",
    "password",
    "prefix",
    "sentinel_password",
    "sentinel_user",
    "service",
    "timeout",
    "wait_aof",
    "wait_replicas",
    "wait_timeout",
];

/// The address of a Redis or Valkey server, read and checked.
///
/// | it begins with | what it names |
/// |---|---|
/// | `redis://` | one server |
/// | `redis+cluster://` | some nodes of a cluster, with commas; the others are found |
/// | `redis+sentinel://` | some sentinels, with commas; `service` is the name under which they watch the primary |
///
/// With `rediss` in place of `redis` connections are encrypted: `cacert`, `cert` and `key` name files in PEM form.
/// Further options: `prefix` (of all keys), `connections`, `connect_timeout` and `timeout` (seconds), `wait_replicas`,
/// `wait_aof` and `wait_timeout`, `sentinel_user` and `sentinel_password`.
///
/// ```
/// use onceward::store::redis::Address;
///
/// let address: Address = "rediss://shop:secret@db:6380/2?prefix=shop".parse()?;
/// assert_eq!(address.to_string(), "rediss://shop:***@db:6380/2?prefix=shop");
/// # Ok::<(), onceward::store::redis::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    pub(super) kind: Kind,
    /// Host and port of each.
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) is_encrypted: bool,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) database: i64,
    pub(super) service: String,
    pub(super) authority: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    pub(super) options: Options,
    shown: String,
}

/// What an address names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Cluster,
    Sentinels,
}

#[derive(Clone, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

/// What an address says of the store itself; a builder starts with it.
#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) prefix: Option<String>,
    pub(super) connections: Option<usize>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) wait_replicas: Option<u32>,
    pub(super) wait_aof: Option<(u32, u32)>,
    pub(super) wait_timeout: Option<Duration>,
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let (kind, is_encrypted) = match scheme {
            "redis" => (Kind::Server, false),
            "rediss" => (Kind::Server, true),
            "redis+cluster" => (Kind::Cluster, false),
            "rediss+cluster" => (Kind::Cluster, true),
            "redis+sentinel" => (Kind::Sentinels, false),
            "rediss+sentinel" => (Kind::Sentinels, true),
            _ => return refuse("does not begin with `redis://`", EXAMPLE),
        };
        if rest.contains('#') {
            return refuse("has a `#` in it", ESCAPES);
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        if database.contains('/') || login.is_some_and(|login| login.contains('@')) {
            return refuse("has a `/` or an `@` where none can be", ESCAPES);
        }
        let mut address = Self {
            kind,
            hosts: read_hosts(hosts, if kind == Kind::Sentinels { 26379 } else { 6379 })?,
            is_encrypted,
            login: read_login(login)?,
            sentinel_login: Login::default(),
            database: read_database(database, kind)?,
            service: String::new(),
            authority: None,
            identity: None,
            options: Options::default(),
            shown: String::new(),
        };
        let shown = address.take_options(query)?;
        address.check()?;
        address.shown = show(scheme, login, hosts, database, &shown);
        Ok(address)
    }
}

impl Address {
    /// Takes the options, and gives them as they are shown.
    fn take_options(&mut self, query: &str) -> Result<Vec<String>, OpenError> {
        let (mut shown, mut taken) = (Vec::new(), Vec::new());
        let (mut certificate, mut key) = (None, None);
        for text in query.split('&').filter(|text| !text.is_empty()) {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            if !OPTIONS.contains(&name) {
                return Err(unknown(name));
            }
            if taken.contains(&name) {
                return refuse(&format!("says `{name}` twice"), "leave one of them out");
            }
            taken.push(name);
            let value = unescaped(value)?;
            if value.is_empty() {
                return refuse(&format!("has `{name}` without a value"), "write it as name=value");
            }
            shown.push(match name {
                "password" | "sentinel_password" => format!("{name}=***"),
                _ => text.to_owned(),
            });
            let options = &mut self.options;
            match name {
                "cacert" => self.authority = Some(file(name, &value)?),
                "cert" => certificate = Some(file(name, &value)?),
                "key" => key = Some(file(name, &value)?),
                "connect_timeout" => options.connect_timeout = Some(seconds(name, &value)?),
                "timeout" => options.timeout = Some(seconds(name, &value)?),
                "wait_timeout" => options.wait_timeout = Some(seconds(name, &value)?),
                "connections" => options.connections = Some(number(name, &value)?),
                "wait_replicas" => options.wait_replicas = Some(number(name, &value)?),
                "wait_aof" => options.wait_aof = Some((1, number(name, &value)?)),
                "prefix" => options.prefix = Some(value),
                "password" => self.login.password = Some(value),
                "sentinel_user" => self.sentinel_login.user = Some(value),
                "sentinel_password" => self.sentinel_login.password = Some(value),
                _ => self.service = value,
            }
        }
        self.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return refuse(
                    "has only one of `cert` and `key`",
                    "they belong together: give both or none",
                );
            }
        };
        Ok(shown)
    }

    fn check(&self) -> Result<(), OpenError> {
        let has_files = self.authority.is_some() || self.identity.is_some();
        let has_service = !self.service.is_empty();
        if has_files && !self.is_encrypted {
            return refuse("names certificates but is not encrypted", "begin it with `rediss`");
        }
        if self.kind == Kind::Sentinels && !has_service {
            let help = "write `?service=` and the name under which they watch the primary";
            return refuse("names sentinels without a service", help);
        }
        if self.kind != Kind::Sentinels && has_service {
            return refuse(
                "has a `service` but names no sentinels",
                "begin it with `redis+sentinel://`",
            );
        }
        if self.kind == Kind::Server && self.hosts.len() > 1 {
            let help = "begin it with `redis+cluster://` or `redis+sentinel://`";
            return refuse("names several servers", help);
        }
        Ok(())
    }
}

fn read_hosts(text: &str, usual_port: u16) -> Result<Vec<(String, u16)>, OpenError> {
    if text.is_empty() {
        return refuse("names no host", EXAMPLE);
    }
    text.split(',').map(|host| read_host(host, usual_port)).collect()
}

/// `host`, `host:port`, `[::1]:port`.
pub(super) fn read_host(text: &str, usual_port: u16) -> Result<(String, u16), OpenError> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (text, None),
    };
    let port = match port.map(str::parse) {
        None => usual_port,
        Some(Ok(port)) if port > 0 => port,
        Some(_) => return refuse("has a port that is none", &format!("{EXAMPLE}; {ESCAPES}")),
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if name.is_empty() {
        return refuse("has a host without a name", EXAMPLE);
    }
    Ok((name.to_owned(), port))
}

fn read_login(text: Option<&str>) -> Result<Login, OpenError> {
    let Some(text) = text else { return Ok(Login::default()) };
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(unescaped(password)?)),
        None => (text, None),
    };
    let user = Some(unescaped(user)?).filter(|user| !user.is_empty());
    Ok(Login { user, password })
}

fn read_database(text: &str, kind: Kind) -> Result<i64, OpenError> {
    let number = match text {
        "" => 0,
        text => match text.parse::<u16>() {
            Ok(number) => i64::from(number),
            Err(_) => return refuse("has a database that is no number", EXAMPLE),
        },
    };
    if kind == Kind::Cluster && number != 0 {
        return refuse(
            "names a database of a cluster",
            "a cluster has database 0 alone: leave it out",
        );
    }
    Ok(number)
}

fn unescaped(text: &str) -> Result<String, OpenError> {
    let is_escape = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_escape) {
        return refuse("has a `%` that stands for nothing", ESCAPES);
    }
    Ok(percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned())
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, OpenError> {
    value
        .parse()
        .or_else(|_| refuse(&format!("has a `{name}` that is no number"), "write a whole number"))
}

fn seconds(name: &str, value: &str) -> Result<Duration, OpenError> {
    let read = value.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    match read {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => refuse(&format!("has a `{name}` that is no time"), "write seconds, as 0.5 or 3"),
    }
}

fn file(name: &str, value: &str) -> Result<PathBuf, OpenError> {
    let path = PathBuf::from(value);
    if path.is_file() {
        return Ok(path);
    }
    let help = "relative names start where the command is run";
    refuse(&format!("names a file in `{name}` that is not there"), help)
}

/// An error quotes a name only if it is nearly a known one: else it may be half of a password.
fn unknown(name: &str) -> OpenError {
    let near = OPTIONS.into_iter().map(|known| (strsim::levenshtein(name, known), known)).min();
    match near.filter(|(distance, _)| *distance <= 2) {
        Some((_, near)) => OpenError::Address {
            message: format!("has an unknown option `{name}`"),
            help: format!("did you mean `{near}`?"),
        },
        None => OpenError::Address {
            message: "has an unknown option behind its `?`".to_owned(),
            help: format!("choose of {}; {ESCAPES}", OPTIONS.join(", ")),
        },
    }
}

fn show(
    scheme: &str,
    login: Option<&str>,
    hosts: &str,
    database: &str,
    options: &[String],
) -> String {
    let login = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        None => String::new(),
        Some((user, "")) => format!("{user}@"),
        Some((user, _)) => format!("{user}:***@"),
    };
    let slash = if database.is_empty() { "" } else { "/" };
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{login}{hosts}{slash}{database}{mark}{}", options.join("&"))
}

fn refuse<T>(message: &str, help: &str) -> Result<T, OpenError> {
    Err(OpenError::address(message, help))
}

/// Without the password.
impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_apart_and_shown_without_its_password() {
        for (text, shown) in [
            ("redis://h", "redis://h"),
            ("redis://:sesame@h:1/2", "redis://:***@h:1/2"),
            ("rediss://u:s%40esame@[::1]:7", "rediss://u:***@[::1]:7"),
            ("redis+cluster://u@a,b:2?prefix=p", "redis+cluster://u@a,b:2?prefix=p"),
            (
                "redis+sentinel://u:sesame@a,b/3?service=s&sentinel_password=sesame",
                "redis+sentinel://u:***@a,b/3?service=s&sentinel_password=***",
            ),
            ("redis://h?password=sesame", "redis://h?password=***"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(
                (address.to_string(), format!("{address:?}")),
                (shown.into(), format!("Address({shown})"))
            );
        }
        let address: Address = "rediss://u:s%40esame@[::1]:7".parse().unwrap();
        assert_eq!(address.hosts, [("::1".to_owned(), 7)]);
        assert_eq!(address.login.password.as_deref(), Some("s@esame"));
        let address: Address = "redis+sentinel://a,b/3?service=s&timeout=0.5".parse().unwrap();
        assert_eq!(address.hosts, [("a".to_owned(), 26379), ("b".to_owned(), 26379)]);
        assert_eq!(
            (address.database, address.options.timeout),
            (3, Some(Duration::from_millis(500)))
        );
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (text, message, help) in [
            ("rediz://h", "does not begin with", "redis://"),
            ("sesame", "does not begin with", "redis://"),
            ("redis://", "names no host", "6379"),
            ("redis://u:sesame@h:port", "has a port that is none", "%40 for @"),
            ("redis://u:se/same@h", "has a port that is none", "%2F for /"),
            ("redis://u:ses@me@h", "`/` or an `@`", "%40 for @"),
            ("redis://u:ses#me@h", "`#`", "%23 for #"),
            ("redis://u:ses%me@h", "`%` that stands for nothing", "%25"),
            ("redis://h/shop", "database that is no number", "6379/0"),
            ("redis://a,b", "names several servers", "redis+cluster://"),
            ("redis+cluster://a/1", "database of a cluster", "leave it out"),
            ("redis+sentinel://a", "without a service", "?service="),
            ("redis://h?service=x", "names no sentinels", "redis+sentinel://"),
            ("redis://h?prefx=x", "unknown option `prefx`", "did you mean `prefix`?"),
            ("redis://h?sesame=1", "unknown option behind", "wait_replicas"),
            ("redis://h?prefix=a&prefix=b", "says `prefix` twice", "leave one"),
            ("redis://h?timeout=soon", "`timeout` that is no time", "seconds"),
            ("redis://h?connections=x", "`connections` that is no number", "whole"),
            ("redis://h?cacert=Cargo.toml", "is not encrypted", "rediss"),
            ("rediss://h?cacert=sesame", "`cacert` that is not there", "relative"),
            ("rediss://h?cert=Cargo.toml", "only one of", "belong together"),
        ] {
            let mistake = text.parse::<Address>().unwrap_err().to_string();
            assert!(mistake.contains(message), "{text}: {mistake}");
            assert!(mistake.contains(help), "{text}: {mistake}");
            assert!(!mistake.contains("sesame"), "{mistake}");
        }
    }
}
