//! Holds what customers were told against what there is.

use std::collections::HashMap;

use onceward::{Effect, Engine, Verdict};

use crate::{
    pair::asked,
    till::{Observed, text},
};

/// What must hold after any number of failures; `ledger` is what the last primary has, as lines of
/// `key|execution`.
pub(crate) async fn judge(observed: &Observed, engine: &Engine, ledger: &str) {
    let mut charged: HashMap<&str, Vec<&str>> = HashMap::new();
    for (key, execution) in ledger.lines().filter_map(|line| line.split_once('|')) {
        charged.entry(key).or_default().push(execution);
    }
    let twice: Vec<_> = charged.iter().filter(|(_, executions)| executions.len() > 1).collect();
    assert!(twice.is_empty(), "charged more than once: {twice:?}");
    let outside = observed.outside.lock().unwrap().clone();
    let twice: Vec<_> = outside.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "had more than once: {twice:?}");

    let answers = observed.answers.lock().unwrap().clone();
    for (key, given) in &answers {
        let first = &given[0];
        assert!(given.iter().all(|answer| answer == first), "{key} was answered with {given:?}");
        let effect = if key.starts_with("inside") {
            let executions = charged.get(key.as_str()).map(Vec::as_slice).unwrap_or_default();
            assert_eq!(executions, [first], "{key} was answered, and this is what was charged");
            Effect::Transactional
        } else {
            assert_eq!(outside.get(key), Some(&1), "{key} was answered");
            Effect::External
        };
        match engine.admit(asked(effect, key)).await.unwrap() {
            Verdict::Replay(replay) => assert_eq!(&text(replay.outcome), first, "{key}"),
            other => panic!("{key} was answered with {first}, and now it is {other:?}"),
        }
    }
    for key in charged.keys() {
        assert!(answers.contains_key(*key), "{key} was charged and nobody was ever observed");
    }
}
