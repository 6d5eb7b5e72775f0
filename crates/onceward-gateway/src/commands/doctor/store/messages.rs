//! The outbox as the doctor finds it: who delivers, what is stuck, what keeps it from being swept.

use std::time::Duration;

use onceward::message::{QueueCondition, SinkCondition};

use super::super::{
    finding::{Findings, texts},
    report::ago,
};
use crate::config::{Config, Sink, StoreUrl, show_duration};

/// A sink that is behind by less than this is on its way.
const LATE: Duration = Duration::from_secs(60);

/// Relays sweep every quarter of a minute; what is older by more is not swept.
const SWEPT: Duration = Duration::from_secs(3600);

/// What `condition` means for this configuration.
pub(super) fn examine(
    config: &Config,
    file: &str,
    condition: &QueueCondition,
    findings: &mut Findings,
) {
    if let Some(alarm) = &condition.alarm {
        let mend = match config.store {
            StoreUrl::Postgres(_) => {
                format!("onceward relay rebase --config {file} --reason \"…\"")
            }
            StoreUrl::Sqlite(_) | StoreUrl::Redis(_) => {
                "do what it says; onceward migrate --help".to_owned()
            }
        };
        let means = "no relay delivers anything until it is mended; nothing is lost";
        findings.problem("outbox-alarm", "outbox", texts(alarm.clone(), means, mend));
    }
    for sink in &condition.sinks {
        let list = |state: &str| {
            format!("onceward messages list --config {file} --sink {} --state {state}", sink.name)
        };
        check_delivery(sink, findings);
        check_stuck(sink, &list, findings);
        let is_known = |known: &Sink| known.name == sink.name;
        if !config.sinks.is_empty() && !config.sinks.iter().any(is_known) && !is_delivered(sink) {
            let texts = texts(
                format!(
                    "the store has a sink \"{}\", which this configuration does not name",
                    sink.name
                ),
                "if no other relay delivers to it, no message is ever swept, and the store grows",
                format!(
                    "onceward messages remove-sink {} --config {file} --reason \"…\"; or add its [[sink]]",
                    sink.name
                ),
            );
            findings.warning("sink-unconfigured", &about(sink), texts);
        }
    }
    check_configured(config, condition, findings);
    check_retention(config, condition, findings);
}

fn about(sink: &SinkCondition) -> String {
    format!("sink {}", sink.name)
}

fn is_delivered(sink: &SinkCondition) -> bool {
    sink.lanes.iter().any(|lane| lane.relay.is_some())
}

fn check_delivery(sink: &SinkCondition, findings: &mut Findings) {
    let stuck = sink.held + sink.dead;
    let lag = sink.lag.saturating_sub(stuck + sink.scheduled);
    let oldest = sink.oldest_waiting.unwrap_or_default();
    let late = || format!("{lag} messages wait, the oldest {} old", ago(oldest));
    if !is_delivered(sink) && lag > 0 {
        let texts = texts(
            format!("no relay delivers to \"{}\": {}", sink.name, late()),
            "they are kept, and sent when a relay runs",
            "start one: onceward relay",
        );
        findings.warning("sink-not-relayed", &about(sink), texts);
    } else if lag > 0 && oldest > LATE && stuck == 0 {
        let texts = texts(
            format!("\"{}\" is behind: {}", sink.name, late()),
            "the sink is down or slower than its producers, or an early message fails again and again",
            "look at the relay's log and at onceward_relay_… in its metrics; onceward messages list --state waiting",
        );
        findings.note("sink-late", &about(sink), texts);
    }
}

fn check_stuck(sink: &SinkCondition, list: &dyn Fn(&str) -> String, findings: &mut Findings) {
    if sink.dead > 0 {
        let texts = texts(
            format!("{} dead letters at \"{}\"", sink.dead, sink.name),
            "they are not sent again by themselves, and unless the sink skips dead letters, later messages of their \
             aggregates wait behind them",
            format!("{}; then onceward messages redrive or discard", list("dead")),
        );
        findings.warning("dead-letters", &about(sink), texts);
    }
    if sink.held > 0 {
        let texts = texts(
            format!("{} messages are held for \"{}\"", sink.held, sink.name),
            "their endpoint answered that it wants no more (410): they wait for an operator",
            format!("{}; then onceward messages redrive or discard", list("held")),
        );
        findings.warning("messages-held", &about(sink), texts);
    }
}

/// Sinks that no relay has made yet.
fn check_configured(config: &Config, condition: &QueueCondition, findings: &mut Findings) {
    for sink in &config.sinks {
        if condition.sinks.iter().all(|known| known.name != sink.name) {
            let texts = texts(
                format!("the store does not know the sink \"{}\" yet", sink.name),
                "it begins when its relay starts first: with what commits from then on, unless it says from = \
                 \"oldest\"",
                "start it before producers: onceward relay",
            );
            findings.note("sink-new", &format!("sink {}", sink.name), texts);
        }
    }
}

fn check_retention(config: &Config, condition: &QueueCondition, findings: &mut Findings) {
    let retain = config.relay.retain;
    let Some(oldest) = condition.oldest.filter(|oldest| *oldest > retain + SWEPT) else { return };
    // What waits is kept, however old it is.
    let waits = condition.sinks.iter().filter_map(|sink| sink.oldest_waiting).max();
    if condition.sinks.is_empty() || waits.is_some_and(|waits| waits >= oldest) {
        return;
    }
    let texts = texts(
        format!(
            "the oldest message is {} old, and messages are kept for {}",
            ago(oldest),
            show_duration(retain)
        ),
        "nothing sweeps the outbox: no relay runs, or a sink that no relay delivers to keeps everything",
        "onceward messages sinks; remove what is no longer there with onceward messages remove-sink",
    );
    findings.warning("outbox-not-swept", "outbox", texts);
}
