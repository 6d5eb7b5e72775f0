//! What a relay does beside delivering: it sweeps, and looks how the outbox is.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep;

use super::shared::{RelayRun, SinkRun};
use crate::telemetry::{self, QueueCall};

/// How often the outbox is swept and looked at. Several relays do both, a little apart.
const EVERY: Duration = Duration::from_secs(15);

/// How many messages one sweep deletes: some milliseconds of the database.
const BATCH: u32 = 1_000;

/// Deletes messages whose time is over, for as long as the relay runs.
pub(super) async fn sweep(run: Arc<RelayRun>, retain: Duration) {
    loop {
        pause().await;
        while let Ok(swept) = run.ask(QueueCall::Sweep, run.queue.sweep(retain, BATCH)).await {
            telemetry::RELAY_SWEPT.add_many((), swept.messages.into());
            if swept.messages < BATCH {
                break;
            }
        }
    }
}

/// Looks how the outbox is, for as long as the relay runs.
pub(super) async fn watch(run: Arc<RelayRun>, sinks: Vec<Arc<SinkRun>>) {
    loop {
        pause().await;
        look(&run, &sinks).await;
    }
}

/// Shows how the outbox is in the metrics, and stops deliveries if it says that they must.
pub(super) async fn look(run: &RelayRun, sinks: &[Arc<SinkRun>]) {
    let Ok(condition) = run.ask(QueueCall::Condition, run.queue.condition()).await else { return };
    run.note_alarm(condition.alarm.as_deref());
    telemetry::RELAY_STORED.set(condition.messages);
    for sink in sinks {
        if let Some(shown) = condition.sinks.iter().find(|shown| shown.id == sink.id) {
            sink.numbers.show(shown);
        }
    }
}

async fn pause() {
    sleep(EVERY.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
}
