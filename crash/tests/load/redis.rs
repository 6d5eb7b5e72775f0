//! The same with the records on a Redis server, which is killed too.
//!
//! The rule of loss: with a log that is synced before each answer (`appendonly yes`, `appendfsync always`) the checker
//! allows no more than on SQLite: nothing acknowledged is lost, nothing runs twice. With any other setting a killed
//! server may lose what it acknowledged, and the checker must say so.

use std::{sync::Arc, time::Duration};

use onceward_crash::service::{Driver, Stake};
use testbed::{RedisInstallation, RedisServer};

use crate::{
    round::{self, Round, say},
    turn,
};

/// `None`, said loudly, where no server is installed.
fn round(stake: Stake, kills: usize, settings: &[(&str, &str)]) -> Option<Round> {
    let installation = match RedisInstallation::preferred() {
        Ok(installation) => installation,
        Err(trouble) => {
            say(&format!("SKIPPED: kills with records on Redis: {trouble}"));
            return None;
        }
    };
    let redis = Some(Arc::new(RedisServer::start(&installation, settings).unwrap()));
    let unhurried = Duration::from_millis(60 * kills as u64);
    Some(Round { stake, driver: Driver::Sqlx, kills, unhurried, seed: round::seed(), redis })
}

#[test]
fn kills_of_services_and_of_the_server_with_their_records_break_no_promise() {
    let _turn = turn();
    for stake in [Stake::External, Stake::Repeatable] {
        let Some(round) = round(stake, 20, &[]) else { return };
        assert!(round.run() >= 20);
    }
}

/// If this found nothing, the test before would prove nothing.
#[test]
fn what_a_server_without_a_log_loses_is_found() {
    let _turn = turn();
    let Some(round) = round(Stake::External, 10, &[("appendonly", "no")]) else { return };
    let (_, conclusion) = round.end();
    say(&format!("without a log: {} violations", conclusion.violations.len()));
    assert!(!conclusion.violations.is_empty(), "whoever forgets its claims runs them again");
}
