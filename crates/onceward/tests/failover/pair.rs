//! Two servers, of which one leads and the other follows.

use std::time::{Duration, Instant};

use onceward::{Effect, Fingerprint, Key, OperationId, OperationName, Request, Scope, Terms};
use testbed::{Database, Installation, Server, multi_host_url};

pub(crate) struct Pair {
    pub(crate) primary: Server,
    pub(crate) standby: Server,
}

impl Pair {
    /// The standby follows, and nobody waits for it.
    pub(crate) fn asynchronous() -> Self {
        let primary = Server::start(&Installation::preferred().unwrap(), &[]).unwrap();
        let standby = primary.add_standby("standby").unwrap();
        Self { primary, standby }
    }

    /// Every commit waits until the standby has it too.
    pub(crate) fn synchronous() -> Self {
        let pair = Self::asynchronous();
        pair.primary.make_synchronous(&[pair.standby.name()]);
        pair
    }

    /// A database on whichever of them leads.
    pub(crate) fn url(&self, database: &Database) -> String {
        multi_host_url(&[&self.primary, &self.standby], database.name())
    }

    /// The primary is lost, the standby takes its place, and the old primary follows it.
    pub(crate) fn fail_over(&mut self) {
        // Told before: no commit of the new primary is acknowledged that the old one does not have.
        self.standby.expect_standbys(&[self.primary.name()]);
        self.primary.kill();
        self.standby.promote();
        self.primary.rejoin(&self.standby);
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.primary.make_synchronous(&[self.standby.name()]);
    }

    /// Waits until a commit on the primary waits for the standby; gives the number of its session.
    pub(crate) fn waiting_commit(&self) -> String {
        let waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' LIMIT 1";
        let started = Instant::now();
        loop {
            let pid = self.primary.sql(waiting);
            if !pid.is_empty() {
                return pid;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "no commit waits for the standby");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub(crate) fn asked(effect: Effect, key: &str) -> Request {
    let lease = Duration::from_secs(2);
    let (name, key) = (OperationName::new("POST /charges").unwrap(), Key::new(key).unwrap());
    Request {
        operation: OperationId::new(Scope::global(), name, key),
        fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
        terms: Terms::of(effect).lease(lease).build().unwrap(),
    }
}
