//! What the gateway tells the people who run it: its log, and its traces.
//!
//! Metrics are counted where things happen, in `onceward::telemetry`, which also has all names.

mod collector;
mod lines;
mod traces;

use std::env;

use clap::ValueEnum;
use onceward::telemetry;
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
    telemetry::gateway_started();
    let format = format.map_or_else(said_format, Ok)?;
    let filter = EnvFilter::try_from_env("ONCEWARD_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    let lines =
        Lines::to_standard_error().map_err(|error| format!("nothing is logged: {error}"))?;
    let writer = lines.clone();
    // If nobody reads them any more, they are dropped: complaining about that would panic.
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
