//! Puts a configuration together and checks it as a whole.

use std::path::{Path, PathBuf};

use super::{
    reader::{Placed, Reader, Section},
    source::Sources,
};
use crate::config::{
    Config, Guarantee, Mistake, Severity, SourceLocation, StoreUrl, Unmatched,
    diagnostics::mistake::Mistakes,
    schema::{
        addresses, encryption, limits, routes,
        scope::{Commits, Offered},
        sections, store,
    },
};

impl Config {
    /// Reads and checks everything; all mistakes at once, by line, and warnings with them.
    ///
    /// What is allowed and should be known is in [`Config::notes`].
    pub(crate) fn load(sources: &Sources) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Mistakes::default();
        let config =
            sources.merged(&mut mistakes).and_then(|section| read(section, sources, &mut mistakes));
        let is_right = mistakes.errors() == 0;
        let found = mistakes.into_sorted();
        match config {
            Some(config) if is_right => Ok(Self { notes: found, ..config }),
            _ => Err(found.into_iter().filter(|one| one.severity != Severity::Note).collect()),
        }
    }
}

fn read(section: Section, sources: &Sources, mistakes: &mut Mistakes) -> Option<Config> {
    let directory = sources.directory();
    let whole = sources.whole();
    let mut reader = Reader::new(section, mistakes);
    let addresses = Addresses::read(&mut reader, &directory, &whole);
    let guarantee = reader
        .choice("guarantee", &[("strict", Guarantee::Strict), ("relaxed", Guarantee::Relaxed)]);
    let accepts_all = reader.flag(routes::ACCEPT);
    let unmatched =
        reader.choice("unmatched", &[("pass", Unmatched::Pass), ("refuse", Unmatched::Refuse)]);
    let peer_share = reader.share("peer_share");
    let min_body_rate = reader.size("min_body_rate", &limits::BODY_RATE);
    let client_timeout = reader.duration("client_timeout", &limits::CLIENT_TIMEOUT);
    let max_answers = reader.count("max_answers", &limits::ANSWERS);
    let trusted_proxies = reader.list("trusted_proxies", "[\"127.0.0.1/32\"]", addresses::network);
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
    let has_proxies = trusted_proxies
        .given()
        .map_or(!trusted_proxies.is_missing(), |list| !list.value.is_empty());
    let offered = Offered {
        jwt: has_jwt,
        client_certificates,
        trusted_proxies: has_proxies,
        commits: commits(addresses.store.as_ref(), encryption.is_missing()),
    };
    let (mut routes, errors) = routes::read(&mut reader, &sources.overrides, offered, &whole);
    let accepts_identity_change = accepts_all.given().is_some_and(|accepts| accepts.value);
    if accepts_identity_change {
        routes.iter_mut().for_each(|route| route.accepts_identity_change = true);
    }
    let guarantee = guarantee.or_default(Guarantee::Strict, &whole);
    let unmatched = unmatched.or_default(Unmatched::Pass, &whole);
    let peer_share = peer_share.or_default(limits::DEFAULT_PEER_SHARE, &whole);
    let min_body_rate = min_body_rate.or_default(limits::DEFAULT_BODY_RATE, &whole);
    let client_timeout = client_timeout.or_default(limits::DEFAULT_CLIENT_TIMEOUT, &whole);
    let max_answers = max_answers.or_default(limits::DEFAULT_ANSWERS, &whole);
    let has_tokens = !admin_tokens.is_missing();
    if let Some(admin) = &addresses.admin {
        check_admin(admin, has_tokens, tls.is_missing(), reader.mistakes);
    } else if let Some(tokens) = admin_tokens.given() {
        let help = "write admin = \"127.0.0.1:8081\", or leave [admin_tokens] out";
        reader.mistakes.warning(&tokens.place, "without `admin` nobody needs a token", help);
    }
    reader.finish();
    let proxies =
        trusted_proxies.given().map(|list| list.value.iter().map(|one| one.value).collect());
    Some(Config {
        listen: addresses.listen?,
        admin: addresses.admin.map(|admin| admin.value),
        upstream: addresses.upstream?,
        store: addresses.store?,
        guarantee: guarantee?.value,
        peer_share: peer_share?.value,
        min_body_rate: min_body_rate?.value,
        client_timeout: client_timeout?.value,
        max_answers: max_answers?.value,
        trusted_proxies: proxies.unwrap_or_default(),
        tls: tls.given().map(|tls| tls.value.clone()),
        jwt: jwt.given().map(|jwt| jwt.value.clone()),
        admin_tokens: admin_tokens.given().map(|tokens| tokens.value.clone()).unwrap_or_default(),
        encryption: encryption.given().map(|encryption| encryption.value.clone()),
        unmatched: unmatched?.value,
        errors,
        accepts_identity_change,
        routes,
        notes: Vec::new(),
    })
}

struct Addresses {
    listen: Option<std::net::SocketAddr>,
    admin: Option<Placed<std::net::SocketAddr>>,
    upstream: Option<http::Uri>,
    store: Option<StoreUrl>,
}

impl Addresses {
    fn read(reader: &mut Reader<'_>, directory: &Path, whole: &SourceLocation) -> Self {
        let listen = reader
            .text("listen", "\"127.0.0.1:8080\"")
            .then(|text, place| addresses::listener("listen", text, place, reader.mistakes));
        let admin = reader
            .text("admin", "\"127.0.0.1:8081\"")
            .then(|text, place| addresses::listener("admin", text, place, reader.mistakes));
        let upstream = reader
            .text("upstream", "\"http://127.0.0.1:3000\"")
            .then(|text, place| addresses::upstream(text, place, reader.mistakes));
        let store = store(reader, directory, whole);
        if listen.is_missing() {
            let text = format!(
                "`listen` is not said: {}, which only this machine can reach",
                limits::DEFAULT_LISTEN
            );
            reader.mistakes.note(whole, text);
        }
        if upstream.is_missing() {
            let help = "write upstream = \"http://127.0.0.1:3000\", or say --upstream";
            reader.mistakes.error(whole, "`upstream` is missing: where requests go", help);
        }
        let usual = limits::DEFAULT_LISTEN.parse().ok();
        let listen = usual.and_then(|usual| listen.or_default(usual, whole));
        if let Some(listen) = &listen {
            addresses::check_loops(listen, admin.given(), upstream.given(), reader.mistakes);
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
fn store(reader: &mut Reader<'_>, directory: &Path, whole: &SourceLocation) -> Option<StoreUrl> {
    let setting = reader.text("store", "\"sqlite://onceward.db\"");
    if setting.is_missing() {
        let text = format!("`store` is not said: {}", limits::DEFAULT_STORE);
        reader.mistakes.note(whole, text);
    }
    let said = setting.or_default(limits::DEFAULT_STORE.to_owned(), whole)?;
    let directory = match said.place {
        SourceLocation::Environment(_) | SourceLocation::Argument(_) => PathBuf::new(),
        _ => directory.to_owned(),
    };
    store::url(&said.value, &said.place, &directory, reader.mistakes)
}

/// Whoever has to correct the store is not told of its consequences as well.
fn commits(store: Option<&StoreUrl>, is_plain: bool) -> Commits {
    match store {
        Some(StoreUrl::Sqlite(_)) => Commits::No,
        Some(StoreUrl::Postgres(_)) if !is_plain => Commits::WithoutAnswer,
        Some(StoreUrl::Postgres(_)) | None => Commits::Whole,
    }
}

/// Operators see and change what belongs to all callers: nobody else may reach them by accident.
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
