//! The bytes of a record, for stores that keep it as a whole.
//!
//! ```text
//! byte 0      version of the format
//! …           a CBOR map with small integers as keys; unknown keys are passed over
//! last 8      checksum: the start of SHA-256(operation digest, all bytes before)
//! ```
//!
//! The fence and the times are not in it: a store keeps them as plain columns, because it compares
//! or computes with them, and so that a damaged record can still be fenced. The operation's digest
//! is under the checksum, so that a record cannot be mistaken for another's. Changes are additive:
//! a new member gets a new map key. Only what older software must not touch gets a new version.
//!
//! With a [`Seal`] an answer is one sealed member instead of its header lines, body and trailers; its
//! status stays readable. See [`encode_with`].
//!
//! ```
//! use onceward_core::{wire, *};
//!
//! # let operation = OperationId::new(Scope::global(), OperationName::new("pay")?, Key::new("k")?);
//! # let terms = Terms::of(Effect::External).build()?;
//! # let fingerprints = Fingerprint::from_parts(1, [0; 32]).into();
//! # let request = Request { operation, fingerprints, terms };
//! # let admission = Admission::new(request, Fence::from_random([1; 16]), Execution::from_bytes([2; 16]));
//! let Change { id, next: record, .. } = admission.change();
//! let bytes = wire::encode(id, record);
//! let plain = wire::Plain { fence: record.fence, started: record.started, ttl: record.ttl };
//! assert_eq!(wire::decode(id, &bytes, plain), Ok(record.clone()));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

mod cause;
mod sealed;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, string::String, vec::Vec};
use core::{convert::Infallible, error::Error, fmt, time::Duration};

use minicbor::{Decoder, Encoder, decode::Error as Unfit, encode::Error as EncodeError};
use sha2::{Digest as _, Sha256};

use crate::{
    Cause, Digest, Effect, Execution, Fence, Fingerprint, Header, Keeps, KeyDigest, OperationName,
    Outcome, Record, Scope, Seal, Started, State, StoredBody, Ttl,
};

pub use sealed::{open_chunk, seal_chunk};

/// The version that [`encode`] writes and the newest that [`decode`] reads.
pub const VERSION: u8 = 1;

const CHECKSUM_BYTES: usize = 8;

/// What a store keeps beside the bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The record's fence.
    pub fence: Fence,
    /// The time of the first claim.
    pub started: Started,
    /// What is left of the ttl.
    pub ttl: Ttl,
}

/// Why bytes are not a record that can be used.
///
/// ```
/// use onceward_core::{Found, StoreError, Unreadable, wire::{Plain, WireError}};
///
/// /// What a store answers where its bytes are not a record.
/// fn found(error: WireError, plain: Plain) -> Result<Found, StoreError> {
///     let why = match error {
///         WireError::Damaged => Unreadable::Damaged,
///         WireError::Sealed => Unreadable::Sealed,
///         WireError::Newer(_) => return Err(StoreError::Newer(error.to_string())),
///     };
///     Ok(Found::Unreadable { fence: plain.fence, why })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They are not what was written: the record counts as unknown.
    Damaged,
    /// It has ended, but its answer is sealed and cannot be opened here: with no key, with another one,
    /// or because it was changed. The record counts as unknown.
    Sealed,
    /// A newer version wrote them; this one must leave them alone.
    Newer(u8),
}

impl fmt::Display for WireError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => formatter.write_str(
                "the record is damaged; its outcome counts as unknown until an operator resolves it",
            ),
            Self::Sealed => formatter.write_str(
                "the record's answer is sealed and cannot be opened with the keys at hand; its outcome \
                 counts as unknown until the right key is there",
            ),
            Self::Newer(version) => write!(
                formatter,
                "the record has format {version}, this software knows {VERSION}; finish the upgrade"
            ),
        }
    }
}

impl Error for WireError {}

/// Writes a record as bytes.
#[must_use]
pub fn encode(id: &Digest, record: &Record) -> Vec<u8> {
    encode_with(id, record, None)
}

/// Writes a record as bytes, with its answer sealed if there is a seal.
///
/// What is sealed is bound to the operation, the execution, the state and the status: it cannot be
/// moved to another record, and these cannot be changed below it.
///
/// ```
/// use onceward_core::{wire::{self, WireError}, *};
///
/// fn is_hidden(id: &Digest, record: &Record, seal: &dyn Seal) -> bool {
///     let bytes = wire::encode_with(id, record, Some(seal));
///     let plain = wire::Plain { fence: record.fence, started: record.started, ttl: record.ttl };
///     assert_eq!(wire::decode_with(id, &bytes, plain, Some(seal)), Ok(record.clone()));
///     wire::decode(id, &bytes, plain) == Err(WireError::Sealed)
/// }
/// ```
#[must_use]
pub fn encode_with(id: &Digest, record: &Record, seal: Option<&dyn Seal>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES + body_bytes(record));
    bytes.push(VERSION);
    let done = put_record(&mut Encoder::new(&mut bytes), id, record, seal);
    done.expect("writing to a vector cannot fail");
    let checksum = checksum(id, &bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// What a record takes without its body, most often.
const USUAL_BYTES: usize = 512;

fn body_bytes(record: &Record) -> usize {
    match &record.state {
        State::Succeeded(outcome) | State::FailedFinal(outcome) => match &outcome.body {
            StoredBody::Inline(bytes) => bytes.len(),
            _ => 0,
        },
        _ => 0,
    }
}

/// Reads the bytes of a record: first the checksum, then the version.
pub fn decode(id: &Digest, bytes: &[u8], plain: Plain) -> Result<Record, WireError> {
    decode_with(id, bytes, plain, None)
}

/// Reads the bytes of a record, whether its answer is sealed or not.
///
/// ```
/// use onceward_core::{wire::{self, Plain, WireError}, Digest, Record, Seal};
///
/// /// Reads records also of the time before the store had a seal.
/// fn read(id: &Digest, bytes: &[u8], plain: Plain, seal: &dyn Seal) -> Result<Record, WireError> {
///     wire::decode_with(id, bytes, plain, Some(seal))
/// }
/// ```
pub fn decode_with(
    id: &Digest,
    bytes: &[u8],
    plain: Plain,
    seal: Option<&dyn Seal>,
) -> Result<Record, WireError> {
    let (content, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(WireError::Damaged)?;
    if checksum(id, content) != *sum {
        return Err(WireError::Damaged);
    }
    match content.split_first() {
        None => Err(WireError::Damaged),
        Some((&version, _)) if version > VERSION => Err(WireError::Newer(version)),
        Some((_, map)) => {
            let damaged = |_: Unfit| WireError::Damaged;
            let mut members = take_members(map).map_err(damaged)?;
            members.open(id, seal)?;
            members.into_record(plain).map_err(damaged)
        }
    }
}

fn checksum(id: &Digest, content: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let hash = Sha256::new().chain_update(id.0).chain_update(content).finalize();
    *hash.first_chunk().expect("a SHA-256 digest has 32 bytes")
}

/// The numbers of the states that have an outcome.
const SUCCEEDED: u8 = 1;
const FAILED_FINAL: u8 = 2;

/// The keys of the record's map. A number, once used, keeps its meaning.
mod member {
    pub(super) const SCOPE: u8 = 0;
    pub(super) const OPERATION: u8 = 1;
    pub(super) const KEY_DIGEST: u8 = 2;
    pub(super) const EXECUTION: u8 = 3;
    pub(super) const EFFECT: u8 = 4;
    pub(super) const WITHIN_MICROS: u8 = 5;
    pub(super) const FINGERPRINT_VERSION: u8 = 6;
    pub(super) const FINGERPRINT: u8 = 7;
    pub(super) const ATTEMPTS: u8 = 8;
    pub(super) const STATE: u8 = 9;
    pub(super) const STATUS: u8 = 10;
    pub(super) const HEADERS: u8 = 11;
    pub(super) const INLINE: u8 = 12;
    pub(super) const SPOOLED_LENGTH: u8 = 13;
    pub(super) const SPOOLED_DIGEST: u8 = 14;
    pub(super) const REFERENCE: u8 = 15;
    /// Left out when there are none.
    pub(super) const TRAILERS: u8 = 16;
    /// Left out where it was not said.
    pub(super) const MAX_RUN_MICROS: u8 = 17;
    /// Stands for everything of an answer but its status. Older software takes it for an answer that
    /// was not kept.
    pub(super) const SEALED: u8 = 18;
    /// Left out where everything may be kept. Always right before the state, where SQL looks for it.
    pub(super) const KEEPS: u8 = 19;
    /// Left out where the outcome is not unknown, or its writer did not say why.
    pub(super) const CAUSE: u8 = 20;
}

type Written = Result<(), EncodeError<Infallible>>;

fn put_record(
    encoder: &mut Encoder<&mut Vec<u8>>,
    id: &Digest,
    record: &Record,
    seal: Option<&dyn Seal>,
) -> Written {
    encoder.begin_map()?;
    encoder.u8(member::SCOPE)?.array(2 * record.scope.parts().len() as u64)?;
    for (name, value) in record.scope.parts() {
        encoder.str(name)?.str(value)?;
    }
    encoder.u8(member::OPERATION)?.str(record.operation.as_str())?;
    encoder.u8(member::KEY_DIGEST)?.bytes(&record.key_digest.0)?;
    encoder.u8(member::EXECUTION)?.bytes(record.execution.as_bytes())?;
    let (effect, within) = match record.effect {
        Effect::Transactional => (0, None),
        Effect::External => (1, None),
        Effect::Repeatable { within } => (2, Some(within)),
    };
    encoder.u8(member::EFFECT)?.u8(effect)?;
    if let Some(within) = within {
        encoder.u8(member::WITHIN_MICROS)?.u64(micros(within))?;
    }
    if let Some(max_run) = record.max_run {
        encoder.u8(member::MAX_RUN_MICROS)?.u64(micros(max_run))?;
    }
    if let Some(cause) = record.cause.filter(|_| record.state == State::Unknown) {
        encoder.u8(member::CAUSE)?;
        cause::put(encoder, cause)?;
    }
    encoder.u8(member::FINGERPRINT_VERSION)?.u8(record.fingerprint.version())?;
    encoder.u8(member::FINGERPRINT)?.bytes(record.fingerprint.digest())?;
    encoder.u8(member::ATTEMPTS)?.u32(record.attempts)?;
    let (state, outcome) = match &record.state {
        State::InProgress => (0, None),
        State::Succeeded(outcome) => (SUCCEEDED, Some(outcome)),
        State::FailedFinal(outcome) => (FAILED_FINAL, Some(outcome)),
        State::FailedRetryable => (3, None),
        State::Unknown => (4, None),
        State::Released => (5, None),
    };
    if let Some(keeps) = keeps_of(record, seal.is_some()) {
        encoder.u8(member::KEEPS)?.str(keeps)?;
    }
    encoder.u8(member::STATE)?.u8(state)?;
    if let Some(outcome) = outcome {
        encoder.u8(member::STATUS)?.u16(outcome.status)?;
        match seal {
            None => put_answer(encoder, outcome)?,
            Some(seal) => {
                let about = sealed::about_answer(id, &record.execution, state, outcome.status);
                let sealed = seal.seal(&sealed::answer(outcome)?, &about);
                encoder.u8(member::SEALED)?.bytes(&sealed)?;
            }
        }
    }
    encoder.end()?;
    Ok(())
}

/// What SQL may keep of an answer. It has no key: where answers are sealed, it keeps the status.
fn keeps_of(record: &Record, is_sealed: bool) -> Option<&'static str> {
    let is_open = matches!(record.state, State::InProgress | State::Unknown);
    match (record.keeps, is_sealed && is_open) {
        (Keeps::Everything, false) => None,
        (Keeps::Everything, true) => Some("sealed"),
        (Keeps::StatusAndLocation, false) => Some("location"),
        (Keeps::StatusAndLocation, true) => Some("sealed-location"),
        (Keeps::Status, _) => Some("status"),
    }
}

fn take_keeps(decoder: &mut Decoder<'_>) -> Result<Keeps, Unfit> {
    Ok(match decoder.str()? {
        "sealed" => Keeps::Everything,
        "location" | "sealed-location" => Keeps::StatusAndLocation,
        // Also what newer software says: the least is right in any case.
        _ => Keeps::Status,
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Everything of an outcome but its status.
fn put_answer(encoder: &mut Encoder<&mut Vec<u8>>, outcome: &Outcome) -> Written {
    encoder.u8(member::HEADERS)?;
    put_headers(encoder, &outcome.headers)?;
    match &outcome.body {
        StoredBody::Inline(bytes) => {
            encoder.u8(member::INLINE)?.bytes(bytes)?;
        }
        StoredBody::Spooled { length, digest } => {
            encoder.u8(member::SPOOLED_LENGTH)?.u64(*length)?;
            encoder.u8(member::SPOOLED_DIGEST)?.bytes(digest)?;
        }
        StoredBody::Reference { kind, id } => {
            encoder.u8(member::REFERENCE)?.array(2)?.str(kind)?.str(id)?;
        }
        StoredBody::Unavailable => {}
    }
    if !outcome.trailers.is_empty() {
        encoder.u8(member::TRAILERS)?;
        put_headers(encoder, &outcome.trailers)?;
    }
    Ok(())
}

fn put_headers(encoder: &mut Encoder<&mut Vec<u8>>, headers: &[Header]) -> Written {
    encoder.array(2 * headers.len() as u64)?;
    for (name, value) in headers {
        encoder.str(name)?.bytes(value)?;
    }
    Ok(())
}

/// Everything that a map may hold, before all of it was read.
#[derive(Default)]
struct Members {
    scope: Option<Scope>,
    operation: Option<OperationName>,
    key_digest: Option<[u8; 32]>,
    execution: Option<[u8; 16]>,
    effect: Option<u8>,
    within: Option<Duration>,
    max_run: Option<Duration>,
    keeps: Keeps,
    cause: Option<Cause>,
    fingerprint_version: Option<u8>,
    fingerprint: Option<[u8; 32]>,
    attempts: Option<u32>,
    state: Option<u8>,
    status: Option<u16>,
    headers: Vec<Header>,
    body: Option<StoredBody>,
    spooled_length: Option<u64>,
    trailers: Vec<Header>,
    sealed: Option<Vec<u8>>,
}

fn take_members(map: &[u8]) -> Result<Members, Unfit> {
    let decoder = &mut Decoder::new(map);
    let mut members = Members::default();
    let length = decoder.map()?;
    let mut count = 0;
    while length.map_or(decoder.datatype()? != minicbor::data::Type::Break, |length| count < length)
    {
        count += 1;
        match decoder.u8()? {
            member::SCOPE => members.scope = Some(take_scope(decoder)?),
            member::OPERATION => {
                let name = OperationName::new(decoder.str()?).map_err(Unfit::message)?;
                members.operation = Some(name);
            }
            member::KEY_DIGEST => members.key_digest = Some(take_array(decoder)?),
            member::EXECUTION => members.execution = Some(take_array(decoder)?),
            member::EFFECT => members.effect = Some(decoder.u8()?),
            member::WITHIN_MICROS => members.within = Some(Duration::from_micros(decoder.u64()?)),
            member::MAX_RUN_MICROS => members.max_run = Some(Duration::from_micros(decoder.u64()?)),
            member::CAUSE => members.cause = cause::take(decoder)?,
            member::KEEPS => members.keeps = take_keeps(decoder)?,
            member::FINGERPRINT_VERSION => members.fingerprint_version = Some(decoder.u8()?),
            member::FINGERPRINT => members.fingerprint = Some(take_array(decoder)?),
            member::ATTEMPTS => members.attempts = Some(decoder.u32()?),
            member::STATE => members.state = Some(decoder.u8()?),
            member::STATUS => members.status = Some(decoder.u16()?),
            member::HEADERS => members.headers = take_headers(decoder)?,
            member::INLINE => members.body = Some(StoredBody::Inline(decoder.bytes()?.to_vec())),
            member::SPOOLED_LENGTH => members.spooled_length = Some(decoder.u64()?),
            member::SPOOLED_DIGEST => {
                let (length, digest) = (needed(members.spooled_length)?, take_array(decoder)?);
                members.body = Some(StoredBody::Spooled { length, digest });
            }
            member::REFERENCE => {
                decoder.array()?;
                let (kind, id) = (String::from(decoder.str()?), String::from(decoder.str()?));
                members.body = Some(StoredBody::Reference { kind, id });
            }
            member::TRAILERS => members.trailers = take_headers(decoder)?,
            member::SEALED => members.sealed = Some(decoder.bytes()?.to_vec()),
            _ => decoder.skip()?,
        }
    }
    if length.is_none() {
        decoder.skip()?;
    }
    if decoder.position() != map.len() {
        return Err(Unfit::message("bytes after the record"));
    }
    Ok(members)
}

impl Members {
    fn into_record(mut self, plain: Plain) -> Result<Record, Unfit> {
        let effect = match (needed(self.effect)?, self.within) {
            (0, _) => Effect::Transactional,
            (1, _) => Effect::External,
            (2, Some(within)) => Effect::Repeatable { within },
            _ => return Err(Unfit::message("unknown effect")),
        };
        let state = match needed(self.state)? {
            0 => State::InProgress,
            SUCCEEDED => State::Succeeded(self.take_outcome()?),
            FAILED_FINAL => State::FailedFinal(self.take_outcome()?),
            3 => State::FailedRetryable,
            4 => State::Unknown,
            5 => State::Released,
            _ => return Err(Unfit::message("unknown state")),
        };
        Ok(Record {
            scope: needed(self.scope)?,
            operation: needed(self.operation)?,
            key_digest: KeyDigest(needed(self.key_digest)?),
            fence: plain.fence,
            execution: Execution::from_bytes(needed(self.execution)?),
            effect,
            max_run: self.max_run,
            keeps: self.keeps,
            fingerprint: Fingerprint::from_parts(
                needed(self.fingerprint_version)?,
                needed(self.fingerprint)?,
            ),
            attempts: needed(self.attempts)?,
            cause: self.cause,
            state,
            started: plain.started,
            ttl: plain.ttl,
        })
    }

    fn take_outcome(&mut self) -> Result<Outcome, Unfit> {
        Ok(Outcome {
            status: needed(self.status)?,
            headers: core::mem::take(&mut self.headers),
            body: self.body.take().unwrap_or(StoredBody::Unavailable),
            trailers: core::mem::take(&mut self.trailers),
        })
    }
}

fn needed<T>(member: Option<T>) -> Result<T, Unfit> {
    member.ok_or_else(|| Unfit::message("a member is missing"))
}

fn take_array<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], Unfit> {
    decoder.bytes()?.try_into().map_err(Unfit::message)
}

fn take_scope(decoder: &mut Decoder<'_>) -> Result<Scope, Unfit> {
    let pairs = needed(decoder.array()?)? / 2;
    if pairs == 0 {
        return Ok(Scope::global());
    }
    let parts = (0..pairs).map(|_| Ok((decoder.str()?, decoder.str()?)));
    let parts = parts.collect::<Result<Vec<_>, Unfit>>()?;
    Scope::new(parts).map_err(Unfit::message)
}

fn take_headers(decoder: &mut Decoder<'_>) -> Result<Vec<Header>, Unfit> {
    let pairs = needed(decoder.array()?)? / 2;
    (0..pairs).map(|_| Ok((Box::from(decoder.str()?), Box::from(decoder.bytes()?)))).collect()
}
