//! Why an outcome is unknown, as bytes: an array of a kind and its numbers.

use core::time::Duration;

use minicbor::{Decoder, Encoder, decode::Error as Unfit};

use super::{Vec, Written, micros};
use crate::{Cause, Timestamp};

const ANSWERED: u8 = 0;
const NO_ANSWER: u8 = 1;
const CONNECTION_LOST: u8 = 2;
const SERVICE_FAILED: u8 = 3;
const HELD: u8 = 4;

pub(super) fn put(encoder: &mut Encoder<&mut Vec<u8>>, cause: Cause) -> Written {
    match cause {
        Cause::Answered(status) => encoder.array(2)?.u8(ANSWERED)?.u16(status)?,
        Cause::NoAnswer { within, awaited_until: None } => {
            encoder.array(2)?.u8(NO_ANSWER)?.u64(micros(within))?
        }
        Cause::NoAnswer { within, awaited_until: Some(until) } => {
            encoder.array(3)?.u8(NO_ANSWER)?.u64(micros(within))?.i64(until.unix_micros())?
        }
        Cause::ConnectionLost => encoder.array(1)?.u8(CONNECTION_LOST)?,
        Cause::ServiceFailed => encoder.array(1)?.u8(SERVICE_FAILED)?,
        Cause::Held(status) => encoder.array(2)?.u8(HELD)?.u16(status)?,
        // These are read off a record's times, and never written.
        Cause::OwnerVanished { .. } | Cause::TooOldToRepeat => encoder.array(0)?,
    };
    Ok(())
}

/// `None`: newer software wrote a cause that this one does not know.
pub(super) fn take(decoder: &mut Decoder<'_>) -> Result<Option<Cause>, Unfit> {
    let length = super::needed(decoder.array()?)?;
    if length == 0 {
        return Ok(None);
    }
    let kind = decoder.u8()?;
    let (cause, known) = match (kind, length) {
        (ANSWERED, 2..) => (Some(Cause::Answered(decoder.u16()?)), 2),
        (NO_ANSWER, 2..) => {
            let within = Duration::from_micros(decoder.u64()?);
            let until = (length > 2).then(|| decoder.i64()).transpose()?;
            let awaited_until = until.map(Timestamp::from_unix_micros);
            (Some(Cause::NoAnswer { within, awaited_until }), length.min(3))
        }
        (CONNECTION_LOST, _) => (Some(Cause::ConnectionLost), 1),
        (SERVICE_FAILED, _) => (Some(Cause::ServiceFailed), 1),
        (HELD, 2..) => (Some(Cause::Held(decoder.u16()?)), 2),
        _ => (None, 1),
    };
    for _ in known..length {
        decoder.skip()?;
    }
    Ok(cause)
}
