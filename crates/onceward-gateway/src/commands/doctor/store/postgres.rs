//! Looks at a PostgreSQL server: whether it can be used, what it promises, how its tables are.

use std::sync::Arc;

use onceward::{
    Effect,
    seal::Keyring,
    store::postgres::{Condition, Durability, OpenError, PostgresStore},
};

use super::{Promised, StoreFindings, check_clocks, look};
use crate::{
    commands::doctor::finding::{Findings, texts},
    config::{Config, Guarantee, PostgresUrl},
};

/// Fewer old versions are no trouble, whatever their share.
const MANY_ROWS: u64 = 100_000;

pub(crate) struct Server {
    pub(crate) durability: Durability,
    pub(crate) condition: Condition,
    /// Whether it keeps what it acknowledges, as far as can be seen.
    pub(crate) is_strict: bool,
}

impl Server {
    /// Which share of the changes touched no index, in percent; `None`: nothing was changed yet.
    pub(crate) fn hot_percent(&self) -> Option<u64> {
        let Condition { updates, hot_updates, .. } = self.condition;
        (updates > 0).then(|| hot_updates.saturating_mul(100) / updates)
    }
}

pub(super) async fn examine(
    url: &PostgresUrl,
    config: &Config,
    keys: Option<Arc<Keyring>>,
    findings: &mut Findings,
) -> Option<StoreFindings> {
    let refuse = |error: &OpenError, findings: &mut Findings| {
        refused(error, findings);
        None
    };
    // A weak promise of the server is a finding below, and no reason not to look at the rest.
    let builder = match PostgresStore::builder(url.with_password()) {
        Ok(builder) => builder.without_migrations().accept_relaxed(),
        Err(error) => return refuse(&error, findings),
    };
    let builder = keys.into_iter().fold(builder, |builder, keys| builder.seal(keys));
    let store = match builder.open().await {
        Ok(store) => store,
        Err(error) => return refuse(&error, findings),
    };
    if url.is_relative() {
        unseen(findings);
        return look(config, &store, Promised::Unseen, findings).await;
    }
    let (durability, condition) = match (store.durability().cloned(), store.condition().await) {
        (Some(durability), Ok(Some(condition))) => (durability, condition),
        (_, Err(error)) => {
            let means = "clients get 503 `store-unavailable`, and nothing is run";
            let texts = texts(error.to_string(), means, "look again; check the server");
            findings.problem("store-fails", "store", texts);
            return None;
        }
        _ => return None,
    };
    let weaknesses = durability.weaknesses(store.address().is_promotable());
    let is_strict = weaknesses.is_empty();
    check_durability(&durability, weaknesses, config.guarantee, findings);
    check_rights(&condition, config, findings);
    check_names(&condition, findings);
    check_tables(&condition, findings);
    check_clocks(condition.server_time, findings);
    look(config, &store, Promised::Postgres(Server { durability, condition, is_strict }), findings)
        .await
}

/// Another engine is asked for records alone.
fn unseen(findings: &mut Findings) {
    let texts = texts(
        "`dialect=wire`: what this server keeps, who may do what, and how full it is cannot be asked",
        "records survive what its commits survive; no test of Onceward ran on an engine other than \
         PostgreSQL",
        "see that a commit is acknowledged when it is on the disks of a majority; leave `dialect=wire` \
         out if it is PostgreSQL",
    );
    findings.warning("promises-unseen", "store", texts);
}

fn refused(error: &OpenError, findings: &mut Findings) {
    let stopped = "the gateway does not start; nothing was changed";
    let migrate = "onceward migrate --store postgres://…, as the owner of the database";
    let (code, mend) = match error {
        OpenError::Outdated { found: 0, .. } => {
            let means = "the gateway makes them when it starts, if its user may; if there were records \
                         before, they are not found, and every retry runs again";
            findings.warning("store-missing", "store", texts(error.to_string(), means, migrate));
            return;
        }
        OpenError::Outdated { .. } => {
            let means = "the gateway updates them when it starts, if its user may; older software then \
                         still works with them, but does not start any more";
            findings.warning("store-outdated", "store", texts(error.to_string(), means, migrate));
            return;
        }
        OpenError::Newer { .. } => {
            ("store-newer", "use the newer software again; nothing goes back")
        }
        OpenError::Unreachable(_) => (
            "store-unreachable",
            "psql with the same address; name all servers of a cluster in it, as host1,host2",
        ),
        OpenError::Refused(_) => (
            "store-refused",
            "correct user, password or database in `store`, or pg_hba.conf of the server",
        ),
        OpenError::NotAllowed(_) => ("store-not-allowed", migrate),
        _ => ("store-unusable", "correct the cause, and look again"),
    };
    findings.problem(code, "store", texts(error.to_string(), stopped, mend));
}

fn check_durability(
    durability: &Durability,
    weaknesses: Vec<String>,
    guarantee: Guarantee,
    findings: &mut Findings,
) {
    for weakness in weaknesses {
        let mend =
            "set that right on the server; or guarantee = \"relaxed\", if records may be lost";
        match guarantee {
            Guarantee::Strict => {
                let means = "the gateway does not start: what was acknowledged could be lost, and its \
                             retry would run again";
                findings.problem("not-durable", "store", texts(weakness, means, mend));
            }
            Guarantee::Relaxed => {
                let means = "what was acknowledged may be lost, and its retry then runs again";
                findings.warning("not-durable", "store", texts(weakness, means, mend));
            }
        }
    }
    let commit = durability.synchronous_commit.as_str();
    if ["off", "local", "remote_write"].contains(&commit) {
        let texts = texts(
            format!("synchronous_commit is {commit} for this user or the whole server"),
            "records are durable all the same: the gateway raises it for its own commits, and \
             onceward.complete for those of services; other commits of the service may be lost",
            "ALTER ROLE … SET synchronous_commit = on, if that is not meant",
        );
        findings.note("synchronous-commit", "store", texts);
    }
    if durability.standbys.is_empty() {
        let texts = texts(
            "no commit waits for a standby",
            "records survive a crash of the server, and not the loss of its disk",
            "a standby, and its name in synchronous_standby_names; then all servers in `store`, as \
             host1,host2",
        );
        findings.note("no-standby", "store", texts);
    }
}

fn check_rights(condition: &Condition, config: &Config, findings: &mut Findings) {
    if !condition.lacking.is_empty() {
        let texts = texts(
            format!("the user of the gateway lacks {}", condition.lacking.join(", ")),
            "clients get 503 `store-unavailable` where that is needed",
            "the GRANTs of docs/postgres.md#roles for that user; or GRANT SELECT, INSERT, UPDATE, DELETE \
             ON ALL TABLES IN SCHEMA onceward TO it",
        );
        findings.problem("store-rights", "store", texts);
    }
    if condition.is_superuser {
        let texts = texts(
            "the user of the gateway is a superuser",
            "a thief of its password has all databases of that server",
            "a role of its own, with the GRANTs of docs/postgres.md#roles",
        );
        findings.note("store-superuser", "store", texts);
    }
    let transactional = |effect| effect == Effect::Transactional;
    let mut routes = config.routes.iter().filter(|route| transactional(route.effect));
    if condition.services == 0
        && let Some(route) = routes.next()
    {
        let texts = texts(
            "no user but superusers may call onceward.complete",
            "the service behind the gateway can commit nothing: its clients get 500 `not-committed`",
            "GRANT onceward_app TO the user of the service",
        );
        findings.warning("no-service-role", &route.match_text(), texts);
    }
}

/// Where others may put functions and operators that statements then call. The gateway's own look nowhere
/// but in PostgreSQL's.
fn check_names(condition: &Condition, findings: &mut Findings) {
    let means = "the gateway's statements look for nothing there, but those of services do: another user \
                 can have its own code run with their rights, also inside the transactions that end \
                 operations";
    if condition.public_creates {
        let what = "every user may create functions and operators in the schema public";
        let texts = texts(what, means, "REVOKE CREATE ON SCHEMA public FROM PUBLIC");
        findings.note("public-create", "store", texts);
    }
    let path = &condition.search_path;
    let place = path.split(',').position(|schema| schema.trim() == "pg_catalog");
    if place.is_some_and(|place| place > 0) {
        let texts = texts(
            format!("search_path is {path} for this user or the whole database"),
            "what is in the schemas before pg_catalog replaces PostgreSQL's own functions and operators, \
             in the statements of services and not in the gateway's",
            "leave pg_catalog out of it: it is then looked into first",
        );
        findings.note("search-path", "store", texts);
    }
}

fn check_tables(condition: &Condition, findings: &mut Findings) {
    let Condition { dead_rows, live_rows, .. } = *condition;
    if dead_rows > MANY_ROWS && dead_rows > live_rows {
        let texts = texts(
            format!("{dead_rows} old versions of {live_rows} records wait to be removed"),
            "the tables grow and requests get slower; most often a transaction was left open for long",
            "SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start; then VACUUM \
             onceward.record",
        );
        findings.warning("store-bloat", "store", texts);
    }
}
