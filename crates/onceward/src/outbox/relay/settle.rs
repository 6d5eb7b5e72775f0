//! How a page ends: one settlement, proposed again until its answer is known.

use std::time::Duration;

use onceward_core::message::{Position, Settled, Settlement};
use tokio::time::sleep;

use super::{lease::LaneLease, shared::RelayRun};
use crate::{
    engine::fresh_fence,
    telemetry::{self, QueueCall, SettleResult},
};

/// The first and the longest wait before a settlement is proposed again that had no answer.
const WAITS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// So many steps of others may come in between, each an operator's; then the lane is left and read anew.
const MOST_FENCED: u32 = 100;

/// Moves a lane on; `None`: it is not known to be ours any more, and whoever holds it goes on from its newest step.
///
/// A proposal without an answer is made again under the same fence: the outbox knows it if it was made. That
/// goes on for as long as the lease lives, and once more after it, because a lane that nobody took over can
/// still be moved.
pub(super) async fn settle(
    run: &RelayRun,
    lease: &LaneLease,
    mut settlement: Settlement,
) -> Option<Position> {
    let (mut wait, longest) = WAITS;
    let mut fenced = 0;
    loop {
        let is_last = !lease.is_valid(run.now());
        let result = match run.ask(QueueCall::Settle, run.queue.settle(&settlement)).await {
            Ok(Settled::Moved(position)) => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Moved);
                return Some(position);
            }
            Ok(Settled::Fenced(Some(position))) if fenced < MOST_FENCED => {
                fenced += 1;
                settlement = Settlement { from: position, fence: fresh_fence(), ..settlement };
                SettleResult::Fenced
            }
            Ok(Settled::Fenced(_)) => {
                telemetry::RELAY_SETTLEMENTS.add(SettleResult::Lost);
                return None;
            }
            Err(_) => SettleResult::Failed,
        };
        telemetry::RELAY_SETTLEMENTS.add(result);
        if result == SettleResult::Failed {
            if is_last {
                return None;
            }
            sleep(wait).await;
            wait = (wait * 2).min(longest);
        }
    }
}
