//! What the view of operations says, beside what lists say: records in every state, with every effect, before and
//! after the end of their lease or retention, with everything that a record may have.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use onceward::{
    Digest, Effect, Execution, Fingerprint, Key, OperationId, OperationName, Outcome, Scope, State,
    Status, Timestamp,
    protocol::{
        Cause, Found, Keeps, Record, Started, Stored, StoredBody, Ttl, conformance::fresh_fence,
    },
    store::{Change, Filter, Inspect, Swap},
};

/// One operation, as text by the names of columns; times are microseconds since 1970.
pub(crate) type Line = BTreeMap<&'static str, Option<String>>;

/// Everything in the view, by reference.
pub(crate) type Lines = BTreeMap<String, Line>;

pub(crate) const COLUMNS: [&str; 16] = [
    "id",
    "scope",
    "operation",
    "key_digest",
    "request_hash",
    "status",
    "owner_execution",
    "response_code",
    "reference_type",
    "reference_id",
    "attempts",
    "started_at",
    "updated_at",
    "expires_at",
    "lease_until",
    "is_open",
];

/// The columns of one line of the view, in the order of [`COLUMNS`].
pub(crate) fn line(values: impl IntoIterator<Item = Option<String>>) -> (String, Line) {
    let line: Line = COLUMNS.into_iter().zip(values).collect();
    assert_eq!(line.len(), COLUMNS.len());
    (line["id"].clone().unwrap(), line)
}

const HOUR: Duration = Duration::from_secs(3600);
const AT_ONCE: Duration = Duration::from_micros(1);

fn effects() -> [Effect; 5] {
    let repeatable = |within| Effect::Repeatable { within };
    [
        Effect::Transactional,
        Effect::External,
        repeatable(HOUR),
        repeatable(Duration::ZERO),
        repeatable(Duration::from_micros(u64::MAX)),
    ]
}

fn states() -> [State; 6] {
    [
        State::InProgress,
        State::Succeeded(Outcome::inline(201, b"{}".to_vec()).header("location", b"/charges/7")),
        State::FailedFinal(Outcome::inline(422, Vec::new())),
        State::FailedRetryable,
        State::Unknown,
        State::Released,
    ]
}

/// Lengths of every form of a CBOR head, and every kind of body.
fn outcomes() -> Vec<Outcome> {
    let of_length = |length: usize| Outcome::inline(201, vec![0xff; length]);
    let reference = |kind: &str, id: &str| Outcome {
        body: StoredBody::Reference { kind: kind.into(), id: id.into() },
        ..Outcome::inline(201, Vec::new()).header("location", b"/a").trailer("t", b"1")
    };
    let mut outcomes: Vec<_> = [0, 23, 24, 255, 256, 65_536].map(of_length).into();
    outcomes.extend([23, 24, 255, 256, u16::MAX].map(|status| Outcome::inline(status, Vec::new())));
    outcomes.extend([
        reference("payment", "pay_7"),
        reference("", ""),
        reference("zahlung", "täglich \"7\" {}\\ 漢"),
        reference("long", &"x".repeat(300)),
        Outcome { body: StoredBody::Unavailable, ..of_length(0) },
        Outcome {
            body: StoredBody::Spooled { length: u64::MAX, digest: [0xff; 32] },
            ..of_length(0)
        },
        (0..30).fold(of_length(9), |outcome, at| outcome.header("x-line", &vec![0xff; at * 20])),
    ]);
    outcomes
}

fn record(state: State, effect: Effect, ttl: Ttl) -> Record {
    Record {
        scope: Scope::of("tenant", "acme").unwrap(),
        operation: OperationName::new("POST /charges").unwrap(),
        key_digest: Key::new("unused").unwrap().digest(),
        fence: fresh_fence(),
        execution: Execution::from_bytes(fastrand::u128(..).to_be_bytes()),
        effect,
        max_run: None,
        keeps: Keeps::Everything,
        fingerprint: Fingerprint::from_parts(1, [0xfe; 32]),
        attempts: 1,
        state,
        cause: None,
        started: Started::Now,
        ttl,
    }
}

/// Records of which every two differ in what the view has to read.
fn records() -> Vec<Record> {
    let mut records = Vec::new();
    for effect in effects() {
        for state in states() {
            for ttl in [Ttl::For(HOUR), Ttl::For(AT_ONCE), Ttl::Never] {
                records.push(record(state.clone(), effect, ttl));
            }
        }
    }
    let usual = |state| record(state, Effect::External, Ttl::For(HOUR));
    records.extend(outcomes().into_iter().map(State::Succeeded).map(usual));
    let unknown = || usual(State::Unknown);
    records.extend(
        [23, 24, 255, 256, 65_536, u32::MAX].map(|attempts| Record { attempts, ..unknown() }),
    );
    for max_run in [Duration::ZERO, HOUR, Duration::from_micros(u64::MAX)] {
        records.push(Record { max_run: Some(max_run), ..unknown() });
    }
    let awaited_until = Some(Timestamp::from_unix_micros(-7));
    for cause in [
        Cause::Answered(504),
        Cause::NoAnswer { within: HOUR, awaited_until },
        Cause::ConnectionLost,
        Cause::Held(500),
    ] {
        records.push(Record { cause: Some(cause), ..unknown() });
    }
    for keeps in [Keeps::StatusAndLocation, Keeps::Status] {
        records.push(Record { keeps, ..usual(State::InProgress) });
    }
    let parts = (0..16).map(|at| (format!("part-{at}"), "ü%,=漢".repeat(at * 3 + 1)));
    let scopes = [Scope::global(), Scope::new(parts).unwrap()];
    records.extend(scopes.map(|scope| Record { scope, ..unknown() }));
    let name = OperationName::new(&"o".repeat(200)).unwrap();
    records.push(Record { operation: name, ..usual(State::InProgress) });
    records
}

/// Stores them all, each as what its claim became.
pub(crate) async fn store_all(store: &impl Inspect) -> usize {
    let records = records();
    for (number, mut record) in records.iter().cloned().enumerate() {
        let key = Key::new(&format!("key-{number}")).unwrap();
        record.key_digest = key.digest();
        let id = OperationId::new(record.scope.clone(), record.operation.clone(), key).digest();
        swap(store, id, record).await;
    }
    records.len()
}

/// A claim, and then this record in its place.
pub(crate) async fn swap(store: &impl Inspect, id: Digest, record: Record) {
    let claim =
        Record { fence: fresh_fence(), state: State::InProgress, cause: None, ..record.clone() };
    let expected = Some(claim.fence);
    let first = Change { id, expected: None, next: claim, note: None, retain: Some(HOUR) };
    let Swap::Stored { at } = store.swap(&first).await.unwrap() else { panic!("{id} is not new") };
    let next = Record { started: Started::At(at), ..record };
    let change = Change { id, expected, next, note: None, retain: None };
    assert!(matches!(store.swap(&change).await.unwrap(), Swap::Stored { .. }), "{id}");
}

/// What a list says of every operation, in the words of the view.
pub(crate) async fn listed(store: &impl Inspect) -> Lines {
    let (mut lines, mut filter) = (Lines::new(), Filter { limit: 500, ..Filter::default() });
    loop {
        let page = store.list(&filter).await.unwrap();
        for listed in page.listed {
            let Found::Record(stored) = listed.found else { panic!("{listed:?}") };
            lines.extend([expected(listed.id, &stored)]);
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return lines,
        }
    }
}

fn expected(id: Digest, stored: &Stored) -> (String, Line) {
    let record = &stored.record;
    let outcome = match &record.state {
        State::Succeeded(outcome) | State::FailedFinal(outcome) => Some(outcome),
        _ => None,
    };
    let reference = outcome.and_then(|outcome| match &outcome.body {
        StoredBody::Reference { kind, id } => Some((kind.clone(), id.clone())),
        _ => None,
    });
    let has_lease = record.state == State::InProgress;
    let is_open =
        matches!(record.state, State::InProgress | State::Unknown | State::FailedRetryable);
    // A list says what is left; what is over ended at the time of reading, which no view says.
    let end = stored.expires_at().map(|at| match record.ttl.is_over() {
        true => "over".to_owned(),
        false => at.unix_micros().to_string(),
    });
    line([
        Some(id.to_string()),
        Some(record.scope.to_string()),
        Some(record.operation.as_str().to_owned()),
        Some(hex(&record.key_digest.0)),
        Some(hex(record.fingerprint.digest())),
        Some(stored.status().as_str().to_owned()),
        Some(format!("{id}.{}", record.execution)),
        outcome.map(|outcome| outcome.status.to_string()),
        reference.as_ref().map(|(kind, _)| kind.clone()),
        reference.map(|(_, id)| id),
        Some(record.attempts.to_string()),
        Some(stored.started_at().unix_micros().to_string()),
        Some(stored.updated_at.unix_micros().to_string()),
        end.clone().filter(|_| !has_lease),
        end.filter(|_| has_lease),
        Some(is_open.to_string()),
    ])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares line by line, so that a failure names the operation.
#[track_caller]
pub(crate) fn assert_same(view: &Lines, listed: &Lines) {
    assert_eq!(view.len(), listed.len());
    for (id, line) in listed {
        let mut shown = view[id].clone();
        for name in ["expires_at", "lease_until"] {
            if line[name].as_deref() == Some("over") {
                let end: i64 = shown[name].as_ref().unwrap().parse().unwrap();
                let updated: i64 = shown["updated_at"].as_ref().unwrap().parse().unwrap();
                assert_eq!(end, updated + 1, "{name} of {line:?}");
                shown.insert(name, Some("over".to_owned()));
            }
        }
        assert_eq!(shown, *line);
    }
}

/// Every word that a record alone can have is among them: with `clock_suspect` a process speaks of the clock.
#[track_caller]
pub(crate) fn assert_every_word(lines: &Lines) {
    let words: BTreeSet<_> = lines.values().map(|line| line["status"].clone().unwrap()).collect();
    let expected: BTreeSet<_> = Status::ALL
        .into_iter()
        .filter(|status| *status != Status::ClockSuspect)
        .map(|status| status.as_str().to_owned())
        .collect();
    assert_eq!(words, expected);
}
