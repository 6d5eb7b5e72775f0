//! What the configuration says about operations of one name: how long they are kept, and what of them.

use std::{sync::Arc, time::Duration};

use onceward::{
    Effect, OperationName, Outcome, Resolution, Terms,
    protocol::{Force, Header, Record, RepairKind, StoredBody},
};

use super::refusal::Refusal;
use crate::config::{Config, Route};

/// From this version on fingerprints are keyed, so that answers are sealed.
const KEYED: u8 = 0x80;

pub(super) struct Routes {
    config: Option<Arc<Config>>,
    name: OperationName,
    /// The longest of each that any of them says; the built-in defaults, if there is none.
    pub(super) terms: Terms,
}

impl Routes {
    pub(super) fn of(config: Option<Arc<Config>>, name: &OperationName) -> Self {
        let usual = Terms::of(Effect::External).build().expect("the defaults fit together");
        let routes = || config.iter().flat_map(|config| config.named(name.as_str()));
        let longest = |of: fn(&Route) -> Duration| routes().map(of).max();
        let said = longest(|route| route.lease)
            .zip(longest(|route| route.max_run))
            .zip(longest(|route| route.retain));
        let terms = said.and_then(|((lease, max_run), retain)| {
            let terms = Terms::of(Effect::External).lease(lease).max_run(max_run).retain(retain);
            terms.build().ok()
        });
        Self { terms: terms.unwrap_or(usual), name: name.clone(), config }
    }

    /// Only a route says how long its answers are promised, and how long it may run.
    fn must_be_known(&self, force: Force) -> Result<(), Refusal> {
        if force == Force::Yes || self.all().next().is_some() {
            return Ok(());
        }
        let text = "no route of this name is known here, so that it is not known how long it may run \
                    and how long its answer is promised: ask the gateway (`--admin`) or use its \
                    configuration (`--config`), or say `--defaults` with `--store` if flags alone started \
                    it; with force the built-in defaults count (10 minutes, \
                    24 hours); nothing was changed";
        Err(Refusal::conflict("route-unknown", text))
    }

    /// The gateway keeps an operator's answer by the rules for the upstream's own.
    pub(super) fn repair(
        &self,
        record: &Record,
        kind: &RepairKind,
        force: Force,
    ) -> Result<RepairKind, Refusal> {
        self.must_be_known(force)?;
        let RepairKind::Resolve(Resolution::Applied(outcome)) = kind else {
            return Ok(kind.clone());
        };
        let is_known = self.all().next().is_some();
        let kept = match is_known {
            true => self.all().fold(outcome.clone(), |outcome, route| route.kept(outcome)),
            false => status_only(outcome),
        };
        let is_encrypted = self.config.as_ref().is_some_and(|config| config.encryption.is_some());
        let says_something = !kept.headers.is_empty() || kept.body != StoredBody::Unavailable;
        if says_something && record.fingerprint.version() >= KEYED && !is_encrypted {
            let text = "the answers of this store are sealed, and the key is not at hand here: use the \
                        gateway (`--admin`) or its configuration (`--config`); nothing was changed";
            return Err(Refusal::conflict("sealed", text));
        }
        Ok(RepairKind::Resolve(Resolution::Applied(kept)))
    }

    fn all(&self) -> impl Iterator<Item = &Route> {
        self.config.iter().flat_map(|config| config.named(self.name.as_str()))
    }
}

fn status_only(outcome: &Outcome) -> Outcome {
    let is_location = |(name, _): &&Header| **name == *"location";
    let headers = outcome.headers.iter().filter(is_location).cloned().collect();
    let nothing = Outcome::inline(outcome.status, Vec::new());
    Outcome { headers, body: StoredBody::Unavailable, ..nothing }
}
