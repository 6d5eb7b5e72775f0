//! What the doctor says, for people and for machines.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use super::{
    finding::{Finding, Severity},
    promise::Promise,
    store::{Promised, StoreFindings},
};
use crate::{
    commands::{check::mistake_document, terminal::counted},
    config::{Config, Mistake, Route, Severity as Mistaken, show_duration},
};

pub(super) struct Report {
    pub(super) file: String,
    pub(super) config: Config,
    /// `None`: it could not be looked into, and a finding says why.
    pub(super) store: Option<StoreFindings>,
    pub(super) findings: Vec<Finding>,
}

/// The document for a configuration that is wrong: what `onceward check` says.
pub(super) fn refused(file: &str, mistakes: &[Mistake]) -> Value {
    json!({
        "file": file,
        "valid": false,
        "healthy": false,
        "check": mistakes.iter().map(mistake_document).collect::<Vec<_>>(),
        "store": null,
        "routes": [],
        "findings": [],
    })
}

impl Report {
    pub(super) fn is_healthy(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity != Severity::Problem)
    }

    pub(super) fn document(&self) -> Value {
        let is_strict = self.config.is_strict();
        json!({
            "file": self.file,
            "valid": true,
            "healthy": self.is_healthy(),
            "check": self.config.notes.iter().map(mistake_document).collect::<Vec<_>>(),
            "store": store_document(&self.config, self.store.as_ref()),
            "routes": self.config.routes.iter().map(|route| route_document(route, is_strict)).collect::<Vec<_>>(),
            "findings": self.findings,
        })
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

fn route_document(route: &Route, is_strict: bool) -> Value {
    let Promise { tier, promise, why } = Promise::of(route, is_strict);
    let (matched, name) = (route.match_text(), &route.name);
    json!({ "match": matched, "name": name, "tier": tier, "promise": promise, "why": why })
}

fn store_document(config: &Config, seen: Option<&StoreFindings>) -> Value {
    let url = config.store.to_string();
    let Some(StoreFindings { promised, census, oldest_unknown, .. }) = seen else {
        return json!({ "url": url, "seen": false });
    };
    let last_write = census
        .last_write
        .and_then(|at| jiff::Timestamp::from_microsecond(at.unix_micros()).ok())
        .map(|at| at.to_string());
    let mut document = json!({
        "url": url,
        "seen": true,
        "class": class(config),
        "in_progress": census.in_progress,
        "interrupted": census.interrupted,
        "failed_retryable": census.failed_retryable,
        "unknown": census.unknown,
        "counted_all": census.is_complete,
        "oldest_open_seconds": census.oldest_open.map(|age| age.as_secs()),
        "oldest_unknown_seconds": oldest_unknown.map(|age| age.as_secs()),
        "last_write": last_write,
        "file_bytes": census.file_bytes,
        "log_bytes": census.log_bytes,
        "free_bytes": census.free_bytes,
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut document, promised_document(promised))
    {
        all.extend(more);
    }
    document
}

fn promised_document(promised: &Promised) -> Value {
    match promised {
        Promised::Sqlite(durability) => json!({
            "journal_mode": durability.journal_mode,
            "synchronous": durability.synchronous,
        }),
        Promised::Postgres(server) => json!({
            "server_version": server.durability.version,
            "fsync": server.durability.fsync,
            "full_page_writes": server.durability.full_page_writes,
            "synchronous_commit": server.durability.synchronous_commit,
            "synchronous_standby_names": server.durability.standbys,
            "has_replicas": server.durability.has_replicas,
            "hot_percent": server.hot_percent(),
            "live_rows": server.condition.live_rows,
            "dead_rows": server.condition.dead_rows,
            "services": server.condition.services,
        }),
        Promised::Redis(server) => json!({
            "server": server.kind,
            "server_version": server.version,
            "is_cluster": server.is_cluster,
            "primaries": server.primaries,
            "maxmemory": server.max_memory,
            "used_memory": server.used_memory,
            "maxmemory_policy": server.max_memory_policy,
            "appendonly": server.appends,
            "appendfsync": server.append_fsync,
            "replicas": server.replicas,
            "min_replicas_to_write": server.min_replicas,
            "losses": server.losses(),
        }),
        Promised::Unseen => json!({ "dialect": "wire" }),
    }
}

fn class(config: &Config) -> &'static str {
    if config.is_strict() { "strict" } else { "relaxed" }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Severity::ALL.map(|severity| counted(self.count(severity), severity.as_str()));
        writeln!(formatter, "{}: {}", self.file, counts.join(", "))?;
        writeln!(formatter, "\n{:8} {}", "store", self.store_line())?;
        if let Some(StoreFindings { promised: Promised::Redis(server), .. }) = &self.store {
            for loss in server.losses() {
                writeln!(formatter, "  {:6} {loss}", "loss")?;
            }
        }
        let notes = &self.config.notes;
        let warnings = notes.iter().filter(|note| note.severity == Mistaken::Warning).count();
        if warnings > 0 {
            let warnings = counted(warnings, "warning");
            writeln!(formatter, "{:8} {warnings}; run: onceward check {}", "check", self.file)?;
        }
        for route in &self.config.routes {
            let Promise { tier, promise, why } = Promise::of(route, self.config.is_strict());
            let name = route.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
            writeln!(formatter, "\n{:8} {}{name}", "route", route.match_text())?;
            let tier =
                if tier == "none" { promise.to_owned() } else { format!("{tier}, {promise}") };
            write!(formatter, "  {:6} {tier}\n  {:6} {why}\n", "tier", "why")?;
        }
        for Finding { severity, code, about, what, means, mend } in &self.findings {
            writeln!(formatter, "\n{:8} {what} [{code}]", severity.as_str())?;
            writeln!(formatter, "  {:6} {}", "about", about.join("; "))?;
            write!(formatter, "  {:6} {means}\n  {:6} {mend}\n", "means", "mend")?;
        }
        Ok(())
    }
}

impl Report {
    fn store_line(&self) -> String {
        let url = &self.config.store;
        let Some(StoreFindings { promised, census, .. }) = &self.store else {
            return format!("{url}: not looked into");
        };
        let free = census.free_bytes.map(|free| format!(", {} MiB free", free >> 20));
        format!(
            "{url}: {} ({}), {} KiB{}",
            class(&self.config),
            promised_line(promised),
            (census.file_bytes + census.log_bytes) >> 10,
            free.unwrap_or_default(),
        )
    }
}

fn promised_line(promised: &Promised) -> String {
    match promised {
        Promised::Sqlite(durability) => {
            let synchronous = match durability.synchronous {
                0 => "OFF",
                1 => "NORMAL",
                2 => "FULL",
                _ => "EXTRA",
            };
            format!("journal_mode={}, synchronous={synchronous}", durability.journal_mode)
        }
        Promised::Postgres(server) => {
            let standbys = match server.durability.standbys.as_str() {
                "" => "no standby".to_owned(),
                names => format!("synchronous_standby_names={names}"),
            };
            let fsync = if server.durability.fsync { "on" } else { "off" };
            format!("PostgreSQL {}, fsync={fsync}, {standbys}", server.durability.version)
        }
        Promised::Redis(server) => {
            let kind = if server.kind == "valkey" { "Valkey" } else { "Redis" };
            let log = match (server.appends, server.append_fsync.as_deref()) {
                (Some(true), Some(fsync)) => format!("appendfsync={fsync}"),
                (Some(true), None) => "appendonly=yes".to_owned(),
                (Some(false), _) => "appendonly=no".to_owned(),
                (None, _) => "no word of its log".to_owned(),
            };
            let replicas =
                counted(usize::try_from(server.replicas).unwrap_or(usize::MAX), "replica");
            let primaries = match server.is_cluster {
                true => format!(", cluster of {} primaries", server.primaries),
                false => String::new(),
            };
            format!("{kind} {}{primaries}, {log}, {replicas}", server.version)
        }
        Promised::Unseen => "as configured; the server cannot be asked".to_owned(),
    }
}

/// A length of time for people: in the largest unit that fits once.
pub(super) fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    let unit = [86_400, 3_600, 60].into_iter().find(|unit| seconds >= *unit).unwrap_or(1);
    show_duration(Duration::from_secs(seconds / unit * unit))
}
