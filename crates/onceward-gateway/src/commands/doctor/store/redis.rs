//! Looks at a Redis or Valkey server: whether it can be used, and what can be lost with its settings.

use std::sync::Arc;

use onceward::{
    seal::Keyring,
    store::redis::{Durability, OpenError, RedisStore},
};

use super::{Promised, STORE_TIMEOUT, StoreFindings, check_clocks, look};
use crate::{
    commands::doctor::finding::{Findings, texts},
    config::{Config, RedisUrl},
};

const NO_EVICTION: &str = "noeviction";

pub(super) async fn examine(
    url: &RedisUrl,
    config: &Config,
    keys: Option<Arc<Keyring>>,
    findings: &mut Findings,
) -> Option<StoreFindings> {
    let refuse = |error: &OpenError, findings: &mut Findings| {
        refused(error, findings);
        None
    };
    let builder = match RedisStore::builder(url.with_password()) {
        Ok(builder) => builder.accept_relaxed(),
        Err(error) => return refuse(&error, findings),
    };
    // Also of a server that cannot be used: what else is wrong with it is said at once.
    let durability = match builder.clone().durability().await {
        Ok(durability) => durability,
        Err(error) => return refuse(&error, findings),
    };
    check_memory(&durability, findings);
    check_log(&durability, findings);
    check_replicas(&durability, findings);
    check_unseen(&durability, findings);
    let builder = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys));
    let store = match builder.open().await {
        Ok(store) => store,
        // It was said already, in more words.
        Err(OpenError::Unfit(_)) if evicts(&durability).is_some() => return None,
        Err(error) => return refuse(&error, findings),
    };
    check_waiting(store.awaited_replicas(), &durability, findings);
    if !has_rights(&store, findings).await {
        return None;
    }
    if let Ok(Ok(time)) = tokio::time::timeout(STORE_TIMEOUT, store.server_time()).await {
        check_clocks(time, findings);
    }
    look(config, &store, Promised::Redis(durability), findings).await
}

fn refused(error: &OpenError, findings: &mut Findings) {
    let stopped = "the gateway does not start; nothing was changed";
    let (code, mend) = match error {
        OpenError::Unreachable(_) => (
            "store-unreachable",
            "redis-cli with the same host and port; name sentinels (redis+sentinel://) or several nodes of a \
             cluster (redis+cluster://) in `store`",
        ),
        OpenError::Refused(_) => {
            ("store-refused", "correct user and password in `store`, or the ACL of the server")
        }
        OpenError::NotAllowed(_) => ("store-rights", RIGHTS),
        OpenError::Unfit(_) => ("store-unfit", "another server, or other options in `store`"),
        _ => ("store-unusable", "correct the cause, and look again"),
    };
    findings.problem(code, "store", texts(error.to_string(), stopped, mend));
}

const RIGHTS: &str = "ACL SETUSER … as docs/redis.md#rights writes it, for the prefix in `store`";

/// By which rule the server throws records away when it is full.
fn evicts(durability: &Durability) -> Option<&str> {
    durability.max_memory_policy.as_deref().filter(|policy| *policy != NO_EVICTION)
}

fn check_memory(durability: &Durability, findings: &mut Findings) {
    if let Some(policy) = evicts(durability) {
        let texts = texts(
            format!("the server throws keys away when it is full (maxmemory-policy {policy})"),
            "the gateway does not start: a key whose record is gone runs again, and nobody would know",
            "CONFIG SET maxmemory-policy noeviction, also in its configuration file; other data that may be thrown \
             away belongs on a server of its own",
        );
        findings.problem("store-evicts", "store", texts);
    }
    let (used, most) = (durability.used_memory, durability.max_memory);
    match most {
        Some(0) => {
            let texts = texts(
                "maxmemory is not set",
                "when there is no memory left, the system kills the server instead of a claim being refused (503)",
                "CONFIG SET maxmemory to what the machine has, less what a copy for a snapshot needs; \
                 docs/redis.md#memory",
            );
            findings.note("store-memory-unbounded", "store", texts);
        }
        Some(most) if used.saturating_mul(5) > most.saturating_mul(4) => {
            let texts = texts(
                format!("{} of {} MiB of maxmemory are used", used >> 20, most >> 20),
                "when it is full, new operations are refused (503), and running ones are still settled",
                "raise maxmemory, or keep answers for a shorter time (retain)",
            );
            findings.warning("store-memory-low", "store", texts);
        }
        _ => {}
    }
}

fn check_log(durability: &Durability, findings: &mut Findings) {
    match (durability.appends, durability.append_fsync.as_deref()) {
        (Some(false), _) => {
            let texts = texts(
                "the server writes no log (appendonly no)",
                "when it dies, every record since its last snapshot is lost, and its retry runs again",
                "CONFIG SET appendonly yes, and appendfsync always; also in its configuration file",
            );
            findings.warning("store-no-log", "store", texts);
        }
        (Some(true), Some("no")) => {
            let texts = texts(
                "the server leaves it to the system when its log is on the disk (appendfsync no)",
                "when the machine dies, the last half minute of records may be lost, and their retries run again",
                "CONFIG SET appendfsync always, or everysec; also in its configuration file",
            );
            findings.warning("store-log-late", "store", texts);
        }
        (Some(true), Some("everysec")) => {
            let texts = texts(
                "the server syncs its log once in a second (appendfsync everysec)",
                "when the machine dies, the last second of records is lost, sometimes two, and their retries run again",
                "CONFIG SET appendfsync always, if a slower claim is acceptable",
            );
            findings.note("store-log-late", "store", texts);
        }
        _ => {}
    }
}

fn check_replicas(durability: &Durability, findings: &mut Findings) {
    let what = match durability.replicas {
        0 => {
            let texts = texts(
                "no replica is connected",
                "records are on one machine: they survive a restart by its log alone, and not the loss of its disk",
                "a replica and sentinels, or a cluster; then redis+sentinel:// or redis+cluster:// in `store`",
            );
            return findings.note("no-replica", "store", texts);
        }
        1 => "1 replica follows asynchronously".to_owned(),
        count => format!("{count} replicas follow asynchronously"),
    };
    let cut_off = match durability.min_replicas {
        Some(0) => {
            "; a primary that is cut off goes on taking writes, which are lost when it comes back"
        }
        _ => "",
    };
    let mend = match durability.min_replicas {
        Some(0) => {
            "CONFIG SET min-replicas-to-write 1 and min-replicas-max-lag 10; `wait_replicas=1` in `store` makes a \
             loss rarer"
        }
        _ => "`wait_replicas=1` in `store` makes a loss rarer",
    };
    let means = format!(
        "a failover loses the records that had not reached the new primary, and their retries run again{cut_off}"
    );
    findings.note("store-failover", "store", texts(what, means, mend));
}

/// Managed servers forbid `CONFIG`; `INFO` tells less.
fn check_unseen(durability: &Durability, findings: &mut Findings) {
    let settings = [
        ("maxmemory-policy", durability.max_memory_policy.is_none()),
        ("appendonly", durability.appends.is_none()),
        ("appendfsync", durability.append_fsync.is_none()),
        ("min-replicas-to-write", durability.min_replicas.is_none()),
    ];
    let unseen: Vec<_> =
        settings.into_iter().filter_map(|(name, is_unseen)| is_unseen.then_some(name)).collect();
    if unseen.is_empty() {
        return;
    }
    let texts = texts(
        format!(
            "{} cannot be learnt: the server does not tell this user (CONFIG GET)",
            unseen.join(", ")
        ),
        "what can be lost is not known; a server that throws keys away when it is full would be accepted if it does \
         not tell its maxmemory-policy either",
        "ACL SETUSER … +config|get; or look at the settings where the server is managed",
    );
    match durability.max_memory_policy {
        None => findings.warning("store-unseen", "store", texts),
        Some(_) => findings.note("store-unseen", "store", texts),
    }
}

fn check_waiting(awaited: u32, durability: &Durability, findings: &mut Findings) {
    if awaited > durability.replicas {
        let texts = texts(
            format!(
                "`store` waits for {awaited} replicas, and {} are connected",
                durability.replicas
            ),
            "every claim gets 503 `store-unavailable` after that wait",
            "connect the replicas, or wait for fewer: wait_replicas, wait_aof",
        );
        findings.problem("store-replicas-missing", "store", texts);
    }
}

/// Whether the user may do what the store does.
async fn has_rights(store: &RedisStore, findings: &mut Findings) -> bool {
    let asked = tokio::time::timeout(STORE_TIMEOUT, store.lacking_rights()).await;
    let (what, code) = match asked {
        Ok(Ok(lacking)) if lacking.is_empty() => return true,
        Ok(Ok(lacking)) => (
            format!("the user of the gateway lacks the right to {}", lacking.join(", ")),
            "store-rights",
        ),
        Ok(Err(error)) => (error.to_string(), "store-fails"),
        Err(_) => ("no answer in time".to_owned(), "store-fails"),
    };
    let means = "clients get 503 `store-unavailable` where that is needed";
    findings.problem(code, "store", texts(what, means, RIGHTS));
    false
}

#[cfg(test)]
mod tests {
    use super::super::{super::finding::Severity, tests::found};
    use super::*;

    fn server(change: impl FnOnce(&mut Durability)) -> Durability {
        let mut durability = Durability::default();
        durability.max_memory = Some(100 << 20);
        durability.max_memory_policy = Some(NO_EVICTION.to_owned());
        durability.appends = Some(true);
        durability.append_fsync = Some("always".to_owned());
        durability.replicas = 1;
        durability.min_replicas = Some(1);
        change(&mut durability);
        durability
    }

    fn all(durability: &Durability) -> Vec<(&'static str, Severity)> {
        found(|findings| {
            check_memory(durability, findings);
            check_log(durability, findings);
            check_replicas(durability, findings);
            check_unseen(durability, findings);
            check_waiting(1, durability, findings);
        })
    }

    /// A setting, and the finding that it makes.
    type Weakness = (fn(&mut Durability), &'static str, Severity);

    #[test]
    fn every_setting_that_can_lose_records_has_its_name() {
        let failover = ("store-failover", Severity::Note);
        assert_eq!(all(&server(|_| {})), [failover]);
        let changes: [Weakness; 8] = [
            (
                |it| it.max_memory_policy = Some("allkeys-lru".into()),
                "store-evicts",
                Severity::Problem,
            ),
            (|it| it.max_memory_policy = None, "store-unseen", Severity::Warning),
            (|it| it.max_memory = Some(0), "store-memory-unbounded", Severity::Note),
            (|it| it.used_memory = 81 << 20, "store-memory-low", Severity::Warning),
            (|it| it.appends = Some(false), "store-no-log", Severity::Warning),
            (|it| it.append_fsync = Some("everysec".into()), "store-log-late", Severity::Note),
            (|it| it.append_fsync = Some("no".into()), "store-log-late", Severity::Warning),
            (|it| it.append_fsync = None, "store-unseen", Severity::Note),
        ];
        for (change, code, severity) in changes {
            let found = all(&server(change));
            assert!(found.contains(&(code, severity)), "{code}: {found:?}");
            assert_eq!(found.len(), 2, "{code}: {found:?}");
        }
        let alone = all(&server(|it| it.replicas = 0));
        let problem = ("store-replicas-missing", Severity::Problem);
        assert_eq!(alone, [problem, ("no-replica", Severity::Note)]);
    }
}
