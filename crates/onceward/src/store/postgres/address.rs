//! The address of a database: what the driver understands, and what is ours.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use super::{
    Dialect, OpenError,
    error::describe,
    spelling::{Spelled, UrlOption, spelled},
};

/// How long one server may take to answer, where the address does not say.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a connection may be silent before it is taken for dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of a PostgreSQL database, read and checked.
///
/// Beside what libpq knows it takes `prepare=off` (for PgBouncer and other poolers that give each
/// transaction another connection), `promotion=never` (the standbys of this server are only read
/// from, and never promoted) and `dialect=wire` (it is another engine: see [`Dialect::Wire`]).
///
/// ```
/// use onceward::store::postgres::Address;
///
/// let address: Address = "postgres://shop:secret@db1,db2/shop?sslmode=verify-full".parse()?;
/// assert_eq!(address.to_string(), "postgres://shop:***@db1,db2/shop?sslmode=verify-full");
/// # Ok::<(), onceward::store::postgres::OpenError>(())
/// ```
#[derive(Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) tls: Verify,
    pub(super) root: Option<PathBuf>,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
    pub(super) prepares: bool,
    pub(super) promotes: bool,
    pub(super) dialect: Dialect,
    shown: String,
}

impl Address {
    /// Whether a standby of this server may be promoted one day: unless it says `promotion=never`.
    #[must_use]
    pub fn is_promotable(&self) -> bool {
        self.promotes
    }

    /// How its server speaks: as PostgreSQL, unless it says `dialect=wire`.
    ///
    /// ```
    /// use onceward::store::postgres::{Address, Dialect};
    ///
    /// let address: Address = "postgres://shop@db/shop?dialect=wire".parse()?;
    /// assert_eq!(address.dialect(), Dialect::Wire);
    /// # Ok::<(), onceward::store::postgres::OpenError>(())
    /// ```
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
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
        let Spelled { place, options, shown } = spelled(text)?;
        let (mut own, mut passed_on) = (OwnOptions::default(), Vec::new());
        for UrlOption { name, value } in options {
            if !own.take(name, &unescaped(value)) {
                passed_on.push(format!("{name}={value}"));
            }
        }
        let config = format!("postgres://{place}?{}", passed_on.join("&")).parse();
        let config: Config = config.map_err(|error: tokio_postgres::Error| {
            OpenError::address(
                &format!("cannot be used: {}", describe(&error)),
                "see docs/postgres.md",
            )
        })?;
        own.address(config, shown)
    }
}

fn unescaped(value: &str) -> String {
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

/// The options that the driver does not know, or means otherwise.
#[derive(Default)]
struct OwnOptions {
    mode: Option<String>,
    root: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    is_unprepared: bool,
    is_never_promoted: bool,
    dialect: Dialect,
}

impl OwnOptions {
    /// `false`: the driver knows it. Which values there are was looked at before.
    fn take(&mut self, name: &str, value: &str) -> bool {
        match name {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "prepare" => self.is_unprepared = value == "off",
            "dialect" if value == "wire" => self.dialect = Dialect::Wire,
            "dialect" => {}
            "promotion" => self.is_never_promoted = value == "never",
            _ => return false,
        }
        true
    }

    fn address(self, mut config: Config, shown: String) -> Result<Address, OpenError> {
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
        let ports = config.get_ports().len();
        if ports > 1 && ports != hosts {
            let message = format!("names {ports} ports for {hosts} hosts");
            return Err(OpenError::address(&message, "write each port behind its host"));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("onceward");
        }
        // Records are read and written on the primary only.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.keepalives_idle(SILENCE_TIMEOUT).tcp_user_timeout(SILENCE_TIMEOUT);
        let (mode, tls) = match self.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "prefer" | "allow" => (SslMode::Prefer, Verify::Nothing),
            // As in libpq: an authority that is named is also asked.
            "require" if self.root.is_some() => (SslMode::Require, Verify::Authority),
            "require" => (SslMode::Require, Verify::Nothing),
            "verify-ca" => (SslMode::Require, Verify::Authority),
            _ => (SslMode::Require, Verify::Everything),
        };
        config.ssl_mode(mode);
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                let message = "has only one of `sslcert` and `sslkey`";
                return Err(OpenError::address(message, "they belong together: give both or none"));
            }
        };
        Ok(Address {
            config,
            tls,
            root: self.root,
            identity,
            prepares: !self.is_unprepared,
            promotes: !self.is_never_promoted,
            dialect: self.dialect,
            shown,
        })
    }
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
    fn passwords_are_never_shown() {
        for text in
            ["postgres://ada:s3cret@db/shop", "postgresql://ada:s3cret@db:1,db:2/shop?prepare=off"]
        {
            let address: Address = text.parse().unwrap();
            let shown = format!("{address} {address:?}");
            assert!(!shown.contains("s3cret") && shown.contains("ada:***@db"), "{shown}");
        }
        let half = "postgres://ada:s3cret@db/shop?sslcert=Cargo.toml".parse::<Address>();
        let error = half.unwrap_err().to_string();
        assert!(!error.contains("s3cret") && error.contains("belong together"), "{error}");
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
        let three = "postgres://db1,db2/shop?port=7".parse::<Address>().unwrap_err();
        assert!(three.to_string().contains("names 3 ports for 2 hosts"), "{three}");
    }

    #[test]
    fn options_are_taken_as_libpq_means_them() {
        let read =
            |options: &str| format!("postgres://db/shop?{options}").parse::<Address>().unwrap();
        for (options, mode, verify) in [
            ("", SslMode::Prefer, Verify::Nothing),
            ("sslmode=disable", SslMode::Disable, Verify::Nothing),
            ("sslmode=require", SslMode::Require, Verify::Nothing),
            ("sslmode=require&sslrootcert=Cargo.toml", SslMode::Require, Verify::Authority),
            ("sslmode=verify-ca", SslMode::Require, Verify::Authority),
            ("sslmode=verify-full", SslMode::Require, Verify::Everything),
        ] {
            let address = read(options);
            assert_eq!((address.config.get_ssl_mode(), address.tls), (mode, verify), "{options}");
        }
        assert!(read("").prepares && !read("prepare=off").prepares);
        assert!(read("").promotes && !read("promotion=never").promotes);
        assert_eq!(read("").dialect, Dialect::Postgres);
        assert_eq!(read("dialect=postgres").dialect, Dialect::Postgres);
        assert_eq!(read("dialect=wire&prepare=off").dialect, Dialect::Wire);
        let spaced = read("application_name=the%20shop");
        assert_eq!(spaced.config.get_application_name(), Some("the shop"));
    }
}
