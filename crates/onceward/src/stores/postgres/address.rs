//! The address of a database: what the driver understands, and what is ours.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use super::OpenError;

/// How long one server may take to answer, where the address does not say.
const CONNECT: Duration = Duration::from_secs(3);

/// How long a connection may be silent before it is taken for dead.
const SILENT: Duration = Duration::from_secs(5);

/// What the driver knows, for a suggestion.
const KNOWN: [&str; 16] = [
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "load_balance_hosts",
    "password",
    "port",
    "prepare",
    "promotion",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
];

/// The address of a PostgreSQL database, read and checked.
///
/// Beside what libpq knows it takes `prepare=off` (for PgBouncer and other poolers that give each
/// transaction another connection) and `promotion=never` (the standbys of this server are only read
/// from, and never promoted).
///
/// ```
/// use onceward::stores::postgres::Address;
///
/// let address: Address = "postgres://shop:secret@db1,db2/shop?sslmode=verify-full".parse()?;
/// assert_eq!(address.to_string(), "postgres://shop@db1,db2/shop", "no password, no options");
/// # Ok::<(), onceward::stores::postgres::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) tls: Verify,
    pub(super) root: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    pub(super) prepares: bool,
    pub(super) promotes: bool,
    shown: String,
}

impl Address {
    /// Whether a standby of this server may be promoted one day: unless it says `promotion=never`.
    #[must_use]
    pub fn is_promotable(&self) -> bool {
        self.promotes
    }
}

/// How much is checked of a server's certificate, as libpq's `sslmode` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    Nothing,
    Authority,
    Everything,
}

impl FromStr for Address {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        let rest = text.strip_prefix("postgres://").or_else(|| text.strip_prefix("postgresql://"));
        let Some(rest) = rest else {
            let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
            return Err(OpenError::Address(format!("`{scheme}://` is not `postgres://`")));
        };
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut passed_on = form_urlencoded::Serializer::new(String::new());
        let mut own = Own::default();
        for (name, value) in form_urlencoded::parse(options.as_bytes()) {
            if !own.take(&name, &value)? {
                passed_on.append_pair(&name, &value);
            }
        }
        let options = passed_on.finish().replace('+', "%20");
        let config: Config = format!("postgres://{place}?{options}").parse().map_err(
            |error: tokio_postgres::Error| OpenError::Address(super::error::describe(&error)),
        )?;
        own.address(config, place)
    }
}

/// The options that the driver does not know, or means otherwise.
#[derive(Default)]
struct Own {
    mode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    is_unprepared: bool,
    is_never_promoted: bool,
}

impl Own {
    fn take(&mut self, name: &str, value: &str) -> Result<bool, OpenError> {
        let one_of = |words: [&str; 2]| match words.iter().position(|word| *word == value) {
            Some(place) => Ok(place == 1),
            None => {
                let [first, second] = words;
                Err(OpenError::Address(format!(
                    "`{name}` is `{first}` or `{second}`, not `{value}`"
                )))
            }
        };
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "prepare" => self.is_unprepared = one_of(["on", "off"])?,
            "promotion" => self.is_never_promoted = one_of(["possible", "never"])?,
            name if KNOWN.contains(&name) || is_rarely_said(name) => return Ok(false),
            name => return Err(OpenError::Address(unknown(name))),
        }
        Ok(true)
    }

    fn address(self, mut config: Config, place: &str) -> Result<Address, OpenError> {
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(OpenError::Address("it names no host".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        if config.get_application_name().is_none() {
            config.application_name("onceward");
        }
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadOnly {
            let text = "`target_session_attrs=read-only` asks for a standby; records need a server that takes writes";
            return Err(OpenError::Address(text.to_owned()));
        }
        // Records are read and written on the primary only.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(SILENT).tcp_user_timeout(SILENT);
        let (mode, tls) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "prefer" | "allow" => (SslMode::Prefer, Verify::Nothing),
            // As in libpq: an authority that is named is also asked.
            "require" if self.root.is_some() => (SslMode::Require, Verify::Authority),
            "require" => (SslMode::Require, Verify::Nothing),
            "verify-ca" => (SslMode::Require, Verify::Authority),
            "verify-full" => (SslMode::Require, Verify::Everything),
            other => {
                let words = "disable, prefer, require, verify-ca, verify-full";
                return Err(OpenError::Address(format!("`sslmode={other}` is none of {words}")));
            }
        };
        config.ssl_mode(mode);
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let text = "`sslcert` and `sslkey` belong together: give both or none";
                return Err(OpenError::Address(text.to_owned()));
            }
        };
        let (user, place) = match place.rsplit_once('@') {
            Some((user, place)) => (user.split(':').next().unwrap_or_default(), place),
            None => ("", place),
        };
        let at = if user.is_empty() { "" } else { "@" };
        Ok(Address {
            config,
            tls,
            root: self.root,
            identity,
            prepares: !self.is_unprepared,
            promotes: !self.is_never_promoted,
            shown: format!("postgres://{user}{at}{place}"),
        })
    }
}

fn is_rarely_said(name: &str) -> bool {
    let names = [
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_retries",
        "options",
        "sslnegotiation",
        "tcp_user_timeout",
        "user",
    ];
    names.contains(&name)
}

fn unknown(name: &str) -> String {
    let near = |known: &&&str| distance(name, known) <= 2;
    match KNOWN.iter().filter(near).min_by_key(|known| distance(name, known)) {
        Some(known) => format!("the option `{name}` is not known; did you mean `{known}`?"),
        None => format!("the option `{name}` is not known; there are {}", KNOWN.join(", ")),
    }
}

/// How many letters must be changed, left out or put in.
fn distance(one: &str, other: &str) -> usize {
    let mut before: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in (1..).zip(one.bytes()) {
        let mut now = vec![row];
        for (column, rival) in other.bytes().enumerate() {
            let same = before[column] + usize::from(letter != rival);
            now.push(same.min(before[column + 1] + 1).min(now[column] + 1));
        }
        before = now;
    }
    before[other.len()]
}

impl Address {
    /// Each of its servers alone, in their order: one that hangs must not keep us from the next, and the
    /// driver's time-out ends with the first packet.
    pub(super) fn servers(&self) -> Vec<Config> {
        let config = &self.config;
        let count = config.get_hosts().len().max(config.get_hostaddrs().len());
        (0..count).map(|place| self.server(place)).collect()
    }

    fn server(&self, place: usize) -> Config {
        let (all, mut one) = (&self.config, self.without_hosts());
        match all.get_hosts().get(place) {
            Some(Host::Tcp(name)) => _ = one.host(name),
            #[cfg(unix)]
            Some(Host::Unix(path)) => _ = one.host_path(path),
            None => {}
        }
        if let Some(address) = all.get_hostaddrs().get(place) {
            one.hostaddr(*address);
        }
        // One port is for all of them.
        if let Some(port) = all.get_ports().get(place).or_else(|| all.get_ports().first()) {
            one.port(*port);
        }
        one
    }

    fn without_hosts(&self) -> Config {
        let (all, mut one) = (&self.config, Config::new());
        one.ssl_mode(all.get_ssl_mode())
            .ssl_negotiation(all.get_ssl_negotiation())
            .target_session_attrs(all.get_target_session_attrs())
            .channel_binding(all.get_channel_binding())
            .keepalives(all.get_keepalives())
            .keepalives_idle(all.get_keepalives_idle());
        if let Some(user) = all.get_user() {
            one.user(user);
        }
        if let Some(password) = all.get_password() {
            one.password(password);
        }
        if let Some(name) = all.get_dbname() {
            one.dbname(name);
        }
        if let Some(options) = all.get_options() {
            one.options(options);
        }
        if let Some(name) = all.get_application_name() {
            one.application_name(name);
        }
        if let Some(time) = all.get_connect_timeout() {
            one.connect_timeout(*time);
        }
        if let Some(time) = all.get_tcp_user_timeout() {
            one.tcp_user_timeout(*time);
        }
        if let Some(time) = all.get_keepalives_interval() {
            one.keepalives_interval(time);
        }
        if let Some(count) = all.get_keepalives_retries() {
            one.keepalives_retries(count);
        }
        one
    }
}

/// Without the password and without the options.
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

    fn refused(text: &str) -> String {
        match text.parse::<Address>() {
            Ok(address) => panic!("{address} was understood"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for text in
            ["postgres://ada:s3cret@db/shop", "postgresql://ada:s3cret@db:1,db:2/shop?prepare=off"]
        {
            let address: Address = text.parse().unwrap();
            let shown = format!("{address} {address:?}");
            assert!(!shown.contains("s3cret") && shown.contains("ada@db"), "{shown}");
        }
        let error = refused("postgres://ada:s3cret@db/shop?target_session_attrs=odd");
        assert!(!error.contains("s3cret"), "{error}");
    }

    #[test]
    fn servers_are_taken_apart_with_everything_that_is_said_of_them() {
        let options = "options=-c%20x%3D1&keepalives_interval=7&keepalives_retries=3&connect_timeout=2\
                       &channel_binding=disable&sslmode=require&application_name=till";
        let both: Address =
            format!("postgres://ada:s3cret@db1:1,db2:2/shop?{options}").parse().unwrap();
        let alone = |host: &str| {
            let text = format!("postgres://ada:s3cret@{host}/shop?{options}");
            text.parse::<Address>().unwrap().config
        };
        assert_eq!(both.servers(), [alone("db1:1"), alone("db2:2")]);
        let same_port: Address = "postgres://db1,db2/shop?port=7".parse().unwrap();
        assert_eq!(same_port.servers()[1].get_ports(), [7]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("postgress://db/shop", "`postgress://` is not `postgres://`"),
            ("postgres:///shop", "it names no host"),
            ("postgres://db/shop?sslmod=require", "did you mean `sslmode`?"),
            ("postgres://db/shop?sslmode=full", "`sslmode=full` is none of"),
            ("postgres://db/shop?prepare=no", "`prepare` is `on` or `off`, not `no`"),
            ("postgres://db/shop?sslcert=a", "belong together"),
            ("postgres://db/shop?target_session_attrs=read-only", "asks for a standby"),
            ("postgres://db:x/shop", "invalid"),
        ] {
            let error = refused(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn options_are_taken_as_libpq_means_them() {
        let read =
            |options: &str| format!("postgres://db/shop?{options}").parse::<Address>().unwrap();
        for (options, mode, verify) in [
            ("", SslMode::Prefer, Verify::Nothing),
            ("sslmode=disable", SslMode::Disable, Verify::Nothing),
            ("sslmode=require", SslMode::Require, Verify::Nothing),
            ("sslmode=require&sslrootcert=ca.pem", SslMode::Require, Verify::Authority),
            ("sslmode=verify-ca", SslMode::Require, Verify::Authority),
            ("sslmode=verify-full", SslMode::Require, Verify::Everything),
        ] {
            let address = read(options);
            assert_eq!((address.config.get_ssl_mode(), address.tls), (mode, verify), "{options}");
        }
        assert!(read("").prepares && !read("prepare=off").prepares);
        assert!(read("").promotes && !read("promotion=never").promotes);
        let spaced = read("application_name=the%20shop");
        assert_eq!(spaced.config.get_application_name(), Some("the shop"));
    }
}
