//! What clients asked for and what they heard, as plain data, and the ledger of what was done.
//!
//! Times are lengths since one common start, so that a history can also be written by hand.

mod answer;

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Formatter},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use answer::{Answer, Digest, Reply, classify};

/// Whose operation it is, and its key: the same key of two scopes is two operations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationName {
    /// The principal.
    pub scope: String,
    /// The idempotency key.
    pub key: String,
}

impl OperationName {
    /// The operation with this key in this scope.
    pub fn new(scope: impl Into<String>, key: impl Into<String>) -> Self {
        Self { scope: scope.into(), key: key.into() }
    }
}

impl Display for OperationName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` of `{}`", self.key, self.scope)
    }
}

/// Something that a client wants to happen once. All its attempts send the same payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Whose it is, and its key.
    pub name: OperationName,
    /// What is asked for, as the ledger will spell it.
    pub payload: String,
    /// The whole body of its ok, where it can be told beforehand: it shows a truncated answer, and
    /// somebody else's.
    pub body: Option<Digest>,
}

impl Operation {
    /// An operation whose answer cannot be told beforehand.
    pub fn new(name: OperationName, payload: impl Into<String>) -> Self {
        Self { name, payload: payload.into(), body: None }
    }

    /// Says what the body of its ok must be.
    #[must_use]
    pub fn body(mut self, body: Digest) -> Self {
        self.body = Some(body);
        self
    }
}

/// One request, from the first byte sent until the client knew what came of it or gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was asked for.
    pub operation: OperationName,
    /// Before the first byte was sent.
    pub started: Duration,
    /// After the last byte was read, or the client gave up.
    pub ended: Duration,
    /// What came back.
    pub answer: Answer,
}

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// For which operation it was done.
    pub operation: OperationName,
    /// What was done.
    pub payload: String,
    /// When.
    pub at: Duration,
}

/// Everything that was done, read outside the system, from where nothing forbids a second line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// In any order.
    pub effects: Vec<Effect>,
}

/// What the system finally says about an operation, once faults have stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happened, and this is its answer.
    Ok(Reply),
    /// It failed for good, and this is its answer.
    BoundFailure(Reply),
    /// Nothing happened, and the key is free.
    NothingHappened(Reply),
    /// Nobody knows whether it happened, and it will not run again by itself.
    Unknown,
    /// The system never came to a word.
    NotEnded,
}

impl Verdict {
    /// What an answer says about the end of its operation.
    #[must_use]
    pub fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Ok(reply) => Self::Ok(reply.clone()),
            Answer::BoundFailure(reply) => Self::BoundFailure(reply.clone()),
            Answer::NothingHappened(reply) => Self::NothingHappened(reply.clone()),
            Answer::OutcomeUnknown(_) => Self::Unknown,
            Answer::NothingRan(_) | Answer::Unclear(_) | Answer::Lost(_) => Self::NotEnded,
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok(reply) => write!(formatter, "ok {reply}"),
            Self::BoundFailure(reply) => write!(formatter, "bound failure {reply}"),
            Self::NothingHappened(reply) => write!(formatter, "nothing happened {reply}"),
            Self::Unknown => formatter.write_str("unknown"),
            Self::NotEnded => formatter.write_str("not ended"),
        }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The system's last word.
    pub verdict: Verdict,
    /// When a client could first know that it had ended.
    pub at: Duration,
}

/// Everything that clients asked for and heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What was asked for at all; whoever sends an attempt puts its operation here first.
    pub operations: BTreeMap<OperationName, Operation>,
    /// Every attempt, in any order.
    pub attempts: Vec<Attempt>,
    /// The last word about each operation; see [`History::conclude`].
    pub endings: BTreeMap<OperationName, Ending>,
    /// After this nothing is broken on purpose any more.
    pub faults_stopped_at: Duration,
    /// How long a claim is held without being renewed.
    pub lease: Duration,
}

impl History {
    /// Nothing was asked for yet, in a system with this lease.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        Self { lease, ..Self::default() }
    }

    /// Notes that an operation is about to be asked for.
    ///
    /// # Panics
    ///
    /// If the same operation was asked for with another payload: that is a mistake in the test.
    pub fn ask(&mut self, operation: Operation) {
        if let Some(known) = self.operations.get(&operation.name) {
            assert_eq!(*known, operation, "one operation has one payload");
        }
        self.operations.insert(operation.name.clone(), operation);
    }

    /// Adds what another client saw, counted from the same start.
    ///
    /// # Panics
    ///
    /// If both asked for the same operation with different payloads.
    pub fn merge(&mut self, other: Self) {
        other.operations.into_values().for_each(|operation| self.ask(operation));
        self.attempts.extend(other.attempts);
        self.endings.extend(other.endings);
        self.faults_stopped_at = self.faults_stopped_at.max(other.faults_stopped_at);
        self.lease = self.lease.max(other.lease);
    }

    /// Takes every ending from the attempts that were started after faults had stopped.
    ///
    /// The verdict is what the last of them heard. It had ended when an equal verdict was first
    /// heard; of a word that binds nothing, only words after the faults count.
    pub fn conclude(&mut self) {
        let mut attempts: Vec<&Attempt> = self.attempts.iter().collect();
        attempts.sort_by_key(|attempt| attempt.ended);
        let mut endings = BTreeMap::new();
        let calm = |attempt: &Attempt| attempt.started >= self.faults_stopped_at;
        for attempt in attempts.iter().filter(|attempt| calm(attempt)) {
            let verdict = Verdict::of(&attempt.answer);
            endings.insert(attempt.operation.clone(), Ending { verdict, at: attempt.ended });
        }
        // From the last to the first, so that the earliest counts.
        for attempt in attempts.iter().rev() {
            let Some(ending) = endings.get_mut(&attempt.operation) else { continue };
            let counts = attempt.answer.bound().is_some() || calm(attempt);
            if counts && is_same_word(&ending.verdict, &attempt.answer) {
                ending.at = attempt.ended;
            }
        }
        self.endings = endings;
    }
}

fn is_same_word(verdict: &Verdict, answer: &Answer) -> bool {
    match (verdict, answer) {
        (Verdict::Ok(one), Answer::Ok(other))
        | (Verdict::BoundFailure(one), Answer::BoundFailure(other)) => one.is_same(other),
        (Verdict::NothingHappened(_), Answer::NothingHappened(_))
        | (Verdict::Unknown, Answer::OutcomeUnknown(_)) => true,
        _ => false,
    }
}

/// A history that many clients of one process write together; clones write into the same one.
#[derive(Clone, Debug)]
pub struct Recorder {
    start: Instant,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// The common start is now.
    #[must_use]
    pub fn new(lease: Duration) -> Self {
        let history = Arc::new(Mutex::new(History::new(lease)));
        Self { start: Instant::now(), history }
    }

    /// The time since the common start.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes that an operation is about to be asked for.
    ///
    /// # Panics
    ///
    /// If the same operation was asked for with another payload.
    pub fn ask(&self, operation: Operation) {
        self.write().ask(operation);
    }

    /// Notes an attempt that has just ended.
    pub fn heard(&self, operation: OperationName, started: Duration, answer: Answer) {
        let ended = self.now();
        self.write().attempts.push(Attempt { operation, started, ended, answer });
    }

    /// Notes that nothing is broken on purpose from now on.
    pub fn faults_stop(&self) {
        let now = self.now();
        self.write().faults_stopped_at = now;
    }

    /// What was written until now, with the endings that follow from it.
    #[must_use]
    pub fn history(&self) -> History {
        let mut history = self.write().clone();
        history.conclude();
        history
    }

    fn write(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> OperationName {
        OperationName::new("alice", "k1")
    }

    fn reply(status: u16) -> Reply {
        Reply::new(status, Digest::of("headers"), Digest::of("body"))
    }

    fn attempt(started: u64, answer: Answer) -> Attempt {
        let (started, ended) = (Duration::from_secs(started), Duration::from_secs(started + 1));
        Attempt { operation: name(), started, ended, answer }
    }

    fn concluded(attempts: Vec<Attempt>) -> Option<Ending> {
        let mut history = History::new(Duration::from_secs(2));
        history.ask(Operation::new(name(), "5"));
        history.faults_stopped_at = Duration::from_secs(10);
        history.attempts = attempts;
        history.conclude();
        history.endings.remove(&name())
    }

    #[test]
    fn a_verdict_is_the_last_word_and_dates_from_its_first_hearing() {
        let (ok, lost) = (Answer::Ok(reply(201)), Answer::Lost("reset".into()));
        let at =
            |ending: Option<Ending>| ending.map(|ending| (ending.verdict, ending.at.as_secs()));
        let heard = vec![attempt(12, ok.clone()), attempt(3, ok.clone()), attempt(1, lost.clone())];
        assert_eq!(at(concluded(heard)), Some((Verdict::Ok(reply(201)), 4)));
        let heard = vec![attempt(3, ok.clone()), attempt(12, lost)];
        assert_eq!(at(concluded(heard)), Some((Verdict::NotEnded, 13)));
        let unknown = Answer::OutcomeUnknown(reply(409));
        let heard = vec![attempt(3, unknown.clone()), attempt(12, unknown)];
        assert_eq!(at(concluded(heard)), Some((Verdict::Unknown, 13)), "only calm words count");
        let heard = vec![attempt(12, Answer::Ok(reply(200))), attempt(14, ok.clone())];
        assert_eq!(at(concluded(heard)), Some((Verdict::Ok(reply(201)), 15)), "another answer");
        assert_eq!(concluded(vec![attempt(3, ok)]), None, "nobody asked after the faults");
    }

    #[test]
    fn many_clients_write_one_history() {
        let recorder = Recorder::new(Duration::from_secs(2));
        std::thread::scope(|scope| {
            for client in 0..4 {
                let recorder = recorder.clone();
                scope.spawn(move || {
                    let name = OperationName::new("alice", format!("k{client}"));
                    recorder.ask(Operation::new(name.clone(), "5"));
                    recorder.heard(name, recorder.now(), Answer::Ok(reply(201)));
                });
            }
        });
        recorder.faults_stop();
        let mut history = recorder.history();
        let mut other = History::new(Duration::from_secs(3));
        other.ask(Operation::new(OperationName::new("bob", "k1"), "7"));
        history.merge(other);
        assert_eq!((history.operations.len(), history.attempts.len()), (5, 4));
        assert_eq!(history.lease, Duration::from_secs(3));
        assert!(history.attempts.iter().all(|one| one.ended <= history.faults_stopped_at));
    }

    #[test]
    #[should_panic(expected = "one operation has one payload")]
    fn an_operation_with_two_payloads_is_a_mistake_of_the_test() {
        let mut history = History::default();
        history.ask(Operation::new(name(), "5"));
        history.ask(Operation::new(name(), "6"));
    }
}
