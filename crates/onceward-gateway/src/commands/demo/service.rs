//! Everything that serves: the upstream, and the gateways in front of it.

use std::time::Duration;

use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::{
    BoxError,
    gateways::{Doors, Gateways},
    ledger::Ledger,
    records::DemoRecords,
    summary::Setting,
    upstream::Upstream,
};

/// How long what still runs is waited for.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Service {
    pub(super) upstream: Upstream,
    /// `None`: the clients meet the upstream itself.
    pub(super) gateways: Option<Gateways>,
    directory: TempDir,
}

impl Service {
    /// Serves on free ports of this computer, with records in a directory of their own.
    pub(super) async fn start(setting: Setting, store: Option<&str>) -> Result<Self, BoxError> {
        let directory = tempfile::Builder::new()
            .prefix("onceward-demo-")
            .tempdir()
            .map_err(|error| format!("no temporary directory can be made: {error}"))?;
        let upstream = Upstream::start()
            .map_err(|error| format!("no port of 127.0.0.1 can be had: {error}"))?;
        let gateways = match setting.protected {
            true => {
                let records = DemoRecords::choose(store, directory.path())?;
                records.check().await?;
                let started = Gateways::start(directory.path(), upstream.address, records.clone());
                match started.await {
                    Ok(gateways) => Some(gateways),
                    Err(error) => {
                        records.remove().await;
                        return Err(error);
                    }
                }
            }
            false => None,
        };
        Ok(Self { upstream, gateways, directory })
    }

    pub(super) fn doors(&self) -> Doors {
        match &self.gateways {
            Some(gateways) => gateways.doors.clone(),
            None => Doors::new([self.upstream.address]),
        }
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.upstream.ledger
    }

    /// Waits until nothing runs any more, for what its clients had left behind.
    ///
    /// It must stay so for a while: a request may still be on its way from a socket.
    pub(super) async fn quiet(&self) {
        let ledger = self.ledger();
        let all_quiet = async {
            let mut seen = (u64::MAX, 0);
            loop {
                let now = (ledger.executions(), ledger.charges());
                if ledger.is_quiet() && now == seen {
                    return;
                }
                seen = now;
                sleep(Duration::from_millis(200)).await;
            }
        };
        // What does not end by then is found by the verifier.
        let _ = timeout(SHUTDOWN_TIMEOUT, all_quiet).await;
    }

    /// Lets the gateways settle what runs and leave; then the upstream goes, every file, and every key.
    pub(super) async fn stop(self) -> Vec<String> {
        let Self { upstream, gateways, directory } = self;
        let complaints = match gateways {
            Some(gateways) => {
                let records = gateways.records.clone();
                let mut complaints = gateways.stop().await;
                complaints.extend(records.remove().await);
                complaints
            }
            None => Vec::new(),
        };
        drop((upstream, directory));
        complaints
    }
}
