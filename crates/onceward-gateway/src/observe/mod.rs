//! What the gateway tells the people who run it: its log, and its traces.
//!
//! Metrics are counted where things happen: the gateway's own are in `metrics`, the others in
//! `onceward::telemetry`, which also has the names of events.

mod collector;
mod lines;
pub(crate) mod metrics;
pub(crate) mod traces;

use std::{
    env,
    io::{self, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use clap::ValueEnum;
use onceward::telemetry::{self, event};
use serde_json::json;
use tracing_subscriber::EnvFilter;

use lines::Lines;
pub(crate) use traces::{Parent, ServerSpan, UpstreamSpan};

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object for each line.
    Json,
}

/// The log and the traces of this process.
pub(crate) struct Observing {
    lines: Lines,
}

/// Begins to log: warnings and errors, or what `ONCEWARD_LOG` asks for, to standard error.
pub(crate) fn start(
    format: Option<LogFormat>,
    has_metrics: HasMetrics,
) -> Result<Observing, String> {
    if has_metrics == HasMetrics::No {
        telemetry::disable();
    }
    metrics::start();
    let format = format.map_or_else(said_format, Ok)?;
    IS_JSON.store(format == LogFormat::Json, Ordering::Relaxed);
    let filter = EnvFilter::try_from_env("ONCEWARD_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines =
        Lines::to_standard_error().map_err(|error| format!("nothing is logged: {error}"))?;
    let writer = lines.clone();
    // If no process reads them any more, they are dropped: complaining about that would panic.
    let events = tracing_subscriber::fmt().log_internal_errors(false);
    let events = events.with_env_filter(filter).with_writer(move || writer.clone());
    match format {
        LogFormat::Text => events.init(),
        LogFormat::Json => {
            events.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
    }
    Ok(Observing { lines })
}

/// Says something to the operator who started this process, also if nothing is logged; in the form of the log.
pub(crate) fn tell(text: &str) {
    let line = match IS_JSON.load(Ordering::Relaxed) {
        false => text.to_owned(),
        true => {
            let time = now();
            let event = event::NOTICE;
            json!({ "timestamp": time, "level": "INFO", "event": event, "message": text })
                .to_string()
        }
    };
    // Standard error may be closed; then no operator reads it.
    let _ = writeln!(io::stderr(), "{line}");
}

fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(since.as_micros()).unwrap_or_default();
    jiff::Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default()
}

/// Set once, before the first line.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Whether anything is counted; not, to measure what counting costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasMetrics {
    Yes,
    No,
}

impl Observing {
    /// Begins to trace, inside of the runtime, if the environment names a collector.
    pub(crate) fn trace(&self) -> Result<(), String> {
        traces::start()
    }

    /// Exports the spans that are left, inside of the runtime, for two seconds at most.
    pub(crate) async fn export(&self) {
        // The exporter has a thread of its own and needs the runtime: neither may wait for the other.
        let _ = tokio::task::spawn_blocking(traces::end).await;
    }

    /// Writes the lines that are left, for a second at most.
    pub(crate) fn end(&self) {
        self.lines.written();
    }
}

fn said_format() -> Result<LogFormat, String> {
    match env::var("ONCEWARD_LOG_FORMAT").as_deref() {
        Err(_) | Ok("" | "text") => Ok(LogFormat::Text),
        Ok("json") => Ok(LogFormat::Json),
        Ok(other) => Err(format!("`ONCEWARD_LOG_FORMAT` is {other:?}: say `text` or `json`")),
    }
}
