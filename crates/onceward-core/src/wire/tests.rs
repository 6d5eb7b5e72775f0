//! The format, from outside and by hand.

use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

const ID: Digest = Digest([7; 32]);

fn record(state: State, effect: Effect) -> Record {
    Record {
        scope: Scope::new([("tenant", "acme"), ("user", "7")]).unwrap(),
        operation: OperationName::new("POST /charges").unwrap(),
        key_digest: KeyDigest([1; 32]),
        fence: Fence::from_random([2; 16]),
        execution: Execution::from_bytes([3; 16]),
        effect,
        max_run: None,
        keeps: Keeps::Everything,
        fingerprint: Fingerprint::from_parts(1, [4; 32]),
        attempts: 2,
        state,
        cause: None,
        started: Started::At(crate::Timestamp::from_unix_micros(5)),
        ttl: Ttl::For(Duration::from_secs(6)),
    }
}

fn read(bytes: &[u8]) -> Result<Record, WireError> {
    let Record { fence, started, ttl, .. } = record(State::Unknown, Effect::External);
    decode(&ID, bytes, Plain { fence, started, ttl })
}

/// Appends a checksum to what a test has put together by hand.
fn summed(content: &[u8]) -> Vec<u8> {
    [content, &checksum(&ID, content)].concat()
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    let body = prop_oneof![
        any::<Vec<u8>>().prop_map(StoredBody::Inline),
        any::<(u64, [u8; 32])>()
            .prop_map(|(length, digest)| StoredBody::Spooled { length, digest }),
        any::<(String, String)>().prop_map(|(kind, id)| StoredBody::Reference { kind, id }),
        Just(StoredBody::Unavailable),
    ];
    let header = any::<(String, Vec<u8>)>()
        .prop_map(|(name, value)| (name.into_boxed_str(), value.into_boxed_slice()));
    let headers = proptest::collection::vec(header, 0..5);
    (any::<u16>(), headers.clone(), body, headers)
        .prop_map(|(status, headers, body, trailers)| Outcome { status, headers, body, trailers })
}

fn states() -> impl Strategy<Value = State> {
    prop_oneof![
        Just(State::InProgress),
        outcomes().prop_map(State::Succeeded),
        outcomes().prop_map(State::FailedFinal),
        Just(State::FailedRetryable),
        Just(State::Unknown),
        Just(State::Released),
    ]
}

fn effects() -> impl Strategy<Value = Effect> {
    prop_oneof![
        Just(Effect::Transactional),
        Just(Effect::External),
        any::<u64>()
            .prop_map(|micros| Effect::Repeatable { within: Duration::from_micros(micros) }),
    ]
}

fn keeps() -> impl Strategy<Value = Keeps> {
    prop_oneof![Just(Keeps::Everything), Just(Keeps::StatusAndLocation), Just(Keeps::Status)]
}

proptest! {
    #[test]
    fn every_record_is_read_back(
        state in states(), effect in effects(), max_run: Option<u64>, keeps in keeps(),
    ) {
        let max_run = max_run.map(Duration::from_micros);
        let record = Record { max_run, keeps, ..record(state, effect) };
        prop_assert_eq!(read(&encode(&ID, &record)), Ok(record));
    }

    #[test]
    fn every_flipped_bit_is_noticed(state in states(), place: prop::sample::Index, bit in 0..8) {
        let mut bytes = encode(&ID, &record(state, Effect::External));
        let place = place.index(bytes.len());
        bytes[place] ^= 1u8 << bit;
        prop_assert_eq!(read(&bytes), Err(WireError::Damaged));
    }

    #[test]
    fn every_cut_is_noticed(state in states(), length: prop::sample::Index) {
        let bytes = encode(&ID, &record(state, Effect::External));
        prop_assert_eq!(read(&bytes[..length.index(bytes.len())]), Err(WireError::Damaged));
    }

    /// Also with a right checksum, as a hostile or buggy writer would have it.
    #[test]
    fn any_bytes_are_a_record_or_an_error(content: Vec<u8>) {
        let _ = read(&content);
        let _ = read(&summed(&content));
        let _ = read(&summed(&[&[VERSION][..], &content].concat()));
    }
}

#[test]
fn a_record_of_another_operation_is_damaged() {
    let bytes = encode(&Digest([8; 32]), &record(State::Unknown, Effect::External));
    assert_eq!(read(&bytes), Err(WireError::Damaged));
}

#[test]
fn a_newer_version_is_told_apart_from_damage() {
    let mut bytes = encode(&ID, &record(State::Unknown, Effect::External));
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    bytes[0] = VERSION + 1;
    assert_eq!(read(&summed(&bytes)), Err(WireError::Newer(VERSION + 1)));
    assert!(WireError::Newer(2).to_string().contains("upgrade"));
}

#[test]
fn unknown_members_are_passed_over() {
    let record = record(State::Succeeded(Outcome::inline(200, Vec::new())), Effect::External);
    let mut bytes = encode(&ID, &record);
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    assert_eq!(bytes.pop(), Some(0xff), "the end of the map");
    // Member 200 with an array of a text and a number, as newer software may add it.
    bytes.extend_from_slice(&[0x18, 200, 0x82, 0x61, b'x', 0x01, 0xff]);
    assert_eq!(read(&summed(&bytes)), Ok(record));
}

/// SQL cannot read CBOR: it looks at the last bytes of an open record. No number of attempts looks like them.
#[test]
fn what_sql_may_keep_stands_right_before_the_state() {
    let seal: &dyn Seal = &Xor(9);
    for (keeps, seal, end) in [
        (Keeps::Everything, None, &b""[..]),
        (Keeps::Everything, Some(seal), b"\x13\x66sealed"),
        (Keeps::StatusAndLocation, None, b"\x13\x68location"),
        (Keeps::StatusAndLocation, Some(seal), b"\x13\x6fsealed-location"),
        (Keeps::Status, None, b"\x13\x66status"),
        (Keeps::Status, Some(seal), b"\x13\x66status"),
    ] {
        for (state, number) in [(State::InProgress, 0), (State::Unknown, 4)] {
            let record = Record { keeps, ..record(state, Effect::Transactional) };
            let bytes = encode_with(&ID, &record, seal);
            let content = &bytes[..bytes.len() - CHECKSUM_BYTES];
            let attempts = [member::ATTEMPTS, 2];
            let expected = [&attempts, end, &[member::STATE, number, 0xff]].concat();
            assert!(content.ends_with(&expected), "{keeps:?} {content:x?}");
        }
    }
}

/// What is on disks must be readable for ever: these bytes were written by version 0.1.0.
#[test]
fn the_first_format_is_still_read() {
    let within = Duration::from_secs(60);
    let outcome = Outcome::inline(201, Vec::from(*b"ok")).header("a", b"\xff");
    let record = record(State::Succeeded(outcome), Effect::Repeatable { within });
    let golden = include_bytes!("../wire_v1.golden");
    assert_eq!(read(golden), Ok(record.clone()));
    assert_eq!(encode(&ID, &record), golden);
}

/// The first format with trailers, put together by hand and not by this code.
#[test]
fn trailers_are_one_more_member_of_the_first_format() {
    let within = Duration::from_secs(60);
    let outcome = Outcome::inline(201, Vec::from(*b"ok"))
        .header("a", b"\xff")
        .trailer("t", b"\xfe")
        .trailer("t", b"");
    let record = record(State::Succeeded(outcome), Effect::Repeatable { within });
    let golden = include_bytes!("../wire_v1_trailers.golden");
    assert_eq!(read(golden), Ok(record.clone()));
    assert_eq!(encode(&ID, &record), golden);
}

/// Hides with a byte and knows its own by a digest: enough to see what is sealed, and about what.
struct Xor(u8);

impl Xor {
    fn tag(&self, plain: &[u8], about: &[u8]) -> [u8; 32] {
        Sha256::new()
            .chain_update([self.0])
            .chain_update(about)
            .chain_update(plain)
            .finalize()
            .into()
    }
}

impl Seal for Xor {
    fn seal(&self, plain: &[u8], about: &[u8]) -> Vec<u8> {
        let hidden = plain.iter().map(|byte| byte ^ self.0);
        hidden.chain(self.tag(plain, about)).collect()
    }

    fn open(&self, sealed: &[u8], about: &[u8]) -> Option<Vec<u8>> {
        let (hidden, tag) = sealed.split_last_chunk::<32>()?;
        let plain: Vec<u8> = hidden.iter().map(|byte| byte ^ self.0).collect();
        (self.tag(&plain, about) == *tag).then_some(plain)
    }
}

fn plain() -> Plain {
    let Record { fence, started, ttl, .. } = record(State::Unknown, Effect::External);
    Plain { fence, started, ttl }
}

fn open(bytes: &[u8], seal: &Xor) -> Result<Record, WireError> {
    decode_with(&ID, bytes, plain(), Some(seal))
}

fn secret() -> Record {
    let outcome = Outcome::inline(201, b"a secret body".to_vec())
        .header("x-secret", b"a secret header")
        .trailer("x-trailer", b"a secret trailer");
    record(State::Succeeded(outcome), Effect::External)
}

proptest! {
    #[test]
    fn every_sealed_record_is_read_back(
        state in states(), effect in effects(), keeps in keeps(),
    ) {
        let record = Record { keeps, ..record(state, effect) };
        prop_assert_eq!(open(&encode_with(&ID, &record, Some(&Xor(9))), &Xor(9)), Ok(record));
    }

    #[test]
    fn every_plain_record_is_read_with_a_seal_too(state in states()) {
        let record = record(state, Effect::External);
        prop_assert_eq!(open(&encode(&ID, &record), &Xor(9)), Ok(record));
    }

    /// With a right checksum, as an attacker has it who knows the format but not the key.
    #[test]
    fn every_changed_byte_of_what_is_sealed_is_noticed(place: prop::sample::Index, to: u8) {
        let (mut bytes, (start, end)) = (encode_with(&ID, &secret(), Some(&Xor(9))), span());
        let place = start + place.index(end - start);
        prop_assume!(bytes[place] != to);
        bytes[place] = to;
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        prop_assert_eq!(open(&summed(&bytes), &Xor(9)), Err(WireError::Sealed));
    }
}

/// Where the sealed bytes of the secret record are.
fn span() -> (usize, usize) {
    let bytes = encode_with(&ID, &secret(), Some(&Xor(9)));
    let end = bytes.len() - CHECKSUM_BYTES - 1;
    let State::Succeeded(outcome) = secret().state else { unreachable!() };
    (end - sealed::answer(&outcome).unwrap().len() - 32, end)
}

#[test]
fn nothing_of_a_sealed_answer_can_be_read_but_its_status() {
    let bytes = encode_with(&ID, &secret(), Some(&Xor(9)));
    let shows = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    for text in [&b"a secret body"[..], b"x-secret", b"a secret header", b"x-trailer"] {
        assert!(shows(&encode(&ID, &secret()), text), "this test would notice");
        assert!(!shows(&bytes, text));
    }
    // The status, as CBOR has it.
    assert!(shows(&bytes, &[member::STATUS, 0x18, 201]));
}

#[test]
fn a_sealed_answer_is_not_read_without_its_key() {
    let bytes = encode_with(&ID, &secret(), Some(&Xor(9)));
    assert_eq!(read(&bytes), Err(WireError::Sealed));
    assert_eq!(open(&bytes, &Xor(8)), Err(WireError::Sealed));
    assert!(WireError::Sealed.to_string().contains("key"));
}

#[test]
fn a_sealed_answer_cannot_be_moved_nor_its_record_be_changed_below_it() {
    let sealed_bytes = |id: &Digest, record: &Record| encode_with(id, record, Some(&Xor(9)));
    let (start, end) = span();
    let moved_from = |id: &Digest, record: &Record| {
        let other = sealed_bytes(id, record);
        let mut bytes = sealed_bytes(&ID, &secret());
        bytes.splice(start..end, other[start..end].iter().copied());
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        open(&summed(&bytes), &Xor(9))
    };
    assert_eq!(moved_from(&ID, &secret()), Ok(secret()), "the same answer fits");
    assert_eq!(moved_from(&Digest([8; 32]), &secret()), Err(WireError::Sealed));
    let other_run = Record { execution: Execution::from_bytes([4; 16]), ..secret() };
    assert_eq!(moved_from(&ID, &other_run), Err(WireError::Sealed));
    let State::Succeeded(outcome) = secret().state else { unreachable!() };
    let failed = Record { state: State::FailedFinal(outcome.clone()), ..secret() };
    assert_eq!(moved_from(&ID, &failed), Err(WireError::Sealed));
    let other_status = Outcome { status: 202, ..outcome };
    let other_status = Record { state: State::Succeeded(other_status), ..secret() };
    assert_eq!(moved_from(&ID, &other_status), Err(WireError::Sealed));
}

#[test]
fn only_what_has_ended_has_a_sealed_answer() {
    let mut bytes = encode(&ID, &record(State::InProgress, Effect::External));
    bytes.truncate(bytes.len() - CHECKSUM_BYTES);
    assert_eq!(bytes.pop(), Some(0xff), "the end of the map");
    bytes.extend_from_slice(&[member::SEALED, 0x41, 0, 0xff]);
    assert_eq!(open(&summed(&bytes), &Xor(9)), Err(WireError::Damaged));
}

#[test]
fn a_chunk_is_opened_only_in_its_place() {
    let id = crate::SpoolId { operation: ID, fence: Fence::from_random([2; 16]) };
    let sealed = seal_chunk(&Xor(9), &id, 3, b"a chunk");
    assert_eq!(open_chunk(&Xor(9), &id, 3, sealed.clone()), b"a chunk");
    let elsewhere = crate::SpoolId { fence: Fence::from_random([3; 16]), ..id };
    for (id, index, key) in [(&id, 4, 9), (&elsewhere, 3, 9), (&id, 3, 8)] {
        assert_eq!(open_chunk(&Xor(key), id, index, sealed.clone()), sealed, "as it is");
    }
    assert_eq!(open_chunk(&Xor(9), &id, 3, b"plain".to_vec()), b"plain");
}

#[test]
fn a_cause_comes_back_and_only_with_an_unknown_outcome() {
    let until = Some(crate::Timestamp::from_unix_micros(-7));
    let within = Duration::from_millis(2500);
    let unknown = |cause| Record { cause, ..record(State::Unknown, Effect::External) };
    for cause in [
        Cause::Answered(504),
        Cause::NoAnswer { within, awaited_until: None },
        Cause::NoAnswer { within, awaited_until: until },
        Cause::ConnectionLost,
        Cause::ServiceFailed,
        Cause::Held(500),
    ] {
        let written = unknown(Some(cause));
        assert_eq!(read(&encode(&ID, &written)), Ok(written), "{cause:?}");
        let ended = Record { cause: Some(cause), ..record(State::Released, Effect::External) };
        assert_eq!(read(&encode(&ID, &ended)).unwrap().cause, None, "{cause:?}");
    }
}

/// What ends an operation by SQL looks for the state in the last bytes.
#[test]
fn a_record_with_a_cause_still_ends_with_its_state() {
    let cause = Some(Cause::Answered(504));
    let bytes = encode(&ID, &Record { cause, ..record(State::Unknown, Effect::External) });
    let content = bytes.strip_suffix(&bytes[bytes.len() - CHECKSUM_BYTES..]).unwrap();
    assert!(content.ends_with(&[member::STATE, 4, 0xff]));
}
