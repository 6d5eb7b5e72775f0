//! The value of a record, its keys, and what a value means.
//!
//! ```text
//! byte 0      version of this head
//! byte 1      state, by the numbers of the SQL stores
//! byte 2      fence, 16 bytes
//! byte 18     execution, 16 bytes
//! byte 34     flags: 0, for newer software
//! byte 35     first claim, last write, end of the ttl (0: none), time from which it may be swept:
//!             microseconds since 1970, 8 bytes each, big-endian; the server's script writes them
//! byte 67     the record as `wire` writes it
//! ```

use onceward_core::{Digest, Fence, Found, Record, Started, StoreError, Timestamp, Ttl};
use redis::Value;

use crate::store::sql::{
    codec::Codec,
    rows::{Row, Times, number_of},
};

/// The version of the head.
const VERSION: u8 = 1;

/// How long head and times are together.
pub(super) const HEAD_BYTES: usize = 67;

/// The longest time that the server's scripts can add to their clock without losing a microsecond.
const MAX_MICROS: u128 = 1 << 52;

/// What comes before the times.
pub(super) fn head(record: &Record) -> [u8; 35] {
    let mut head = [0; 35];
    head[0] = VERSION;
    head[1] = u8::try_from(number_of(&record.state)).unwrap_or(u8::MAX);
    head[2..18].copy_from_slice(record.fence.as_bytes());
    head[18..34].copy_from_slice(record.execution.as_bytes());
    head
}

/// A length of time as an argument: empty if it does not end.
pub(super) fn micros_of(ttl: Ttl) -> Option<u64> {
    match ttl {
        Ttl::For(length) => u64::try_from(length.as_micros().min(MAX_MICROS)).ok(),
        Ttl::Never => None,
    }
}

/// A time as an argument: empty for the server's now.
pub(super) fn micros_since(started: Started) -> Option<i64> {
    match started {
        Started::Now => None,
        Started::At(time) => Some(time.unix_micros().max(0)),
    }
}

/// The value of a key at a moment, as the record that it holds.
pub(super) fn row(mut value: Vec<u8>, read_at: Timestamp) -> Result<Row, StoreError> {
    if value.first().is_some_and(|version| *version > VERSION) {
        return Err(StoreError::Newer(format!(
            "a record has a head of version {}, this software knows {VERSION}; it was left alone: finish \
             the upgrade of this process",
            value[0]
        )));
    }
    let fence = fence_in(&value);
    let times = times_in(&value);
    value.drain(..HEAD_BYTES.min(value.len()));
    Ok(Row { fence, times, body: value, read_at })
}

/// Zeros stand where the value was cut off, as in the scripts, so that it can still be fenced.
pub(super) fn fence_in(value: &[u8]) -> Fence {
    let mut fence = [0; 16];
    let found = value.get(2..18.min(value.len())).unwrap_or_default();
    fence[..found.len()].copy_from_slice(found);
    Fence::from_random(fence)
}

fn times_in(value: &[u8]) -> Option<Times> {
    let at = |place: usize| {
        let bytes = value.get(place..place + 8)?.try_into().ok()?;
        i64::try_from(u64::from_be_bytes(bytes)).ok()
    };
    let (started, updated, ends) = (at(35)?, at(43)?, at(51)?);
    // The place is there too, or the value was cut off.
    at(59)?;
    Some(Times {
        started_at: Timestamp::from_unix_micros(started),
        updated_at: Timestamp::from_unix_micros(updated),
        expires_at: (ends > 0).then(|| Timestamp::from_unix_micros(ends)),
    })
}

/// What a read found.
pub(super) fn found(
    id: &Digest,
    value: Option<Vec<u8>>,
    read_at: Timestamp,
    codec: &Codec,
) -> Result<Found, StoreError> {
    match value {
        None => Ok(Found::Nothing),
        Some(value) => row(value, read_at)?.decode(id, codec),
    }
}

/// Of a reply: bytes, or nothing.
pub(super) fn bytes(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        other => Err(unexpected(&other)),
    }
}

/// Of a reply: a whole number.
pub(super) fn number(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| unexpected(value)),
        other => Err(unexpected(other)),
    }
}

/// Of a reply: several.
pub(super) fn several(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected(&other)),
    }
}

/// Of a reply to `TIME`.
pub(super) fn time(value: Value) -> Result<Timestamp, StoreError> {
    let parts = several(value)?;
    let [seconds, micros] = parts.as_slice() else { return Err(unexpected(&Value::Array(parts))) };
    let (seconds, micros) = (number(seconds)?, number(micros)?);
    Ok(Timestamp::from_unix_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

/// Kinds only: values may hold answers.
pub(super) fn unexpected(value: &Value) -> StoreError {
    let kind = match value {
        Value::Nil => "nothing",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "bytes",
        Value::Array(_) => "a list",
        Value::ServerError(_) => "an error",
        _ => "something else",
    };
    StoreError::Unusable(format!(
        "the server answers {kind} where that cannot be; is there a proxy between, or does other software use \
         the same key prefix?"
    ))
}

/// Of a reply: a score, which is a whole number of microseconds however the server writes it.
pub(super) fn score(value: &Value) -> Result<i64, StoreError> {
    match value {
        Value::Double(score) => Ok(*score as i64),
        Value::BulkString(bytes) => {
            let score = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<f64>().ok());
            score.map(|score| score as i64).ok_or_else(|| unexpected(value))
        }
        other => number(other),
    }
}
