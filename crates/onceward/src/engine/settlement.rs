//! A settlement that is repeated until it is stored.

use std::sync::atomic::Ordering;

use onceward_core::{Settled, Settlement, SettlementStep, Swap};

use super::{Engine, Pause};
use crate::telemetry::{self, event};

impl Engine {
    /// `None`: given up, because the engine was stopped and the store still fails.
    pub(super) async fn settle_until_done(&self, mut settlement: Settlement) -> Option<Settled> {
        let mut pause = Pause::default();
        loop {
            let ended = telemetry::Ended::by(settlement.change());
            match self.call(settlement.change()).await {
                Ok(Swap::Held) if self.shared.stopped.load(Ordering::SeqCst) => return None,
                Ok(Swap::Held) => pause.wait().await,
                Ok(swap) => match settlement.next(swap) {
                    SettlementStep::Swap(next) => settlement = next,
                    SettlementStep::Done(settled) => {
                        telemetry::count_settled(ended, &settled);
                        return Some(settled);
                    }
                },
                Err(_) if self.shared.stopped.load(Ordering::SeqCst) => return None,
                Err(error) => {
                    telemetry::SETTLEMENTS_TROUBLED.add(telemetry::Troubled::Retried);
                    tracing::warn!(event = event::SETTLEMENT_RETRIED, %error, "a settlement is tried again");
                    pause.wait().await;
                }
            }
        }
    }

    /// Settles in a task that is never dropped, with a fence under which an answer may be spooled; if it
    /// takes long, it calls `late`. `None`: given up, because the engine was stopped.
    #[cfg(feature = "tower")]
    pub(crate) async fn settle_here(
        &self,
        settlement: Settlement,
        late: impl FnOnce(),
    ) -> Option<Settled> {
        let mut settling = std::pin::pin!(self.settle_until_done(settlement));
        match tokio::time::timeout(self.settle_patience, settling.as_mut()).await {
            Ok(settled) => settled,
            Err(_) => {
                telemetry::SETTLEMENTS_TROUBLED.add(telemetry::Troubled::Late);
                late();
                settling.await
            }
        }
    }

    /// Another time than [`SETTLE_PATIENCE`](Self::SETTLE_PATIENCE), for a suite on a machine of any speed.
    #[cfg(feature = "conformance")]
    pub(crate) fn settle_patience(mut self, settle_patience: std::time::Duration) -> Self {
        self.settle_patience = settle_patience;
        self
    }
}
