//! Looks into the store as it is: how durable, how full, what is open, whether the clock fits.

mod messages;
mod names;
mod postgres;
mod redis;
mod sqlite;

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onceward::{
    Status, StoreError, Timestamp,
    message::QueueCondition,
    protocol::{Found, Unreadable},
    store::{Census, Filter, Order},
};
use tokio::time::timeout;

use super::{
    access,
    finding::{Findings, texts},
    report::ago,
};
use crate::{
    config::{Config, Guarantee, StoreUrl},
    records::Records,
};

/// How long others may keep the store to themselves, and one question may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Clocks differ by less; a sweep stops at the same distance.
const MARGIN: Duration = Duration::from_secs(60);

/// 2026 and 2100: this software is not older, and no clock is right that shows more.
const YEARS: [u64; 2] = [1_767_225_600, 4_102_444_800];

pub(super) struct StoreFindings {
    pub(super) promised: Promised,
    pub(super) census: Census,
    pub(super) oldest_unknown: Option<Duration>,
    pub(super) oldest_in_progress: Option<Duration>,
    pub(super) unreadable: Vec<Unreadable>,
    /// `None`: this store has no outbox, or did not say how it is.
    pub(super) outbox: Option<QueueCondition>,
}

pub(super) enum Promised {
    Sqlite(onceward::store::sqlite::Durability),
    Postgres(postgres::Server),
    Redis(onceward::store::redis::Durability),
    /// An engine that speaks PostgreSQL's protocol, and says nothing.
    Unseen,
}

/// `guarantee` against the class of the store.
pub(super) fn check_guarantee(
    config: &Config,
    seen: Option<&StoreFindings>,
    findings: &mut Findings,
) {
    let keeps = match (&config.store, seen.map(|seen| &seen.promised)) {
        (StoreUrl::Sqlite(_), _) => true,
        (_, Some(Promised::Postgres(server))) => server.is_strict,
        _ => false,
    };
    if config.guarantee == Guarantee::Relaxed && keeps {
        let texts = texts(
            "guarantee = \"relaxed\", though this store keeps what it acknowledges",
            "nothing now; but a store that may lose records would be accepted one day",
            "guarantee = \"strict\"",
        );
        findings.note("guarantee-relaxed", "guarantee", texts);
    }
}

/// Opens it without making or changing anything; `None`: it could not be looked into.
pub(super) fn examine(
    config: &Config,
    file: &Path,
    findings: &mut Findings,
) -> Option<StoreFindings> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(look_into(config, file, findings))
}

async fn look_into(config: &Config, file: &Path, findings: &mut Findings) -> Option<StoreFindings> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    check_year(now, findings);
    let keys = match config.keys() {
        Ok(keys) => keys,
        Err(error) => {
            let texts = texts(
                error,
                "the gateway does not start, and sealed answers cannot be opened",
                "set that variable; it was made with `openssl rand -base64 32`",
            );
            findings.problem("encryption-key-unset", "encryption", texts);
            return None;
        }
    };
    let seen = match &config.store {
        StoreUrl::Sqlite(path) => {
            access::store_file(path, findings);
            sqlite::examine(path, config, keys, findings).await
        }
        StoreUrl::Postgres(url) => postgres::examine(url, config, keys, findings).await,
        StoreUrl::Redis(url) => redis::examine(url, config, keys, findings).await,
    }?;
    check_clock(seen.census.last_write, now, findings);
    if let Some(condition) = &seen.outbox {
        messages::examine(config, &file.display().to_string(), condition, findings);
    }
    check_open(&seen, longest_run(config), file, findings);
    check_unreadable(&seen.unreadable, findings);
    Some(seen)
}

/// No claim is renewed for longer than its route's `max_run`, and then its lease ends.
fn longest_run(config: &Config) -> Duration {
    let runs = config.routes.iter().map(|route| route.max_run + route.lease);
    runs.max().unwrap_or_default()
}

/// Asks a store that was opened; `None`: it did not answer.
async fn look(
    config: &Config,
    store: &dyn Records,
    promised: Promised,
    findings: &mut Findings,
) -> Option<StoreFindings> {
    let reason = match timeout(STORE_TIMEOUT, ask(store, promised)).await {
        Ok(Ok(seen)) => {
            names::examine(config, store, findings).await;
            return Some(seen);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer in time".to_owned(),
    };
    let means = "clients get 503 `store-unavailable`, and nothing is run";
    findings.problem("store-fails", "store", texts(reason, means, "look again; check the disk"));
    None
}

async fn ask(store: &dyn Records, promised: Promised) -> Result<StoreFindings, StoreError> {
    Ok(StoreFindings {
        promised,
        census: store.census().await?,
        oldest_unknown: oldest(store, Status::Unknown).await?,
        oldest_in_progress: oldest(store, Status::InProgress).await?,
        unreadable: unreadable(store).await?,
        outbox: match store.outbox() {
            Some(outbox) => outbox.condition().await.ok(),
            None => None,
        },
    })
}

/// Why records cannot be read, among the oldest and the newest: keys go missing at either end.
async fn unreadable(store: &dyn Records) -> Result<Vec<Unreadable>, StoreError> {
    let mut why = Vec::new();
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let page =
            store.list(&Filter { order, limit: Filter::MAX_PAGE, ..Filter::default() }).await?;
        why.extend(page.listed.iter().filter_map(|listed| match listed.found {
            Found::Unreadable { why, .. } => Some(why),
            _ => None,
        }));
    }
    Ok(why)
}

fn check_unreadable(unreadable: &[Unreadable], findings: &mut Findings) {
    let has = |wanted| unreadable.contains(&wanted);
    if has(Unreadable::Sealed) {
        let texts = texts(
            "there are records that are sealed with a key that is not at hand",
            "their retries get `outcome-unknown`; nothing is lost while the key exists",
            "add the key that is missing to the file or variable of [encryption]",
        );
        findings.problem("store-sealed", "encryption", texts);
    }
    if has(Unreadable::Damaged) {
        let texts = texts(
            "there are records that do not match their checksum",
            "their retries get `outcome-unknown`",
            "find out by business data what became of them: onceward keys list; check the disk",
        );
        findings.problem("records-damaged", "store", texts);
    }
}

/// How long ago the oldest operation of a status was first claimed.
async fn oldest(store: &dyn Records, status: Status) -> Result<Option<Duration>, StoreError> {
    let mut filter = Filter { status: Some(status), limit: 1, ..Filter::default() };
    loop {
        let page = store.list(&filter).await?;
        for listed in page.listed {
            if let Found::Record(stored) = listed.found {
                return Ok(Some(stored.age()));
            }
        }
        // A page may be empty though there is more.
        let Some(next) = page.next else { return Ok(None) };
        filter.after = Some(next);
    }
}

fn check_clock(last_write: Option<Timestamp>, now: Duration, findings: &mut Findings) {
    let micros = last_write.map_or(0, Timestamp::unix_micros);
    let written = Duration::from_micros(u64::try_from(micros).unwrap_or_default());
    let ahead = written.saturating_sub(now);
    if ahead > MARGIN {
        let texts = texts(
            format!("the newest record is from the future, by {}", ago(ahead)),
            "leases and retentions are counted by this clock: once it is right again, answers are \
             forgotten too early or too late, and nothing is swept meanwhile",
            "correct the clock (timedatectl set-ntp true), then restart the gateway",
        );
        findings.problem("clock-behind", "clock", texts);
    }
}

/// The server's clock counts; this machine's is for tokens and logs.
fn check_clocks(server_time: Timestamp, findings: &mut Findings) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(server_time.unix_micros()).unwrap_or_default();
    let apart = Duration::from_micros(micros).abs_diff(now);
    if apart > MARGIN {
        let texts = texts(
            format!("the clocks of the server and of this machine differ by {}", ago(apart)),
            "leases and retentions are counted by the server's alone; tokens and dates in the log are \
             not",
            "correct the one that is wrong (timedatectl set-ntp true)",
        );
        findings.warning("clocks-differ", "clock", texts);
    }
}

fn check_year(now: Duration, findings: &mut Findings) {
    let [first, last] = YEARS;
    if !(first..last).contains(&now.as_secs()) {
        let texts = texts(
            "the clock of this machine shows a year that cannot be",
            "when it is corrected, all records seem new or all are forgotten: retries would run again",
            "correct the clock (timedatectl set-ntp true) before the gateway starts",
        );
        findings.problem("clock-wrong", "clock", texts);
    }
}

fn check_open(seen: &StoreFindings, longest_run: Duration, file: &Path, findings: &mut Findings) {
    let StoreFindings { census, oldest_unknown, oldest_in_progress, .. } = seen;
    let at_least = if census.is_complete { "" } else { "at least " };
    let list =
        |state: &str| format!("onceward keys list --config {} --state {state}", file.display());
    let aged = |oldest: &Option<Duration>| {
        oldest.map(|age| format!(", the oldest {} old", ago(age))).unwrap_or_default()
    };
    if census.unknown > 0 {
        let texts = texts(
            format!("{at_least}{} unknown outcomes{}", census.unknown, aged(oldest_unknown)),
            "they may have happened; the gateway refuses their retries until an operator says whether they did",
            list("unknown"),
        );
        findings.warning("unknown-operations", "store", texts);
    }
    if oldest_in_progress.is_some_and(|age| age > longest_run) {
        let texts = texts(
            format!("{at_least}{} operations run{}", census.in_progress, aged(oldest_in_progress)),
            "no run of a route takes that long: it is run again and again, or a claim is kept by hand; its \
             retries have to wait",
            list("in_progress"),
        );
        findings.warning("stuck-operations", "store", texts);
    }
    if census.interrupted > 0 {
        let texts = texts(
            format!("{at_least}{} operations were interrupted", census.interrupted),
            "their next retry runs them again; without one they stay as they are",
            list("interrupted"),
        );
        findings.note("interrupted-operations", "store", texts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    pub(super) fn found(look: impl FnOnce(&mut Findings)) -> Vec<(&'static str, Severity)> {
        let mut findings = Findings::default();
        look(&mut findings);
        findings.into_sorted().iter().map(|one| (one.code, one.severity)).collect()
    }

    #[test]
    fn a_year_that_cannot_be_is_a_problem() {
        let wrong = [("clock-wrong", Severity::Problem)];
        for (seconds, expected) in [
            (0, &wrong[..]),
            (1_767_225_599, &wrong),
            (1_800_000_000, &[]),
            (4_102_444_800, &wrong),
        ] {
            let now = Duration::from_secs(seconds);
            assert_eq!(found(|findings| check_year(now, findings)), expected, "{seconds}");
        }
    }

    #[test]
    fn what_runs_longer_than_any_route_allows_is_stuck() {
        const RUN: Duration = Duration::from_secs(630);
        for (age, expected) in
            [(RUN, vec![]), (2 * RUN, vec![("stuck-operations", Severity::Warning)])]
        {
            let seen = StoreFindings {
                promised: Promised::Sqlite(onceward::store::sqlite::Durability {
                    journal_mode: "wal".into(),
                    synchronous: 2,
                }),
                census: Census { in_progress: 1, is_complete: true, ..Census::default() },
                oldest_unknown: None,
                oldest_in_progress: Some(age),
                unreadable: Vec::new(),
                outbox: None,
            };
            let file = Path::new("onceward.toml");
            assert_eq!(
                found(|findings| check_open(&seen, RUN, file, findings)),
                expected,
                "{age:?}"
            );
        }
    }
}
