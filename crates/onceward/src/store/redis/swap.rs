//! One change: the arguments of its script, and what the answer means.

use onceward_core::{Change, Digest, State, StoreError, StoredBody, Swap, Timestamp, Ttl};
use redis::{Cmd, Value};

use super::{
    Inner,
    keys::{Keys, member, partition},
    rows,
    servers::Line,
    trail,
};

/// Chunks that belong to a change.
const NEW_CHUNKS: u8 = 1;
const OLD_CHUNKS: u8 = 2;
/// A mark that is written also where the change is not made, so that there is something to wait for.
const MARK: u8 = 4;

pub(super) async fn swap(inner: &Inner, change: &Change) -> Result<Swap, StoreError> {
    let Inner { servers, scripts, codec, .. } = inner;
    let body = codec.encode(&change.id, &change.next);
    let note = change.note.as_ref().map(trail::note).transpose()?.unwrap_or_default();
    let script = if change.is_claim() { &scripts.claim } else { &scripts.change };
    let flags = flags(change, servers.how.wait.is_asked());
    let size = body.len() + note.len() + 512;
    let to = (partition(&change.id), Line::Requests);
    let fill = |command: &mut Cmd| fill(command, &servers.how.keys, change, flags, &body, &note);
    let answer = script.run(servers, to, size, fill).await?;
    match answer {
        Value::Int(at) => Ok(Swap::Stored { at: Timestamp::from_unix_micros(at) }),
        Value::Array(found) => conflict(inner, &change.id, found),
        other => Err(rows::unexpected(&other)),
    }
}

fn conflict(inner: &Inner, id: &Digest, found: Vec<Value>) -> Result<Swap, StoreError> {
    let mut found = found.into_iter();
    let read_at = rows::number(&found.next().unwrap_or_default())?;
    let value = rows::bytes(found.next().unwrap_or_default())?;
    let read_at = Timestamp::from_unix_micros(read_at);
    Ok(Swap::Conflict(rows::found(id, value, read_at, &inner.codec)?))
}

fn flags(change: &Change, waits: bool) -> u8 {
    let is_spooled = matches!(
        &change.next.state,
        State::Succeeded(outcome) | State::FailedFinal(outcome)
            if matches!(outcome.body, StoredBody::Spooled { .. })
    );
    // What a claim ends has none: it is in progress or unknown.
    let replaces_answer = change.expected.is_some() && (change.is_claim() || change.note.is_some());
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(is_spooled, NEW_CHUNKS) | flag(replaces_answer, OLD_CHUNKS) | flag(waits, MARK)
}

/// Keys and arguments as swap.lua takes them.
fn fill(command: &mut Cmd, keys: &Keys, change: &Change, flags: u8, body: &[u8], note: &[u8]) {
    let (id, partition) = (&change.id, partition(&change.id));
    let has = |flag: u8| flags & flag != 0;
    let count = 3
        + usize::from(!note.is_empty())
        + usize::from(has(NEW_CHUNKS))
        + usize::from(has(OLD_CHUNKS))
        + usize::from(has(MARK));
    command.arg(count);
    command.arg(keys.record(id)).arg(keys.open(partition)).arg(keys.ended(partition));
    if !note.is_empty() {
        command.arg(keys.trail(id));
    }
    if has(NEW_CHUNKS) {
        command.arg(keys.chunks(id, change.next.fence));
    }
    if let Some(expected) = change.expected.filter(|_| has(OLD_CHUNKS)) {
        command.arg(keys.chunks(id, expected));
    }
    if has(MARK) {
        command.arg(keys.mark(partition));
    }
    let expected: &[u8] = change.expected.as_ref().map_or(&[], |fence| fence.as_bytes());
    command.arg(expected).arg(member(id)).arg(&rows::head(&change.next)[..]);
    number(command, rows::micros_since(change.next.started));
    number(command, rows::micros_of(change.next.ttl));
    number(command, change.retain.and_then(|retain| rows::micros_of(Ttl::For(retain))));
    command.arg(body).arg(note).arg(flags);
}

/// A number, or nothing.
fn number<T: Copy + redis::ToRedisArgs>(command: &mut Cmd, number: Option<T>) {
    match number {
        Some(number) => command.arg(number),
        None => command.arg(""),
    };
}
