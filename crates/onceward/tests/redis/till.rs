//! Customers who ask until they get an answer, and what was done for them: counted in the test, outside of the store.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use onceward::{
    Effect, Ending, Engine, Fingerprint, Key, OperationId, OperationName, Outcome, Request, Scope,
    Terms, Verdict,
    protocol::{Settled, StoredBody},
};
use tokio::{task::JoinSet, time::sleep};

/// So long that settlements of a server that is killed and started again come in time.
const LEASE: Duration = Duration::from_secs(10);

pub(crate) fn asked(key: &str) -> Request {
    let (name, key) = (OperationName::new("POST /charges").unwrap(), Key::new(key).unwrap());
    Request {
        operation: OperationId::new(Scope::global(), name, key),
        fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
        terms: Terms::of(Effect::External).lease(LEASE).build().unwrap(),
    }
}

/// What customers were told, and what was done.
#[derive(Clone)]
pub(crate) struct Till {
    pub(crate) engine: Engine,
    observed: Arc<Observed>,
}

#[derive(Default)]
struct Observed {
    /// How often the effect of a key was had, by the key.
    effects: Mutex<HashMap<String, u32>>,
    /// Every answer that a caller got, by the key.
    answers: Mutex<HashMap<String, Vec<String>>>,
    unknown: AtomicUsize,
    count: AtomicUsize,
    closed: AtomicBool,
}

/// What became of all that was asked.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) effects: usize,
    pub(crate) answered: usize,
    pub(crate) unknown: usize,
    /// Keys whose effect was had more than once.
    pub(crate) twice: Vec<String>,
    /// Keys that were answered, and what they say now instead.
    pub(crate) lost: Vec<String>,
}

impl Till {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, observed: Arc::default() }
    }

    /// Customers in pairs who ask with the same keys; ends when the till is closed and each has an answer.
    pub(crate) async fn serve(&self, pairs: usize) {
        let mut customers = JoinSet::new();
        for customer in 0..pairs * 2 {
            customers.spawn(self.clone().ask_for_all(customer / 2));
        }
        while let Some(ended) = customers.join_next().await {
            ended.unwrap();
        }
    }

    /// One key after the other, each until there is an answer.
    async fn ask_for_all(self, pair: usize) {
        for number in 0.. {
            let key = format!("{pair}-{number}");
            while !self.ask(&key).await {
                sleep(Duration::from_millis(20)).await;
            }
            if self.observed.closed.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Asks once; whether there was an answer, or never will be.
    pub(crate) async fn ask(&self, key: &str) -> bool {
        match self.engine.admit(asked(key)).await {
            Ok(Verdict::Run(claim)) => {
                *self.observed.effects.lock().unwrap().entry(key.to_owned()).or_default() += 1;
                let receipt = claim.execution().to_string();
                let ending = Ending::Succeeded(Outcome::inline(201, receipt.clone().into_bytes()));
                let settled = self.engine.settle(claim, ending).await;
                let stored = matches!(settled, Ok(Settled::Stored { .. }));
                if stored {
                    self.answered(key, receipt);
                }
                stored
            }
            Ok(Verdict::Replay(replay)) => {
                self.answered(key, text(replay.outcome));
                true
            }
            // Honest: the run that did it has not said in time how it ended.
            Ok(Verdict::Unknown(_)) => {
                self.observed.unknown.fetch_add(1, Ordering::SeqCst);
                true
            }
            Ok(Verdict::Mismatch) => panic!("{key} was used for one thing only"),
            Ok(Verdict::Busy { .. } | Verdict::ClockSuspect) | Err(_) => false,
        }
    }

    fn answered(&self, key: &str, answer: String) {
        let Observed { answers, count, .. } = &*self.observed;
        answers.lock().unwrap().entry(key.to_owned()).or_default().push(answer);
        count.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until so many more answers were given.
    pub(crate) async fn wait_for_more(&self, more: usize) {
        let count = || self.observed.count.load(Ordering::SeqCst);
        let (wanted, began) = (count() + more, Instant::now());
        while count() < wanted {
            assert!(began.elapsed() < testbed::TEST_TIMEOUT, "{} answers of {wanted}", count());
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// No caller asks anything new from now on.
    pub(crate) fn close(&self) {
        self.observed.closed.store(true, Ordering::SeqCst);
    }

    /// Holds what customers were told against what was done, and against what the store says now.
    pub(crate) async fn sum(&self) -> Sum {
        let effects = self.observed.effects.lock().unwrap().clone();
        let answers = self.observed.answers.lock().unwrap().clone();
        let twice = effects.iter().filter(|(_, count)| **count > 1);
        let mut sum = Sum {
            effects: effects.values().sum::<u32>() as usize,
            answered: answers.len(),
            unknown: self.observed.unknown.load(Ordering::SeqCst),
            twice: twice.map(|(key, _)| key.clone()).collect(),
            lost: Vec::new(),
        };
        for (key, given) in &answers {
            assert!(effects.contains_key(key), "{key} was answered, and nothing was done");
            if given.iter().any(|answer| *answer != given[0]) {
                sum.lost.push(format!("{key} was answered with {given:?}"));
            }
            match self.engine.admit(asked(key)).await.unwrap() {
                Verdict::Replay(replay) if text(replay.outcome.clone()) == given[0] => {}
                other => sum.lost.push(format!("{key} is now {other:?}")),
            }
        }
        sum
    }
}

pub(crate) fn text(outcome: Outcome) -> String {
    match outcome.body {
        StoredBody::Inline(bytes) => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?} was never stored"),
    }
}
