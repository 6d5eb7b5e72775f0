//! What the upstream has done and is doing: the truth that everything else is compared with.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use bytes::Bytes;

/// How far back the charges of a tap are looked for while it rains.
const RECENT: usize = 10_000;

#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    /// Nothing here is unique: a charge that is made twice is here twice.
    charges: Vec<Charge>,
    executions: u64,
    /// How many requests are being worked on, also those whose client is gone.
    under_way: u64,
    runs: HashMap<String, Run>,
    /// The upstream has answered that these executions never happened: they never will.
    never: HashSet<String>,
    asked: HashMap<String, SystemTime>,
}

#[derive(Clone, Debug)]
pub(super) struct Charge {
    /// The `Idempotency-Key` under which it was taken: only the verifier looks at it.
    pub(super) key: String,
    pub(super) caller: String,
    pub(super) cents: u32,
    /// What the upstream answered, or would have.
    pub(super) answer: Bytes,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Asker {
    pub(super) key: String,
    pub(super) caller: String,
    /// `Onceward-Execution`: which run of which operation this is, if a gateway asks.
    pub(super) execution: Option<String>,
    pub(super) via: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) via: Option<String>,
    pub(super) broke_off: bool,
    is_under_way: bool,
    charge: Option<usize>,
}

/// What became of an execution, as far as the ledger knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Applied(Bytes),
    Never,
    Unknown,
}

/// An execution that a gateway asked about.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) execution: String,
    pub(super) first_at: SystemTime,
    /// `None`: it never arrived.
    pub(super) run: Option<Run>,
}

impl Ledger {
    /// Begins to work on a request; `None`: it comes too late, because a gateway has the answer that it
    /// never happened.
    pub(super) fn enter(&self, asker: Asker) -> Option<Work> {
        let mut book = self.lock();
        if let Some(execution) = &asker.execution {
            if book.never.contains(execution) {
                return None;
            }
            let run = Run { via: asker.via.clone(), is_under_way: true, ..Run::default() };
            book.runs.insert(execution.clone(), run);
        }
        book.under_way += 1;
        Some(Work { ledger: self.clone(), asker })
    }

    /// Says what became of an execution; a gateway may rely on `Never`.
    pub(super) fn end_of(&self, execution: &str) -> Ended {
        let mut book = self.lock();
        book.asked.entry(execution.to_owned()).or_insert_with(SystemTime::now);
        match book.runs.get(execution) {
            Some(Run { charge: Some(index), .. }) => {
                Ended::Applied(book.charges[*index].answer.clone())
            }
            Some(Run { is_under_way: true, .. }) => Ended::Unknown,
            _ => {
                book.never.insert(execution.to_owned());
                Ended::Never
            }
        }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        let book = self.lock();
        let asked = book.asked.iter().map(|(execution, first_at)| Asked {
            execution: execution.clone(),
            first_at: *first_at,
            run: book.runs.get(execution).cloned(),
        });
        asked.collect()
    }

    pub(super) fn charged(&self) -> Vec<Charge> {
        self.lock().charges.clone()
    }

    pub(super) fn charges(&self) -> u64 {
        self.lock().charges.len() as u64
    }

    /// How often the tap with this key was charged; it must be a recent one.
    pub(super) fn charges_of(&self, key: &str) -> usize {
        self.lock().charges.iter().rev().take(RECENT).filter(|charge| charge.key == key).count()
    }

    pub(super) fn executions(&self) -> u64 {
        self.lock().executions
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.lock().under_way == 0
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is being worked on, until this is dropped.
pub(super) struct Work {
    ledger: Ledger,
    asker: Asker,
}

impl Work {
    /// From here on it is an execution.
    pub(super) fn begin(&self) {
        self.ledger.lock().executions += 1;
    }

    pub(super) fn charge(&self, cents: u32, answer: Bytes) {
        let Asker { key, caller, execution, .. } = self.asker.clone();
        let mut book = self.ledger.lock();
        book.charges.push(Charge { key, caller, cents, answer });
        let index = book.charges.len() - 1;
        if let Some(run) = execution.and_then(|execution| book.runs.get_mut(&execution)) {
            run.charge = Some(index);
        }
    }

    pub(super) fn break_off(&self) {
        self.change_run(|run| run.broke_off = true);
    }

    fn change_run(&self, change: impl FnOnce(&mut Run)) {
        let mut book = self.ledger.lock();
        if let Some(run) = self.asker.execution.as_ref().and_then(|name| book.runs.get_mut(name)) {
            change(run);
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.change_run(|run| run.is_under_way = false);
        self.ledger.lock().under_way -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(execution: &str) -> Asker {
        Asker { key: "k".into(), execution: Some(execution.into()), ..Asker::default() }
    }

    #[test]
    fn what_never_arrived_never_happens_once_that_was_said() {
        let ledger = Ledger::default();
        assert_eq!(ledger.end_of("e1"), Ended::Never);
        assert!(ledger.enter(asker("e1")).is_none());
        assert!(ledger.enter(asker("e2")).is_some(), "another execution may run");
    }

    #[test]
    fn what_is_being_worked_on_is_unknown_until_it_has_ended() {
        let ledger = Ledger::default();
        let (one, other) = (ledger.enter(asker("e1")).unwrap(), ledger.enter(asker("e2")).unwrap());
        assert_eq!((ledger.end_of("e1"), ledger.end_of("e2")), (Ended::Unknown, Ended::Unknown));
        one.charge(500, Bytes::from_static(b"ch_1"));
        drop((one, other));
        assert_eq!(ledger.end_of("e1"), Ended::Applied(Bytes::from_static(b"ch_1")));
        assert_eq!(ledger.end_of("e2"), Ended::Never);
        assert!(ledger.is_quiet());
    }

    #[test]
    fn the_same_key_twice_is_two_charges() {
        let ledger = Ledger::default();
        for execution in ["e1", "e2"] {
            ledger.enter(asker(execution)).unwrap().charge(500, Bytes::new());
        }
        assert_eq!((ledger.charges(), ledger.charges_of("k")), (2, 2));
    }
}
