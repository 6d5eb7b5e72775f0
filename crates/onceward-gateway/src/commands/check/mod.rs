//! `onceward check`: says everything that is wrong with a configuration, before it is served.

mod document;
mod reference;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde_json::{Value, json};

use crate::config::{
    Config, Delivery, Mistake, Overrides, RetryRule, Route, Severity, SourceLocation, Sources,
    USUAL_FILE, priority_text, show_duration,
};

pub(crate) use document::{capabilities, config_document};

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
  onceward check                        what ./onceward.toml means, or what is wrong with it
  onceward check gateway.toml --json    the same of another file, for machines, as in a deployment
  onceward check --options              every option that a configuration may have

It ends with 0 if the configuration is valid, also with warnings and notes, and with 1 if not.")]
pub(crate) struct Options {
    /// The configuration.
    #[arg(value_name = "FILE", default_value = USUAL_FILE)]
    file: PathBuf,
    /// Prints every option of a configuration with its range and its default, instead of checking one.
    #[arg(long, conflicts_with_all = ["file", "json"])]
    options: bool,
    /// Writes one JSON document to standard output.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if options.options {
        let written = io::stdout().write_all(reference::reference().as_bytes());
        return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let sources = Sources::gather(Some(&options.file), Overrides::default());
    let result = sources.and_then(|sources| Config::load_any(&sources));
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

pub(crate) fn refusal(out: &mut dyn Write, file: &str, mistakes: &[Mistake]) -> io::Result<()> {
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
    if config.serves {
        let tls = if config.tls.is_some() { " (TLS)" } else { "" };
        writeln!(out, "  listen    {}{tls}", config.listen)?;
    }
    match config.admin {
        Some(admin) => writeln!(out, "  admin     {admin}")?,
        None => writeln!(out, "  admin     none")?,
    }
    if config.serves {
        writeln!(out, "  upstream  {}", document::upstream(config))?;
    }
    writeln!(out, "  store     {} ({guarantee})", config.store)?;
    if config.encryption.is_some() {
        writeln!(out, "  encryption on")?;
    }
    for route in &config.routes {
        writeln!(out, "  route     {}", route_line(route))?;
    }
    for sink in &config.sinks {
        writeln!(out, "  sink      {sink}")?;
    }
    for note in &config.notes {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

fn route_line(route: &Route) -> String {
    let name = route.name.as_ref().map(|name| format!(" name={name}")).unwrap_or_default();
    let head = format!("{}{name}", route.match_text());
    let sent = sent(route);
    if !route.takes_keys() {
        return format!("{head} key=off{sent}");
    }
    let keep = if route.status_only { " keep=status" } else { "" };
    let redact = if route.redact().is_empty() { "" } else { " redacted" };
    format!(
        "{head} key={} effect={} profile={} scope={} authorize={} in_flight={} timeout={} retain={} \
         lease={} tier={}{keep}{redact}{sent}",
        route.key.as_str(),
        route.effect.as_str(),
        route.profile_text(),
        route.scope_text(),
        route.authorize,
        route.in_flight.as_str(),
        show_duration(route.timeout),
        show_duration(route.retain),
        show_duration(route.lease),
        route.effect.tier()
    )
}

/// What is not as usual about how its requests are sent on.
fn sent(route: &Route) -> String {
    let (delivery, usual) = (&route.delivery, Delivery::default());
    let mut said = String::new();
    if delivery.retry != RetryRule::Off {
        said += &format!(" retry={} attempts={}", delivery.retry.as_str(), delivery.attempts);
        if delivery.backoff != usual.backoff {
            said += &format!(" backoff={}", delivery.backoff);
        }
    }
    if delivery.priority != usual.priority {
        said += &format!(" priority={}", priority_text(delivery.priority));
    }
    if let Some(limit) = delivery.limit {
        said += &format!(" limit={limit}");
    }
    for (word, is_so) in [
        (" breaker=off", !delivery.breaker),
        (" hedge", delivery.hedge),
        (" fallback", delivery.fallback.is_some()),
    ] {
        said += if is_so { word } else { "" };
    }
    said
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

pub(crate) fn mistake_document(mistake: &Mistake) -> Value {
    let (line, column) = match &mistake.place {
        SourceLocation::Line { line, column, .. } => (Some(line), Some(column)),
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
