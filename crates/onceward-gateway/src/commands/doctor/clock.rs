//! What the running gateway suspects of its store's clock, and an operator's word about it.

use std::{
    env,
    io::{self, Write as _},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    process::ExitCode,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Options,
    finding::{Findings, texts},
    reach::CONNECT_TIMEOUT,
    report::ago,
};
use crate::{
    commands::{
        arguments::load_or_explain,
        keys::AdminClient,
        terminal::{self, BoxError},
    },
    config::{Config, Role},
};

/// Asks the gateway, if one runs where the configuration or the command says.
pub(super) fn examine(options: &Options, config: &Config, findings: &mut Findings) {
    let configured = || Some(address(config, config.admin.filter(is_there)?));
    let Some(url) = options.admin.clone().or_else(configured) else { return };
    match asked(&url, &token_env(options, Some(config), Role::Read)) {
        Ok(document) if document["suspect"] == false => {}
        Ok(document) => {
            let ahead = ago(Duration::from_secs(document["ahead_seconds"].as_u64().unwrap_or(0)));
            let texts = texts(
                format!("the running gateway suspects its store's clock, which went {ahead} ahead"),
                "keys whose retention is over only by that get 503 `clock-suspect`: they ran before; \
                 nothing is swept meanwhile",
                format!(
                    "set the clock right (timedatectl set-ntp true); or, if it is right now: {}",
                    command(options)
                ),
            );
            findings.problem("clock-suspect", "clock", texts);
        }
        Err(error) => {
            let texts = texts(
                format!("the running gateway was not asked about its clock: {error}"),
                "if its clock jumped, clients get 503 `clock-suspect`, and this does not show it",
                "name it with --admin and --token-env; --offline leaves this out",
            );
            findings.note("clock-not-asked", "admin", texts);
        }
    }
}

/// `--clock-is-right`.
pub(super) fn trust(options: &Options, reason: &str) -> ExitCode {
    terminal::run(async {
        let document = trusted(options, reason).await?;
        match options.json {
            true => writeln!(io::stdout(), "{document:#}"),
            false => writeln!(io::stdout(), "{}", outcome(&document)),
        }?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn trusted(options: &Options, reason: &str) -> Result<Value, BoxError> {
    let (url, config) = match &options.admin {
        Some(url) => (url.clone(), None),
        None => {
            let advice = "; correct it, or name the gateway with --admin";
            let config = load_or_explain(&options.config, advice)?;
            let admin = config.admin.ok_or_else(|| {
                format!(
                    "{} has no `admin`, so that the command reaches no gateway; start the gateway \
                     anew: it trusts the clock that it finds",
                    options.config.display()
                )
            })?;
            (address(&config, admin), Some(config))
        }
    };
    let admin_client = AdminClient::there(&url, &token_env(options, config.as_ref(), Role::Purge))?;
    let answer = admin_client.post("/v1/clock/trust", &json!({ "reason": reason })).await;
    answer.map_err(|error| {
        format!("{url}: {error} (`onceward doctor` says whether it suspects its clock)").into()
    })
}

fn outcome(document: &Value) -> String {
    let was = match document["was_ahead_seconds"].as_u64() {
        Some(seconds @ 1..) => format!("it had gone {} ahead", ago(Duration::from_secs(seconds))),
        _ => "it was not suspected to be ahead".to_owned(),
    };
    let reference = document["operation"].as_str().unwrap_or_default();
    format!(
        "this gateway trusts its store's clock again; {was}. The trail: onceward keys show --operation {reference}"
    )
}

fn asked(url: &str, token_env: &str) -> Result<Value, BoxError> {
    let admin_client = AdminClient::there(url, token_env)?;
    let question = async { timeout(CONNECT_TIMEOUT * 2, admin_client.get("/v1/clock")).await };
    runtime()?.block_on(question).map_err(|_| "no answer in time")?
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn command(options: &Options) -> String {
    let place = match &options.admin {
        Some(url) => format!("--admin {url}"),
        None => format!("--config {}", options.config.display()),
    };
    format!("onceward doctor {place} --clock-is-right --reason \"…\"")
}

/// The variable of the command if it is set; else the least of the configured tokens that suffices, or the
/// one that may most: then the gateway says that it is not enough.
fn token_env(options: &Options, config: Option<&Config>, needed: Role) -> String {
    let is_set = |name: &str| env::var(name).is_ok_and(|value| !value.is_empty());
    let tokens = config.map(|config| &config.admin_tokens[..]).unwrap_or_default();
    let mut known: Vec<_> = tokens.iter().filter(|token| is_set(&token.token_env)).collect();
    known.sort_by_key(|token| token.role);
    let fitting = known.iter().find(|token| token.role >= needed).or(known.last());
    match fitting {
        Some(token) if !is_set(&options.token_env) => token.token_env.clone(),
        _ => options.token_env.clone(),
    }
}

fn address(config: &Config, admin: SocketAddr) -> String {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", local(admin))
}

fn local(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.is_ipv4() {
            true => Ipv4Addr::LOCALHOST.into(),
            false => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Whether a gateway listens there: it is no finding that none runs.
fn is_there(admin: &SocketAddr) -> bool {
    TcpStream::connect_timeout(&local(*admin), CONNECT_TIMEOUT).is_ok()
}
