//! The sample service, running.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use onceward::server::Idempotency;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{
    payments::{self, Payments},
    summary::Setting,
};

/// How long what still runs is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Service {
    pub(super) address: SocketAddr,
    pub(super) payments: Arc<Payments>,
    idempotency: Idempotency,
    directory: TempDir,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<io::Result<()>>,
}

impl Service {
    /// Serves on a free port of this computer, with records in a directory of its own.
    pub(super) async fn start(setting: Setting) -> Result<Self, Box<dyn Error>> {
        let directory = tempfile::Builder::new()
            .prefix("onceward-demo-")
            .tempdir()
            .map_err(|error| format!("no temporary directory can be made: {error}"))?;
        let idempotency = payments::idempotency(directory.path())?;
        let payments = Arc::new(Payments::default());
        let routes = match setting.protected {
            true => payments.protected(&idempotency),
            false => payments.unprotected(),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(|error| format!("no port of 127.0.0.1 can be had: {error}"))?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let serve = axum::serve(listener, routes).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let serving = tokio::spawn(serve.into_future());
        Ok(Self { address, payments, idempotency, directory, stop, serving })
    }

    pub(super) fn records(&self) -> PathBuf {
        self.directory.path().join(payments::RECORDS)
    }

    /// Waits until nothing runs any more, for what its clients had left behind.
    ///
    /// It must stay so for a while: a request may still be on its way from a socket.
    pub(super) async fn quiet(&self) {
        let all_quiet = async {
            let mut seen = (u64::MAX, 0);
            loop {
                let runs = self.payments.requests_inside() > 0
                    || self.idempotency.engine().unsettled() > 0;
                let now = (self.payments.executions(), self.payments.charges());
                if !runs && now == seen {
                    return;
                }
                seen = now;
                sleep(Duration::from_millis(200)).await;
            }
        };
        // What does not end by then is found by the verifier.
        let _ = timeout(PATIENCE, all_quiet).await;
    }

    /// Stops as a service should: takes no more requests, settles what runs, and then leaves.
    ///
    /// Returns how many executions could not be settled.
    pub(super) async fn stop(self) -> usize {
        let _ = self.stop.send(());
        let _ = timeout(PATIENCE, self.serving).await;
        self.idempotency.engine().drain(PATIENCE).await.abandoned
    }
}
