//! Puts a configuration together and checks it as a whole.

use std::path::{Path, PathBuf};

use onceward::server::Errors;

use super::{
    reader::{Placed, Reader, Section, Setting},
    source::Sources,
};
use crate::config::{
    Config, Mistake, ScopePart, Severity, SourceLocation, StoreUrl,
    diagnostics::mistake::Mistakes,
    schema::{
        addresses, encryption, limits, origins,
        process::{CheckedParts, ProcessOptions},
        routes,
        scope::{Commits, Offered},
        sections, sinks, store,
    },
};

/// What a configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To serve: it must say where requests go.
    Serve,
    /// To relay: nothing need be said of requests.
    Relay,
    /// For anything else: it may be for `onceward relay` alone.
    Any,
}

impl Config {
    /// Reads and checks everything; all mistakes at once, by line, and warnings with them.
    ///
    /// What is allowed and should be known is in [`Config::notes`].
    pub(crate) fn load(sources: &Sources) -> Result<Self, Vec<Mistake>> {
        Self::load_for(Purpose::Serve, sources)
    }

    /// The same of a file that may be for `onceward relay` alone: it has `[[sink]]` and neither upstream nor routes.
    pub(crate) fn load_any(sources: &Sources) -> Result<Self, Vec<Mistake>> {
        Self::load_for(Purpose::Any, sources)
    }

    /// The same for `onceward relay`, whatever else the file is for.
    pub(crate) fn load_to_relay(sources: &Sources) -> Result<Self, Vec<Mistake>> {
        Self::load_for(Purpose::Relay, sources)
    }

    fn load_for(purpose: Purpose, sources: &Sources) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        let config = sources
            .merged(&mut mistakes)
            .and_then(|section| read(section, sources, purpose, &mut mistakes));
        let is_right = mistakes.errors() == 0;
        let found = mistakes.into_sorted();
        match config {
            Some(config) if is_right => Ok(Self { notes: found, ..config }),
            _ => Err(found.into_iter().filter(|one| one.severity != Severity::Note).collect()),
        }
    }
}

fn read(
    section: Section,
    sources: &Sources,
    purpose: Purpose,
    mistakes: &mut Mistakes,
) -> Option<Config> {
    let directory = sources.directory();
    let whole = sources.whole();
    let has_requests = ["upstream", "route", "defaults"].iter().any(|option| section.has(option));
    let has_sinks = section.has("sink");
    let serves = match purpose {
        Purpose::Serve => true,
        Purpose::Relay => has_requests,
        Purpose::Any => has_requests || !has_sinks,
    };
    let mut reader = Reader::new(section, mistakes);
    let options = ProcessOptions::read(&mut reader);
    let addresses = Addresses::of(&options, &directory, &whole, serves, reader.mistakes);
    if let Some(StoreUrl::Redis(_)) = addresses.store {
        let relays = has_sinks || purpose == Purpose::Relay;
        store::check_redis(&options, relays, &whole, reader.mistakes);
    }
    let relay = sinks::relay(&mut reader);
    let sinks = sinks::sinks(&mut reader, relay.as_ref(), &sources.environment);
    let tls_section = reader.table("tls");
    let jwt_section = reader.table("jwt");
    let admin_tokens = reader.table("admin_tokens").then(|section, place| {
        if section.is_empty() {
            let help = "name a token in it, or leave it out: then only this machine may ask";
            reader.mistakes.error(place, "[admin_tokens] is empty", help);
        }
        Some(sections::admin_tokens(section.clone(), &sources.environment, reader.mistakes))
    });
    let encryption_section = reader.table("encryption");
    let mut client_certificates = !tls_section.is_missing();
    let tls = tls_section.then(|section, _| {
        client_certificates = section.has("client_ca");
        sections::tls(section.clone(), &directory, reader.mistakes)
    });
    let has_jwt = !jwt_section.is_missing();
    let jwt = jwt_section.then(|section, _| {
        sections::jwt(section.clone(), &directory, &sources.environment, reader.mistakes)
    });
    let encryption = encryption_section.then(|section, _| {
        encryption::read(section.clone(), &directory, &sources.environment, reader.mistakes)
    });
    let proxies = &options.trusted_proxies;
    let has_proxies = proxies.given().map_or(!proxies.is_missing(), |list| !list.value.is_empty());
    let offered = Offered {
        jwt: has_jwt,
        client_certificates,
        trusted_proxies: has_proxies,
        commits: commits(addresses.store.as_ref(), encryption.is_missing()),
    };
    let (mut routes, errors) = match serves {
        true => routes::read(&mut reader, &sources.overrides, offered, &whole),
        false => (Vec::new(), Errors::Problem),
    };
    let is_cookie = |part: &ScopePart| matches!(part, ScopePart::Cookie(_));
    let needs_cookies = routes.iter().any(|route| route.scope.iter().any(is_cookie));
    origins::check(&options.cors_origins, needs_cookies, reader.mistakes);
    let accepts_identity_change = options.accept_identity_change.value_or(false).unwrap_or(false);
    if accepts_identity_change {
        routes.iter_mut().for_each(|route| route.accepts_identity_change = true);
    }
    let has_tokens = !admin_tokens.is_missing();
    if let Some(admin) = &addresses.admin {
        check_admin(admin, has_tokens, tls.is_missing(), reader.mistakes);
    } else if let Some(tokens) = admin_tokens.given() {
        let help = "write admin = \"127.0.0.1:8081\", or leave [admin_tokens] out";
        reader.mistakes.warning(&tokens.place, "without `admin` no operator needs a token", help);
    }
    reader.finish();
    options.complete(CheckedParts {
        listen: addresses.listen?,
        admin: addresses.admin.map(|admin| admin.value),
        upstream: match serves {
            true => addresses.upstream?,
            false => http::Uri::from_static(NOWHERE),
        },
        store: addresses.store?,
        tls: tls.given().map(|tls| tls.value.clone()),
        jwt: jwt.given().map(|jwt| jwt.value.clone()),
        admin_tokens: admin_tokens.given().map(|tokens| tokens.value.clone()).unwrap_or_default(),
        encryption: encryption.given().map(|encryption| encryption.value.clone()),
        errors,
        accepts_identity_change,
        routes,
        serves,
        sinks: sinks?,
        relay: relay?,
        notes: Vec::new(),
    })
}

/// Where no request goes, because none is served.
const NOWHERE: &str = "http://nowhere.invalid";

struct Addresses {
    listen: Option<std::net::SocketAddr>,
    admin: Option<Placed<std::net::SocketAddr>>,
    upstream: Option<http::Uri>,
    store: Option<StoreUrl>,
}

impl Addresses {
    fn of(
        options: &ProcessOptions,
        directory: &Path,
        whole: &SourceLocation,
        serves: bool,
        mistakes: &mut Mistakes,
    ) -> Self {
        let mut listener = |option, setting: &Setting<String>| {
            let setting = setting.clone();
            setting.then(|text, place| addresses::listener(option, text, place, mistakes))
        };
        let listen = listener("listen", &options.listen);
        let admin = listener("admin", &options.admin);
        let upstream = options.upstream.clone();
        let upstream = upstream.then(|text, place| addresses::upstream(text, place, mistakes));
        let store = store(&options.store, directory, whole, mistakes);
        if listen.is_missing() && serves {
            let text = format!(
                "`listen` is not said: {}, which only this machine can reach",
                limits::DEFAULT_LISTEN
            );
            mistakes.note(whole, text);
        }
        if upstream.is_missing() && serves {
            let help = "write upstream = \"http://127.0.0.1:3000\", or say --upstream";
            mistakes.error(whole, "`upstream` is missing: where requests go", help);
        }
        let usual = limits::DEFAULT_LISTEN.parse().ok();
        let listen = usual.and_then(|usual| listen.or_default(usual, whole));
        if let Some(listen) = &listen {
            addresses::check_loops(listen, admin.given(), upstream.given(), mistakes);
        }
        Self {
            listen: listen.map(|placed| placed.value),
            admin: admin.given().cloned(),
            upstream: upstream.given().map(|placed| placed.value.clone()),
            store,
        }
    }
}

/// Names in the file start where the file is; those of the environment and the command line where
/// the command was given.
fn store(
    setting: &Setting<String>,
    directory: &Path,
    whole: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<StoreUrl> {
    if setting.is_missing() {
        let text = format!("`store` is not said: {}", limits::DEFAULT_STORE);
        mistakes.note(whole, text);
    }
    let said = setting.or_default(limits::DEFAULT_STORE.to_owned(), whole)?;
    let directory = match said.place {
        SourceLocation::Environment(_) | SourceLocation::Argument(_) => PathBuf::new(),
        _ => directory.to_owned(),
    };
    store::url(&said.value, &said.place, &directory, mistakes)
}

/// An operator who has to correct the store does not read of its consequences as well.
fn commits(store: Option<&StoreUrl>, is_plain: bool) -> Commits {
    match store {
        Some(StoreUrl::Sqlite(_)) => Commits::No,
        Some(StoreUrl::Postgres(url)) if url.is_relative() => Commits::NoFunctions,
        Some(StoreUrl::Postgres(_)) if !is_plain => Commits::WithoutAnswer,
        Some(StoreUrl::Postgres(_)) | None => Commits::Whole,
        Some(StoreUrl::Redis(_)) => Commits::NoTransactions,
    }
}

/// Operators see and change what belongs to all callers: no other machine may reach them by accident.
fn check_admin(
    admin: &Placed<std::net::SocketAddr>,
    has_tokens: bool,
    is_plain: bool,
    mistakes: &mut Mistakes,
) {
    if admin.value.ip().is_loopback() {
        return;
    }
    if !has_tokens {
        let message = "`admin` can be reached from other machines, and there are no [admin_tokens]";
        let help = "write \"127.0.0.1:8081\", or say who may use it: [admin_tokens] with \
                    ops = { token_env = \"ONCEWARD_TOKEN\", role = \"resolve\" }";
        mistakes.error(&admin.place, message, help);
    } else if is_plain {
        let message = "`admin` can be reached from other machines, and tokens cross the network in \
                       the clear";
        mistakes.warning(&admin.place, message, "add [tls], or keep that network to yourself");
    }
}
