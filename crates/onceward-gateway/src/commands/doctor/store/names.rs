//! Whether the routes still find the records that they have.

use std::time::Duration;

use tokio::time::timeout;

use crate::{
    commands::doctor::finding::{Findings, texts},
    config::Config,
    kept,
    records::Records,
};

/// All records are looked at where a route is new or changed.
const TALLY_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn examine(config: &Config, store: &dyn Records, findings: &mut Findings) {
    let changes = match timeout(TALLY_TIMEOUT, kept::changes(config, store)).await {
        Ok(Ok(changes)) => changes,
        Ok(Err(error)) => return unknown(&error.to_string(), findings),
        Err(_) => return unknown("no answer in time", findings),
    };
    for route in kept::idle(config, &changes) {
        let texts = texts(
            "accept_identity_change = true, and nothing needs it",
            "any later change of a name or scope would be accepted, and keys of before would run again",
            "remove accept_identity_change",
        );
        findings.warning("identity-change-accepted", &route, texts);
    }
    for change in changes {
        let means = match change.is_accepted {
            false => "the gateway does not start; with such names these keys would run again",
            true => "the gateway starts, and these keys run again if clients still send them",
        };
        let mend = match change.is_accepted {
            false => {
                "undo the change of the route, or wait until these records are over; or, if no client will send \
                 their keys again: accept_identity_change = true"
            }
            true => "remove accept_identity_change after the start",
        };
        let texts = texts(format!("{}; now {}", change.kept, change.now), means, mend);
        match change.is_accepted {
            false => findings.problem("identity-changed", &change.route, texts),
            true => findings.warning("identity-change-accepted", &change.route, texts),
        }
    }
}

fn unknown(reason: &str, findings: &mut Findings) {
    let texts = texts(
        format!("it is not known whether routes still find their records: {reason}"),
        "the gateway refuses to start if they do not",
        "look again when the store is less busy",
    );
    findings.warning("identity-not-compared", "store", texts);
}
