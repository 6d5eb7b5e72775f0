//! How an address is written: taken apart far enough to name a mistake before a connection is opened, and shown
//! without its password.

use std::path::Path;

use super::OpenError;

const EXAMPLE: &str = "write \"postgres://user:password@host:5432/database\"";

/// A password is where these are found by accident.
const ESCAPES: &str = "characters that mean something in a URL are written in a password as %40 for @, \
                       %2F for /, %3A for :, %3F for ?, %23 for # and %25 for %";

/// What may stand behind `?`; those with choices have no other value.
const OPTIONS: [(&str, &[&str]); 24] = [
    ("application_name", &[]),
    ("channel_binding", &["disable", "prefer", "require"]),
    ("connect_timeout", &[]),
    ("dbname", &[]),
    ("dialect", &["postgres", "wire"]),
    ("host", &[]),
    ("hostaddr", &[]),
    ("keepalives", &["0", "1"]),
    ("keepalives_idle", &[]),
    ("keepalives_interval", &[]),
    ("keepalives_retries", &[]),
    ("load_balance_hosts", &["disable", "random"]),
    ("options", &[]),
    ("password", &[]),
    ("port", &[]),
    ("prepare", &["on", "off"]),
    ("promotion", &["possible", "never"]),
    ("sslcert", &[]),
    ("sslkey", &[]),
    ("sslmode", &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]),
    ("sslnegotiation", &["postgres", "direct"]),
    ("sslrootcert", &[]),
    ("target_session_attrs", &["any", "read-write"]),
    ("tcp_user_timeout", &[]),
];

/// Beside those of [`OPTIONS`].
const USER: &str = "user";

/// An address that is written as one must be.
pub(super) struct Spelled<'a> {
    /// Everything before the `?`, without the scheme.
    pub(super) place: &'a str,
    /// What stands behind it, still escaped.
    pub(super) options: Vec<UrlOption<'a>>,
    /// Without the password.
    pub(super) shown: String,
}

/// Takes an address apart.
pub(super) fn spelled(text: &str) -> Result<Spelled<'_>, OpenError> {
    let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
    if !["postgres", "postgresql"].contains(&scheme) {
        return refuse("does not begin with `postgres://`", EXAMPLE);
    }
    if rest.contains('#') {
        return refuse("has a `#` in it", ESCAPES);
    }
    check_escapes(rest)?;
    let (place, query) = match rest.split_once('?') {
        Some((place, query)) => (place, Some(query).filter(|query| !query.is_empty())),
        None => (rest, None),
    };
    let options = query.map(options).transpose()?.unwrap_or_default();
    let said = |name: &str| options.iter().any(|option| option.name == name);
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    };
    check_hosts(hosts, said("host") || said("hostaddr"))?;
    if database.contains('/') || user.is_some_and(|user| user.contains('@')) {
        return refuse("has a `/` or an `@` where none can be", ESCAPES);
    }
    if database.is_empty() && !said("dbname") {
        return refuse("names no database", EXAMPLE);
    }
    let shown = shown(scheme, user, hosts, database, &options);
    Ok(Spelled { place, options, shown })
}

pub(super) struct UrlOption<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

fn options(query: &str) -> Result<Vec<UrlOption<'_>>, OpenError> {
    let mut options: Vec<UrlOption<'_>> = Vec::new();
    for text in query.split('&') {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let known = OPTIONS.iter().find(|(known, _)| *known == name);
        let choices = match known {
            Some((_, choices)) => *choices,
            None if name == USER => &[],
            None => return Err(unknown(name)),
        };
        if options.iter().any(|option| option.name == name) {
            return refuse(&format!("says `{name}` twice"), "leave one of them out");
        }
        if value.is_empty() {
            return refuse(&format!("has `{name}` without a value"), "write it as name=value");
        }
        if !choices.is_empty() && !choices.contains(&value) {
            return Err(not_a_choice(name, value, choices));
        }
        if ["sslcert", "sslkey", "sslrootcert"].contains(&name) && !Path::new(value).is_file() {
            let help = "relative names start where the command is run";
            return refuse(&format!("names a file in `{name}` that is not there"), help);
        }
        options.push(UrlOption { name, value });
    }
    Ok(options)
}

/// An error quotes a name only if it is nearly a known one: else it may be half of a password.
fn unknown(name: &str) -> OpenError {
    let names = OPTIONS.map(|(name, _)| name);
    match nearest(name, names.into_iter().chain([USER])) {
        Some(near) => OpenError::Address {
            message: format!("has an unknown option `{name}`"),
            help: format!("did you mean `{near}`?"),
        },
        None => OpenError::Address {
            message: "has an unknown option behind its `?`".to_owned(),
            help: format!("choose of {}; {ESCAPES}", names.join(", ")),
        },
    }
}

fn not_a_choice(name: &str, value: &str, choices: &[&str]) -> OpenError {
    if name == "target_session_attrs" {
        let message = "asks for a standby, and records are read and written on the primary alone";
        let help = "write `target_session_attrs=read-write`, or leave it out";
        return OpenError::Address { message: message.to_owned(), help: help.to_owned() };
    }
    let message = format!("has a `{name}` that does not exist");
    let help = match nearest(value, choices.iter().copied()) {
        Some(near) => format!("did you mean `{name}={near}`?"),
        None => format!("choose of {}", choices.join(", ")),
    };
    OpenError::Address { message, help }
}

fn check_escapes(text: &str) -> Result<(), OpenError> {
    let is_escape = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match text.split('%').skip(1).all(is_escape) {
        true => Ok(()),
        false => refuse("has a `%` that stands for nothing", ESCAPES),
    }
}

/// `host`, `host:port`, `[::1]:port`, several with commas.
fn check_hosts(hosts: &str, are_elsewhere: bool) -> Result<(), OpenError> {
    if hosts.is_empty() {
        return if are_elsewhere { Ok(()) } else { refuse("names no host", EXAMPLE) };
    }
    for host in hosts.split(',') {
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (host, None),
        };
        if name.is_empty() {
            return refuse("has a host without a name", EXAMPLE);
        }
        if port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0)) || port.is_none()
        {
            continue;
        }
        return refuse("has a port that is none", &format!("{EXAMPLE}; {ESCAPES}"));
    }
    Ok(())
}

fn shown(
    scheme: &str,
    user: Option<&str>,
    hosts: &str,
    database: &str,
    options: &[UrlOption<'_>],
) -> String {
    let user = match user.map(|user| (user, user.split_once(':'))) {
        None => String::new(),
        Some((_, Some((name, _)))) => format!("{name}:***@"),
        Some((name, None)) => format!("{name}@"),
    };
    // What is given to the server (`options`) may be anything.
    let hide = |option: &UrlOption<'_>| match option.name {
        "password" | "options" => format!("{}=***", option.name),
        name => format!("{name}={}", option.value),
    };
    let query: Vec<_> = options.iter().map(hide).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{hosts}/{database}{mark}{}", query.join("&"))
}

/// The word that was probably meant.
fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known.into_iter().map(|known| (strsim::levenshtein(word, known), known));
    near.filter(|(distance, _)| *distance <= 2).min().map(|(_, known)| known)
}

fn refuse<T>(message: &str, help: &str) -> Result<T, OpenError> {
    Err(OpenError::address(message, help))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, OpenError> {
        spelled(text).map(|spelled| spelled.shown)
    }

    #[test]
    fn it_is_shown_without_its_password() {
        for (text, expected) in [
            ("postgres://h/d", "postgres://h/d"),
            ("postgresql://u@h:1/d", "postgresql://u@h:1/d"),
            ("postgres://u:sesame@a:1,b:2/d", "postgres://u:***@a:1,b:2/d"),
            ("postgres://u:s%40esame@[::1]:1/d", "postgres://u:***@[::1]:1/d"),
            ("postgres://u:sesame:sesame@[::1]/d", "postgres://u:***@[::1]/d"),
            ("postgres:///d?host=/run&password=sesame", "postgres:///d?host=/run&password=***"),
            ("postgres://h/d?options=-csesame%3D1", "postgres://h/d?options=***"),
            (
                "postgres://h/d?target_session_attrs=read-write&prepare=off",
                "postgres://h/d?target_session_attrs=read-write&prepare=off",
            ),
        ] {
            assert_eq!(parse(text).unwrap(), expected);
        }
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (text, message, help) in [
            ("postgress://h/d", "does not begin with", "host:5432"),
            ("sesame", "does not begin with", "host:5432"),
            ("postgres://", "names no host", "host:5432"),
            ("postgres://u:sesame@/d", "names no host", "host:5432"),
            ("postgres://u:sesame@h", "names no database", "/database"),
            ("postgres://u:sesame@h:port/d", "has a port that is none", "%40 for @"),
            ("postgres://u:se/same@h/d", "has a port that is none", "%2F for /"),
            ("postgres://u:ses@me@h/d", "`/` or an `@`", "%40 for @"),
            ("postgres://u:ses#me@h/d", "`#`", "%23 for #"),
            ("postgres://u:ses?me@h/d", "unknown option behind", "%3F for ?"),
            ("postgres://u:ses%me@h/d", "`%` that stands for nothing", "%25"),
            ("postgres://h:0/d", "has a port that is none", "5432"),
            ("postgres://h,:1/d", "has a host without a name", "host:5432"),
            ("postgres://h/d?sslmod=require", "unknown option `sslmod`", "did you mean `sslmode`?"),
            ("postgres://h/d?sesame=1", "unknown option behind", "target_session_attrs"),
            ("postgres://h/d?sslmode=verify-ful", "`sslmode` that does not exist", "verify-full"),
            (
                "postgres://h/d?prepare=offf",
                "`prepare` that does not",
                "did you mean `prepare=off`?",
            ),
            (
                "postgres://h/d?target_session_attrs=read-only",
                "on the primary alone",
                "`target_session_attrs=read-write`",
            ),
            (
                "postgres://h/d?dialect=wired",
                "`dialect` that does not",
                "did you mean `dialect=wire`?",
            ),
            ("postgres://h/d?dialect=cockroach", "`dialect` that", "choose of postgres, wire"),
            ("postgres://h/d?dialekt=wire", "option `dialekt`", "did you mean `dialect`?"),
            ("postgres://h/d?prepare=off&prepare=on", "says `prepare` twice", "leave one"),
            ("postgres://h/d?sslmode=", "`sslmode` without a value", "name=value"),
            ("postgres://h/d?sslrootcert=sesame", "`sslrootcert` that is not there", "relative"),
        ] {
            let mistake = parse(text).unwrap_err().to_string();
            assert!(mistake.contains(message), "{text}: {mistake}");
            assert!(mistake.contains(help), "{text}: {mistake}");
            assert!(!mistake.contains("sesame"), "{mistake}");
        }
    }
}
