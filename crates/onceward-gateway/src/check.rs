//! `onceward check`: says everything that is wrong with a configuration, before it is served.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};

use crate::config::{Config, Mistake, Overrides, Place, Route, Severity, Sources};

/// Checks a configuration and shows what it means, without serving anything.
///
/// All mistakes are reported at once, with their lines and what to write instead. Environment
/// variables that replace values of the file (`ONCEWARD_LISTEN`, `ONCEWARD_ADMIN`,
/// `ONCEWARD_UPSTREAM`, `ONCEWARD_STORE`, `ONCEWARD_GUARANTEE`, `ONCEWARD_TRUSTED_PROXIES`) count
/// here as they do for the gateway. Nothing is opened or connected to; files that are named must be
/// there.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward check onceward.toml           what it means, or what is wrong with it
  onceward check onceward.toml --json    the same for machines, as in a deployment

It ends with 0 if the configuration is valid, also with warnings and notes, and with 1 if not.")]
pub(crate) struct Options {
    /// The configuration.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Writes one JSON document to standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let sources = Sources::gather(Some(&options.file), Overrides::default());
    let result = sources.and_then(|sources| Config::load(&sources));
    let file = options.file.display().to_string();
    let written = match (&result, options.json) {
        (result, true) => writeln!(io::stdout(), "{:#}", document(&file, result.as_ref())),
        (Ok(config), false) => summary(&mut io::stdout().lock(), &file, config),
        (Err(mistakes), false) => refusal(&mut io::stderr().lock(), &file, mistakes),
    };
    match (result, written) {
        (Ok(_), Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn refusal(out: &mut dyn Write, file: &str, mistakes: &[Mistake]) -> io::Result<()> {
    for mistake in mistakes {
        writeln!(out, "{mistake}")?;
    }
    let errors = mistakes.iter().filter(|mistake| mistake.severity == Severity::Error).count();
    let word = if errors == 1 { "mistake" } else { "mistakes" };
    writeln!(out, "{file}: {errors} {word}; nothing would be served with it")
}

fn summary(out: &mut dyn Write, file: &str, config: &Config) -> io::Result<()> {
    let guarantee = config.guarantee.as_str();
    writeln!(out, "{file}: valid")?;
    writeln!(
        out,
        "  listen    {}{}",
        config.listen,
        if config.tls.is_some() { " (TLS)" } else { "" }
    )?;
    match config.admin {
        Some(admin) => writeln!(out, "  admin     {admin}")?,
        None => writeln!(out, "  admin     none")?,
    }
    writeln!(out, "  upstream  {}", upstream(config))?;
    writeln!(out, "  store     {} ({guarantee})", config.store)?;
    if config.encryption.is_some() {
        writeln!(out, "  encryption on")?;
    }
    for route in &config.routes {
        writeln!(out, "  route     {}", route_line(route))?;
    }
    for note in &config.notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

/// As it is written: without the slash that every URL has behind its host.
fn upstream(config: &Config) -> String {
    config.upstream.to_string().trim_end_matches('/').to_owned()
}

fn route_line(route: &Route) -> String {
    let name = route.name.as_ref().map(|name| format!(" name={name}")).unwrap_or_default();
    let head = format!("{} {}{name}", route.methods_text(), route.pattern.text);
    if !route.takes_keys() {
        return format!("{head} key=off");
    }
    let keep = if route.status_only { " keep=status" } else { "" };
    let redact = if route.redact.is_empty() { "" } else { " redacted" };
    format!(
        "{head} key={} effect={} profile={} scope={} authorize={} tier={}{keep}{redact}",
        route.key.as_str(),
        route.effect.as_str(),
        route.profile_in_force().as_str(),
        route.scope_text(),
        route.authorize,
        route.effect.tier()
    )
}

fn document(file: &str, result: Result<&Config, &Vec<Mistake>>) -> Value {
    let (config, mistakes) = match result {
        Ok(config) => (config_document(config), &config.notes),
        Err(mistakes) => (Value::Null, mistakes),
    };
    json!({
        "file": file,
        "valid": result.is_ok(),
        "mistakes": mistakes.iter().map(mistake_document).collect::<Vec<_>>(),
        "config": config,
    })
}

fn mistake_document(mistake: &Mistake) -> Value {
    let (line, column) = match &mistake.place {
        Place::Line { line, column, .. } => (Some(line), Some(column)),
        _ => (None, None),
    };
    json!({
        "severity": mistake.severity.as_str(),
        "place": mistake.place.to_string(),
        "line": line,
        "column": column,
        "message": mistake.message,
        "help": mistake.help,
    })
}

pub(crate) fn config_document(config: &Config) -> Value {
    json!({
        "listen": config.listen.to_string(),
        "admin": config.admin.map(|admin| admin.to_string()),
        "upstream": upstream(config),
        "store": config.store.to_string(),
        "guarantee": config.guarantee.as_str(),
        "tls": config.tls.is_some(),
        "encryption": config.encryption.is_some(),
        "routes": config.routes.iter().map(route_document).collect::<Vec<_>>(),
    })
}

fn route_document(route: &Route) -> Value {
    let methods: Vec<_> = route.methods.iter().map(http::Method::as_str).collect();
    let scope: Vec<_> = route.scope.iter().map(ToString::to_string).collect();
    json!({
        "methods": methods,
        "path": route.pattern.text,
        "name": route.name,
        "key": route.key.as_str(),
        "effect": route.effect.as_str(),
        "profile": route.profile_in_force().as_str(),
        "scope": scope,
        "authorize": route.authorize.to_string(),
        "in_flight": route.in_flight.as_str(),
        "tier": route.effect.tier(),
        "keep": route.keep_text(),
        "redact_headers": texts(&route.redact.headers),
        "redact_json": texts(&route.redact.json),
        "max_open": route.max_open,
    })
}

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}
