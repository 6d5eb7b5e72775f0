//! The end of a sink.

use std::collections::BTreeMap;

use axum::{Extension, body::Bytes, extract::State};
use http::StatusCode;
use onceward::{
    message::{LaneCondition, RelayId, SinkCondition, SinkName},
    store::NoteKind,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    Answer,
    access::Operator,
    done,
    messages::outbox,
    refusal::Refusal,
    repair::{Repair, bounded, count},
    requests::{self, Reason},
};
use crate::observe::metrics::OperatorChange;

/// The name of the operation whose trail keeps who removed a sink.
const NAME: &str = "onceward.sinks";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RemoveBody {
    sink: String,
    reason: Reason,
}

/// How many lanes each relay holds.
pub(super) fn relays(sink: &SinkCondition) -> BTreeMap<RelayId, u32> {
    let mut relays = BTreeMap::new();
    for LaneCondition { relay, .. } in &sink.lanes {
        if let Some(relay) = relay {
            *relays.entry(*relay).or_insert(0) += 1;
        }
    }
    relays
}

/// Forgets a sink. The reason is in the trail before it is done.
pub(super) async fn remove(
    State(repair): State<Repair>,
    Extension(operator): Extension<Operator>,
    body: Bytes,
) -> Answer {
    let RemoveBody { sink, reason } = requests::read(&body)?;
    let name =
        SinkName::new(&sink).map_err(|error| Refusal::malformed(format!("`sink`: {error}")))?;
    let queue = outbox(&repair)?;
    let condition = bounded(queue.condition()).await?;
    let found = condition.sinks.iter().find(|known| known.name == name).ok_or_else(unknown)?;
    if !relays(found).is_empty() {
        let text = "a relay delivers to this sink: take it out of the configuration of every relay and restart \
                    them, or the sink comes back at once; nothing was changed";
        return Err(Refusal::conflict("sink-in-use", text));
    }
    let why = format!("{name}: {}", reason.0);
    let trail = repair.write_down(NAME, "sinks", NoteKind::RemoveSink, &operator, &why).await?;
    if !bounded(queue.remove_sink(&name)).await? {
        return Err(unknown());
    }
    count(OperatorChange::RemoveSink, trail, &operator);
    let forgotten = found.lag;
    Ok(done(
        &json!({ "sink": name.as_str(), "forgotten": forgotten, "operation": trail.to_string() }),
    ))
}

fn unknown() -> Refusal {
    let text = "the store knows no sink of this name; nothing was changed";
    Refusal::new(StatusCode::NOT_FOUND, "sink-not-found", text)
}
