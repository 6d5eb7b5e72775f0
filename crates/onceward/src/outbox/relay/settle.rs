//! How a page ends: one settlement, proposed again until its answer is known.

use std::time::Duration;

use onceward_core::message::{Position, Settled, Settlement};
use tokio::time::sleep;

use super::shared::RelayRun;
use crate::{
    crashpoint,
    engine::{fresh_fence, injected},
    telemetry::{self, QueueCall, SettleResult},
};

/// The first and the longest wait before a settlement is proposed again that had no answer.
const WAITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// So many steps of others may come in between, each an operator's; then the lane is left and read anew.
const MOST_FENCED: u32 = 100;

/// Moves a lane on; `None`: it is another relay's, which goes on from the newest step.
///
/// A proposal without an answer is made again under the same fence, by which the outbox knows it if it was made.
/// That goes on until there is an answer, also when the lease is over: a relay that cannot write this down cannot
/// take the lane over either, and a lane that no relay took over can still be moved. Given up, all of the page would be
/// sent again.
pub(super) async fn settle(run: &RelayRun, mut settlement: Settlement) -> Option<Position> {
    let (mut wait, longest) = WAITS;
    let mut fenced = 0;
    let mut is_told = false;
    loop {
        let propose = async || run.ask(QueueCall::Settle, run.queue.settle(&settlement)).await;
        let settled = crashpoint!("relay.settle", propose().await, injected());
        match crashpoint!("relay.settled", settled, injected()) {
            Ok(Settled::Moved(position)) => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Moved);
                return Some(position);
            }
            Ok(Settled::Fenced(Some(position))) if fenced < MOST_FENCED => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Fenced);
                fenced += 1;
                settlement = Settlement { from: position, fence: fresh_fence(), ..settlement };
            }
            Ok(Settled::Fenced(_)) => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Lost);
                return None;
            }
            Err(error) => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Failed);
                if error.is_definite() && !is_told {
                    is_told = true;
                    telemetry::RELAY_NOT_SETTLED.raise(format_args!(
                        "the outbox refuses to take what became of messages that were sent: {error}; their lane \
                         sends nothing more until it does, and if the relay ends before, they are sent again"
                    ));
                }
                sleep(wait).await;
                wait = (wait * 2).min(longest);
            }
        }
    }
}
