//! Messages of the outbox as operators see and change them. Of bodies, lists show sizes.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::Bytes,
    extract::{Path, RawQuery, State},
    routing::{get, post},
};
use base64ct::{Base64, Encoding as _};
use http::StatusCode;
use onceward::{
    StoreError,
    message::{
        Aggregate, Changed, MessageFilter, MessageId, MessageNote, MessageState, QueueCondition,
        RelayId, RepairKind, RepairMessage, ShownMessage, SinkCondition, SinkName, Topic,
    },
    telemetry::event,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Answer,
    access::Operator,
    document::time,
    done,
    refusal::Refusal,
    repair::{Repair, bounded, changing},
    requests::{self, Reason},
    sinks,
};
use crate::{
    observe::metrics::{OPERATOR_CHANGES, OperatorChange},
    records::Outbox,
};

/// How long the outbox may take to say how it is, for a balancer or a supervisor.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// What a store without an outbox says of messages.
pub(crate) const NO_OUTBOX: &str = "this store has no outbox, so that there are no messages in it: Redis and Valkey have no transaction in which a \
     service could enqueue a message together with its effect; keep the outbox in the database of the service, as \
     postgres://… or sqlite://…, and ask there";

pub(super) fn reading() -> Router<Repair> {
    Router::new()
        .route("/v1/messages", get(list))
        .route("/v1/messages/{id}", get(show))
        .route("/v1/sinks", get(condition))
}

pub(super) fn resolving() -> Router<Repair> {
    Router::new()
        .route("/v1/messages/{id}/body", get(body))
        .route("/v1/messages/{id}/redrive", post(redrive))
        .route("/v1/messages/{id}/discard", post(discard))
}

pub(super) fn purging() -> Router<Repair> {
    Router::new().route("/v1/sinks/remove", post(sinks::remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MessageQuery {
    sink: Option<String>,
    state: Option<String>,
    topic: Option<String>,
    aggregate: Option<String>,
    older: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

impl MessageQuery {
    fn filter(&self) -> Result<MessageFilter, Refusal> {
        let limit = self.limit.unwrap_or(100);
        if !(1..=MessageFilter::MAX_PAGE).contains(&limit) {
            let most = MessageFilter::MAX_PAGE;
            return Err(Refusal::malformed(format!("`limit` is from 1 to {most}")));
        }
        if !self.after.as_deref().is_none_or(requests::is_cursor) {
            return Err(Refusal::malformed("`after` is what a page before called `next`"));
        }
        let state = |text: &str| {
            let names = MessageState::ALL.map(MessageState::as_str).join(", ");
            let refused = || Refusal::malformed(format!("`state` is one of {names}"));
            MessageState::parse(text).ok_or_else(refused)
        };
        Ok(MessageFilter {
            sink: requests::parsed("sink", self.sink.as_deref(), SinkName::new)?,
            state: self.state.as_deref().map(state).transpose()?,
            topic: requests::parsed("topic", self.topic.as_deref(), Topic::new)?,
            aggregate: requests::parsed("aggregate", self.aggregate.as_deref(), Aggregate::new)?,
            older: self.older.as_deref().map(requests::duration).transpose()?,
            after: self.after.clone(),
            limit,
        })
    }
}

/// What an operator does with one message, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepairBody {
    /// At which sink; may be left out where only one could be meant.
    sink: Option<String>,
    reason: Reason,
}

async fn list(State(repair): State<Repair>, RawQuery(query): RawQuery) -> Answer {
    let wanted: MessageQuery = requests::of_query(&query.unwrap_or_default())?;
    let filter = wanted.filter()?;
    let queue = outbox(&repair)?;
    // A place that is none is the only thing that a store refuses here.
    let listed = bounded(async {
        match queue.list(&filter).await {
            Err(StoreError::Refused(text)) => {
                Ok(Err(Refusal::malformed(format!("`after`: {text}"))))
            }
            listed => listed.map(Ok),
        }
    });
    let page = listed.await??;
    let messages: Vec<Value> = page.messages.iter().map(line).collect();
    Ok(done(&json!({ "messages": messages, "next": page.next })))
}

async fn show(State(repair): State<Repair>, Path(id): Path<String>) -> Answer {
    Ok(done(&whole(&repair, message_id(&id)?).await?))
}

async fn body(State(repair): State<Repair>, Path(id): Path<String>) -> Answer {
    let id = message_id(&id)?;
    let shown = shown(&repair, id).await?;
    let body = &shown.first().ok_or_else(not_found)?.message.body;
    let text = std::str::from_utf8(body).ok();
    let base64 = text.is_none().then(|| Base64::encode_string(body));
    Ok(done(&json!({
        "message": id.to_string(), "bytes": body.len(), "body": text, "body_base64": base64,
    })))
}

async fn condition(State(repair): State<Repair>) -> Answer {
    let queue = outbox(&repair)?;
    Ok(done(&of_queue(&bounded(queue.condition()).await?)))
}

/// One change of one message.
type Change = (State<Repair>, Extension<Operator>, Path<String>, Bytes);

async fn redrive(change: Change) -> Answer {
    changed(change, RepairKind::Redrive).await
}

async fn discard(change: Change) -> Answer {
    changed(change, RepairKind::Discard).await
}

async fn changed(
    (State(repair), Extension(operator), Path(id), body): Change,
    kind: RepairKind,
) -> Answer {
    let why: RepairBody = requests::read(&body)?;
    let id = message_id(&id)?;
    let sink = match &why.sink {
        Some(name) => {
            SinkName::new(name).map_err(|error| Refusal::malformed(format!("`sink`: {error}")))?
        }
        None => only_sink(&shown(&repair, id).await?, kind)?,
    };
    let (actor, reason) = (Some(operator.name.clone()), why.reason.0);
    let wanted = RepairMessage { id, sink, kind, actor, reason };
    let queue = outbox(&repair)?;
    match bounded(queue.repair(&wanted)).await? {
        Changed::Done => {
            log(kind, id, &wanted.sink, &operator);
            Ok(done(&whole(&repair, id).await?))
        }
        Changed::Refused(state) => Err(refused(kind, state)),
        Changed::Absent => Err(not_found()),
        Changed::Busy => Err(changing()),
    }
}

/// Where the message is in a state for it.
fn only_sink(shown: &[ShownMessage], kind: RepairKind) -> Result<SinkName, Refusal> {
    let first = shown.first().ok_or_else(not_found)?;
    let may = |one: &&ShownMessage| match (kind, one.state) {
        (_, MessageState::Dead | MessageState::Held | MessageState::Waiting) => true,
        (kind, MessageState::Scheduled) => kind == RepairKind::Discard,
        _ => false,
    };
    let meant: Vec<_> = shown.iter().filter(may).collect();
    match meant.as_slice() {
        [one] => Ok(one.sink.clone()),
        [] => Err(refused(kind, first.state)),
        several => {
            let names: Vec<_> = several.iter().map(|one| one.sink.as_str()).collect();
            let text =
                format!("say at which sink, as `sink`: {}; nothing was changed", names.join(", "));
            Err(Refusal::malformed(text))
        }
    }
}

fn refused(kind: RepairKind, state: MessageState) -> Refusal {
    let text = match (kind, state) {
        (_, MessageState::Waiting) => {
            "it waits for its first attempt, which the relay makes by itself; nothing was changed"
                .to_owned()
        }
        (RepairKind::Redrive, state) => format!(
            "it is {} at this sink, and only what is dead, held or waiting is sent again; nothing was changed",
            state.as_str()
        ),
        (RepairKind::Discard, state) => format!(
            "it is {} at this sink, and only what is dead, held, waiting or scheduled is discarded; nothing was \
             changed",
            state.as_str()
        ),
    };
    Refusal::conflict("message-state", text)
}

fn not_found() -> Refusal {
    let text = "no sink has such a message: it was swept, it belongs to another store, or no sink was opened yet";
    Refusal::new(StatusCode::NOT_FOUND, "message-not-found", text)
}

fn message_id(text: &str) -> Result<MessageId, Refusal> {
    MessageId::parse(text).ok_or_else(|| Refusal::malformed("the id of a message is a UUID"))
}

/// The outbox of this store, if it has one.
pub(super) fn outbox(repair: &Repair) -> Result<Arc<dyn Outbox>, Refusal> {
    repair
        .records
        .outbox()
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "no-outbox", NO_OUTBOX))
}

async fn shown(repair: &Repair, id: MessageId) -> Result<Vec<ShownMessage>, Refusal> {
    bounded(outbox(repair)?.show(id)).await
}

/// Whether the outbox answers, and lets relays go on.
pub(super) async fn ping(repair: &Repair) -> Result<(), String> {
    let queue = outbox(repair).map_err(|refusal| refusal.detail.into_owned())?;
    match timeout(PING_TIMEOUT, queue.condition()).await {
        Ok(Ok(QueueCondition { alarm: None, .. })) => Ok(()),
        Ok(Ok(QueueCondition { alarm: Some(alarm), .. })) => Err(alarm),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => {
            Err(StoreError::Unavailable(format!("no answer within {PING_TIMEOUT:?}")).to_string())
        }
    }
}

async fn whole(repair: &Repair, id: MessageId) -> Result<Value, Refusal> {
    let shown = shown(repair, id).await?;
    let trail = bounded(outbox(repair)?.message_trail(id)).await?;
    let trail: Vec<Value> = trail.iter().map(note).collect();
    let Some(ShownMessage { message, .. }) = shown.first() else {
        return match trail.is_empty() {
            true => Err(not_found()),
            false => Ok(json!({ "message": id.to_string(), "sinks": [], "trail": trail })),
        };
    };
    let names: Vec<&str> = message.headers.iter().map(|(name, _)| name.as_str()).collect();
    let sinks: Vec<Value> = shown.iter().map(at_sink).collect();
    Ok(json!({
        "message": id.to_string(),
        "topic": message.topic.as_str(),
        "aggregate": message.aggregate.as_str(),
        "lane": message.lane().number(),
        "enqueued_at": time(message.at),
        "not_before": message.not_before.and_then(time),
        "expires_at": message.expires_at.and_then(time),
        "bytes": message.body.len(),
        "headers": names,
        "operation": message.operation.map(|operation| operation.to_string()),
        "trace": message.trace,
        "sinks": sinks,
        "trail": trail,
    }))
}

fn at_sink(shown: &ShownMessage) -> Value {
    json!({
        "sink": shown.sink.as_str(),
        "state": shown.state.as_str(),
        "attempts": shown.attempts,
        "due_at": shown.due.and_then(time),
        "why": shown.why,
    })
}

fn line(shown: &ShownMessage) -> Value {
    let message = &shown.message;
    json!({
        "message": message.id.to_string(),
        "sink": shown.sink.as_str(),
        "state": shown.state.as_str(),
        "attempts": shown.attempts,
        "enqueued_at": time(message.at),
        "due_at": shown.due.and_then(time),
        "topic": message.topic.as_str(),
        "aggregate": message.aggregate.as_str(),
        "bytes": message.body.len(),
        "why": shown.why,
    })
}

fn note(note: &MessageNote) -> Value {
    json!({
        "at": time(note.at),
        "sink": note.sink.as_str(),
        "kind": note.kind.as_str(),
        "actor": note.actor,
        "reason": note.reason,
    })
}

fn of_queue(condition: &QueueCondition) -> Value {
    let QueueCondition { messages, oldest, sinks, alarm } = condition;
    json!({
        "messages": messages,
        "oldest_seconds": oldest.map(|age| age.as_secs()),
        "alarm": alarm,
        "sinks": sinks.iter().map(of_sink).collect::<Vec<_>>(),
    })
}

fn of_sink(sink: &SinkCondition) -> Value {
    let relays = sinks::relays(sink);
    let of_relay = |(relay, lanes): (&RelayId, &u32)| {
        let id: MessageId = MessageId::from_bytes(*relay.as_bytes());
        json!({ "relay": id.to_string(), "lanes": lanes })
    };
    json!({
        "sink": sink.name.as_str(),
        "lag": sink.lag,
        "oldest_waiting_seconds": sink.oldest_waiting.map(|age| age.as_secs()),
        "waiting": sink.waiting,
        "scheduled": sink.scheduled,
        "held": sink.held,
        "dead": sink.dead,
        "lanes_held": relays.values().sum::<u32>(),
        "relays": relays.iter().map(of_relay).collect::<Vec<_>>(),
    })
}

/// The trail has the reason; the log shows that an operator was here.
fn log(kind: RepairKind, id: MessageId, sink: &SinkName, operator: &Operator) {
    let change = match kind {
        RepairKind::Redrive => OperatorChange::Redrive,
        RepairKind::Discard => OperatorChange::Discard,
    };
    OPERATOR_CHANGES.add(change);
    let (action, name) = (change.as_str(), operator.name.as_str());
    tracing::warn!(event = event::OPERATOR_CHANGE, action, message_id = %id, %sink, operator = name, "a change");
}
