//! Several sources as one, and files that no operator would write.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use onceward::{Effect, protocol::Terms};

use super::{
    Authorize, Config, Guarantee, KeyRule, Mistake, Overrides, ScopePart, Sources, StoreUrl,
    schema::limits,
};
use crate::commands::init::template;

const FILE: &str = r#"
listen = "127.0.0.1:1"
upstream = "http://file:1"
store = "sqlite://file.db"
[[route]]
match = "POST /v1/charges"
scope = ["secret:x-api-key"]
authorize = "none"
"#;

fn sources(file: Option<&str>, environment: &[(&str, &str)], overrides: Overrides) -> Sources {
    let own = |text: &str| text.to_owned();
    Sources {
        file: file.map(|text| (PathBuf::from("o.toml"), own(text))),
        environment: environment.iter().map(|(name, value)| (own(name), own(value))).collect(),
        overrides,
        sinks: Vec::new(),
    }
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn shown(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(|mistake| format!("{mistake}\n")).collect()
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_the_file() {
    let environment = [
        ("ONCEWARD_LISTEN", "127.0.0.1:2"),
        ("ONCEWARD_UPSTREAM", "http://environment:1"),
        ("ONCEWARD_GUARANTEE", "relaxed"),
        ("ONCEWARD_TRUSTED_PROXIES", "10.0.0.0/8, ::1"),
        ("ONCEWARD_STORE", ""),
    ];
    let overrides = Overrides {
        listen: Some("127.0.0.1:3".to_owned()),
        admin: Some("127.0.0.1:4".to_owned()),
        ..Overrides::default()
    };
    let config = Config::load(&sources(Some(FILE), &environment, overrides)).unwrap();
    assert_eq!(config.listen, address(3));
    assert_eq!(config.admin, Some(address(4)));
    assert_eq!(config.upstream, "http://environment:1/");
    assert_eq!(config.store, StoreUrl::Sqlite("file.db".into()), "an empty variable is none");
    assert_eq!(config.guarantee, Guarantee::Relaxed);
    assert_eq!(config.trusted_proxies.len(), 2);
    let config =
        Config::load(&sources(Some(FILE), &environment[..1], Overrides::default())).unwrap();
    assert_eq!((config.listen, config.admin), (address(2), None));
    let config = Config::load(&sources(Some(FILE), &[], Overrides::default())).unwrap();
    assert_eq!(config.listen, address(1));
}

#[test]
fn a_wrong_value_that_is_replaced_harms_nobody() {
    let file = FILE.replace("http://file:1", "nonsense");
    let overrides =
        Overrides { upstream: Some("http://right:1".to_owned()), ..Overrides::default() };
    assert!(Config::load(&sources(Some(&file), &[], overrides)).is_ok());
}

#[test]
fn three_arguments_are_enough_to_start() {
    let overrides = Overrides {
        upstream: Some("http://127.0.0.1:3000".to_owned()),
        scope: vec!["secret:x-api-key".to_owned(), "json:/tenant".to_owned()],
        authorize: Some("none".to_owned()),
        ..Overrides::default()
    };
    let config = Config::load(&sources(None, &[], overrides)).unwrap();
    assert_eq!(config.listen, address(8080));
    assert_eq!(config.store, StoreUrl::Sqlite("onceward.db".into()));
    let [route] = config.routes.as_slice() else { panic!("one route") };
    assert_eq!((route.key, route.effect), (KeyRule::Optional, Effect::External));
    assert_eq!(route.scope.len(), 2);
    for (method, path, matches) in [
        (http::Method::POST, "/", true),
        (http::Method::PATCH, "/v1/charges/7", true),
        (http::Method::PUT, "/v1", false),
        (http::Method::GET, "/v1", false),
    ] {
        assert_eq!(route.matches(&method, path).is_some(), matches, "{method} {path}");
    }
    let notes = shown(&config.notes);
    for part in ["`listen` is not said: 127.0.0.1:8080", "sqlite://onceward.db", "/{*rest}"] {
        assert!(notes.contains(part), "{notes}");
    }
}

#[test]
fn without_a_file_everything_that_is_missing_is_asked_for() {
    let mistakes = Config::load(&sources(None, &[], Overrides::default())).unwrap_err();
    let said = shown(&mistakes);
    for part in ["--upstream", "say --scope: choose of", "say --authorize: choose of"] {
        assert!(said.contains(part), "{said}");
    }
    let overrides = Overrides { scope: vec!["jwt:sub".to_owned()], ..Overrides::default() };
    let said = shown(&Config::load(&sources(None, &[], overrides)).unwrap_err());
    assert!(said.contains("argument --scope: error: a token can be verified only with [jwt]"));
}

#[test]
fn scope_and_authorize_of_the_command_line_replace_those_of_every_route() {
    let overrides = Overrides {
        scope: vec!["global".to_owned()],
        authorize: Some("http://127.0.0.1:9/may".to_owned()),
        ..Overrides::default()
    };
    let config = Config::load(&sources(Some(FILE), &[], overrides)).unwrap();
    assert_eq!(config.routes[0].scope, [ScopePart::Global]);
    assert!(matches!(config.routes[0].authorize, Authorize::Url(_)));
    assert!(shown(&config.notes).contains("argument --scope: warning: it replaces"));
}

#[test]
fn a_long_lease_makes_a_long_run() {
    let file = format!("{FILE}lease = \"20m\"\n");
    let config = Config::load(&sources(Some(&file), &[], Overrides::default())).unwrap();
    assert_eq!(config.routes[0].max_run, Duration::from_secs(20 * 60));
    let file = format!("{FILE}max_response = \"1KiB\"\n");
    let config = Config::load(&sources(Some(&file), &[], Overrides::default())).unwrap();
    assert_eq!(
        config.routes[0].max_inline(),
        1024,
        "the library takes no more than is kept at all"
    );
}

#[test]
fn the_defaults_that_a_new_file_shows_are_the_defaults() {
    let written = template();
    let uncommented = |line: &str| match line.strip_prefix('#') {
        Some(option) if option.starts_with(|first: char| first.is_alphabetic()) => {
            option.to_owned()
        }
        _ => line.to_owned(),
    };
    let said: Vec<_> = written.lines().map(uncommented).collect();
    let all = |text: &str| {
        let sources = sources(Some(text), &[], Overrides::default());
        let mut config =
            Config::load(&sources).unwrap_or_else(|mistakes| panic!("{}", shown(&mistakes)));
        for route in &mut config.routes {
            route.profile = route.profile_in_force();
        }
        config.notes.clear();
        format!("{config:#?}")
    };
    assert_eq!(all(&written), all(&said.join("\n")));
}

#[test]
fn the_defaults_of_times_are_those_of_the_library() {
    let terms = Terms::of(Effect::External).build().unwrap();
    assert_eq!(terms.lease(), limits::DEFAULT_LEASE);
    assert_eq!(terms.max_run(), limits::DEFAULT_MAX_RUN);
    assert_eq!(terms.retain(), limits::DEFAULT_RETAIN);
}

/// Pieces of configurations, and pieces of nothing.
const PIECES: [&str; 47] = [
    "listen",
    "upstream",
    "store",
    "tls",
    "jwt",
    "route",
    "match",
    "scope",
    "lease",
    "retain",
    "name",
    "defaults",
    "rebuild",
    "not_applied",
    "final",
    "key_from",
    "key_header",
    "trusted_proxies",
    " = ",
    " = ",
    " = ",
    "[",
    "]",
    "[[",
    "]]",
    "\n",
    "\n",
    "\n",
    "\"",
    "\"\"\"",
    "'",
    "{",
    "}",
    ".",
    ",",
    "#",
    "0",
    "99999999999999999999",
    "-1",
    "\"POST /{a}/%4\"",
    "\"GET,é /{*r}/x\"",
    "\"30s\"",
    "\"sqlite://\"",
    "\"::/0\"",
    "é",
    "\u{0}",
    "\r\n",
];

#[test]
fn garbage_is_refused_and_never_panics() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let length = random.usize(0..30);
        let text: String = (0..length).map(|_| PIECES[random.usize(0..PIECES.len())]).collect();
        let mistakes = Config::load(&sources(Some(&text), &[], Overrides::default())).unwrap_err();
        assert!(mistakes.iter().all(|mistake| !mistake.to_string().is_empty()));
    }
}

#[test]
fn a_file_with_any_damage_never_panics() {
    let file = template().replace("\n#", "\n");
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..3_000 {
        let mut letters: Vec<char> = FILE.chars().chain(file.chars().take(400)).collect();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(0..letters.len());
            match random.u8(0..3) {
                0 => drop(letters.remove(at)),
                1 => letters.insert(at, random.char(..)),
                _ => letters[at] = random.char('!'..'~'),
            }
        }
        let text: String = letters.into_iter().collect();
        let (path, value) = (random.char(..).to_string() + &text, text.clone());
        let _ = super::has_dot_segments(&path);
        let _ = Config::load(&sources(
            Some(&text),
            &[("ONCEWARD_STORE", &value)],
            Overrides::default(),
        ));
    }
}

#[test]
fn what_is_accepted_is_accepted_by_the_library() {
    let choices: [&[&str]; 10] = [
        &[
            "",
            "effect = \"repeatable\"\nrerun_within = \"1m\"\n",
            "effect = \"external\"\n",
            "effect = \"transactional\"\n",
        ],
        &["", "profile = \"strict\"\n", "profile = \"stripe\"\n", "profile = \"rerun\"\n"],
        &["", "on_500 = \"hold\"\n"],
        &["", "released = [409]\n", "released = [429]\nnot_applied = [503]\n"],
        &["", "final = [429]\n", "final = [409, 503]\n"],
        &["", "lease = \"100ms\"\n", "lease = \"2m\"\n", "lease = \"24h\"\n"],
        &["", "retain = \"1s\"\n", "retain = \"3000d\"\n"],
        &["", "max_run = \"1m\"\n"],
        &["", "unknown_retain = \"1d\"\n", "unknown_retain = \"never\"\n"],
        &["", "retry_window = \"2d\"\n"],
    ];
    let mut random = fastrand::Rng::with_seed(13);
    let mut accepted = 0;
    for _ in 0..2_000 {
        let mut text = FILE.to_owned();
        text.extend(choices.iter().map(|lines| lines[random.usize(0..lines.len())]));
        let stores = ["postgres://shop@db/shop", "sqlite://file.db"];
        let store = [("ONCEWARD_STORE", stores[random.usize(0..2)])];
        match Config::load(&sources(Some(&text), &store, Overrides::default())) {
            Ok(_) => accepted += 1,
            // The library's own words would mean that a check of ours is missing.
            Err(mistakes) => assert!(!shown(&mistakes).contains("as the message says"), "{text}"),
        }
    }
    assert!(accepted > 50, "{accepted}");
}
