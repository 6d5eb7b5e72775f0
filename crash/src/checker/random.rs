//! Histories of a system that keeps its promises, and the same with one thing changed.

use std::time::Duration;

use fastrand::Rng;

use super::{
    EffectKind, Rules, check,
    simulation::{body, simulate},
};
use crate::history::{
    Answer, Attempt, Digest, Effect, Ending, History, Ledger, OperationName, Reply, Verdict,
};

const KINDS: [EffectKind; 3] =
    [EffectKind::Transactional, EffectKind::External, EffectKind::Repeatable];

/// The floor is another test's: here some operations are refused on purpose.
fn rules(kind: EffectKind) -> Rules {
    Rules::new(kind).floor_percent(0)
}

#[test]
fn a_system_that_keeps_its_promises_is_not_accused() {
    for seed in 0..3_000 {
        let mut rng = Rng::with_seed(seed);
        let kind = KINDS[rng.usize(0..3)];
        let (history, ledger) = simulate(&mut rng, kind, 20);
        let texts: Vec<_> =
            check(&history, &ledger, &rules(kind)).iter().map(ToString::to_string).collect();
        assert!(texts.is_empty(), "seed {seed}, {kind:?}:\n{}", texts.join("\n"));
    }
}

#[test]
fn one_doubled_effect_is_found_among_fifteen_thousand_operations() {
    let mut rng = Rng::with_seed(1);
    let (history, mut ledger) = simulate(&mut rng, EffectKind::Transactional, 15_000);
    assert!(history.attempts.len() > 50_000);
    let found = |ledger: &Ledger| -> Vec<String> {
        let violations = check(&history, ledger, &rules(EffectKind::Transactional));
        violations.iter().map(ToString::to_string).collect()
    };
    assert_eq!(found(&ledger), [""; 0]);
    let doubled = rng.choice(&ledger.effects).cloned().expect("there are effects");
    ledger.effects.push(doubled.clone());
    let name = doubled.operation.to_string();
    let texts = found(&ledger);
    assert!(!texts.is_empty() && texts.iter().all(|text| text.contains(&name)), "{texts:?}");
}

/// A thing that can go wrong with one operation; it says whether it did.
type Change = fn(&mut Rng, &mut History, &mut Ledger) -> bool;

const CHANGES: [(&str, Change); 20] = [
    ("an effect is doubled", |rng, _, ledger| {
        let effect = rng.choice(&ledger.effects).cloned();
        effect.map(|effect| ledger.effects.push(effect)).is_some()
    }),
    ("what was refused is done", |rng, history, ledger| {
        let attempt = history.attempts.iter().find(|attempt| is_denial(&attempt.answer));
        let Some(attempt) = attempt else { return false };
        let at = Duration::from_millis(rng.u64(0..70_000));
        let operation = attempt.operation.clone();
        let payload = history.operations[&operation].payload.clone();
        ledger.effects.push(Effect { operation, payload, at });
        true
    }),
    ("an effect is dropped", |_, history, ledger| {
        let ended_ok = |effect: &Effect| is_ok_in_the_end(history, &effect.operation);
        let index = ledger.effects.iter().position(ended_ok);
        index.map(|index| ledger.effects.remove(index)).is_some()
    }),
    ("an effect is done after its answer", |_, history, ledger| {
        let ended_ok = |effect: &&mut Effect| is_ok_in_the_end(history, &effect.operation);
        let effect = ledger.effects.iter_mut().find(ended_ok);
        effect.map(|effect| effect.at = Duration::from_secs(90)).is_some()
    }),
    ("an effect goes to the other scope", |_, history, ledger| {
        let ended_ok = |effect: &&mut Effect| is_ok_in_the_end(history, &effect.operation);
        let effect = ledger.effects.iter_mut().find(ended_ok);
        effect.map(|effect| effect.operation = other_scope(&effect.operation)).is_some()
    }),
    ("an effect goes to nobody", |rng, _, ledger| {
        let index = rng.usize(0..ledger.effects.len());
        ledger.effects[index].operation.scope = "nobody".to_owned();
        true
    }),
    ("an effect is another one", |rng, _, ledger| {
        let index = rng.usize(0..ledger.effects.len());
        ledger.effects[index].payload = "another".to_owned();
        true
    }),
    ("a status differs", |rng, history, _| change_bound(rng, history, |reply| reply.status += 1)),
    ("header lines differ", |rng, history, _| {
        change_bound(rng, history, |reply| reply.headers = Digest::of("others"))
    }),
    ("a body is truncated", |rng, history, _| {
        change_bound(rng, history, |reply| reply.body = Digest::of("trunc"))
    }),
    ("a replay is no replay", |_, history, _| {
        let (again, first): (Vec<_>, Vec<_>) = history
            .attempts
            .iter_mut()
            .filter(|attempt| attempt.answer.bound().is_some())
            .partition(|attempt| attempt.answer.bound().is_some_and(|reply| reply.replayed));
        let is_second = |it: &&mut Attempt| first.iter().any(|one| one.operation == it.operation);
        let second = again.into_iter().find(is_second);
        let reply = second.and_then(|attempt| bound(&mut attempt.answer));
        reply.map(|reply| reply.replayed = false).is_some()
    }),
    ("an answer goes to the other scope", |_, history, _| {
        let Some(ok) = first_ok(history) else { return false };
        let other = body(&other_scope(&ok.operation));
        bound(&mut ok.answer).map(|reply| reply.body = other).is_some()
    }),
    ("an ok becomes a failure", |_, history, _| {
        let Some(ok) = first_ok(history) else { return false };
        let Answer::Ok(reply) = ok.answer.clone() else { return false };
        ok.answer = Answer::BoundFailure(Reply { status: 500, ..reply });
        true
    }),
    ("an ok is forgotten", |_, history, _| add_after_ok(history, Answer::NothingHappened)),
    ("a key is taken for another's", |_, history, _| {
        add_after_ok(history, |reply| {
            Answer::NothingRan(Reply { code: Some("key-reused".to_owned()), ..reply })
        })
    }),
    ("the last word is nothing", |rng, history, _| {
        end_ok_otherwise(rng, history, |reply| Verdict::NothingHappened(reply.clone()))
    }),
    ("the last word is a failure", |rng, history, _| {
        end_ok_otherwise(rng, history, |reply| Verdict::BoundFailure(reply.clone()))
    }),
    ("the last word is unknown", |rng, history, _| {
        end_ok_otherwise(rng, history, |_| Verdict::Unknown)
    }),
    ("there is no last word", |rng, history, _| {
        let name = rng.choice(history.endings.keys()).cloned();
        name.and_then(|name| history.endings.remove(&name)).is_some()
    }),
    ("the last word comes late", |rng, history, _| {
        let ending = rng.choice(history.endings.values_mut());
        ending.map(|ending| ending.at = Duration::from_millis(67_001)).is_some()
    }),
];

#[test]
fn every_change_is_found() {
    let mut made = [0; CHANGES.len()];
    for seed in 0..6_000 {
        let mut rng = Rng::with_seed(seed);
        let kind = KINDS[rng.usize(0..3)];
        let (mut history, mut ledger) = simulate(&mut rng, kind, 10);
        let index = rng.usize(0..CHANGES.len());
        let (what, change) = CHANGES[index];
        if ledger.effects.is_empty() || !change(&mut rng, &mut history, &mut ledger) {
            continue;
        }
        made[index] += 1;
        let found = check(&history, &ledger, &rules(kind));
        assert!(!found.is_empty(), "seed {seed}, {kind:?}: nobody saw that {what}");
    }
    for ((what, _), made) in CHANGES.iter().zip(made) {
        assert!(made > 50, "{what}: only {made} times");
    }
}

fn is_denial(answer: &Answer) -> bool {
    matches!(answer, Answer::BoundFailure(reply) if reply.status < 500)
}

fn is_ok_in_the_end(history: &History, name: &OperationName) -> bool {
    matches!(history.endings.get(name), Some(Ending { verdict: Verdict::Ok(_), .. }))
}

fn other_scope(name: &OperationName) -> OperationName {
    let scope = if name.scope == "alice" { "bob" } else { "alice" };
    OperationName::new(scope, name.key.clone())
}

fn first_ok(history: &mut History) -> Option<&mut Attempt> {
    history.attempts.iter_mut().find(|attempt| matches!(attempt.answer, Answer::Ok(_)))
}

fn bound(answer: &mut Answer) -> Option<&mut Reply> {
    match answer {
        Answer::Ok(reply) | Answer::BoundFailure(reply) => Some(reply),
        _ => None,
    }
}

fn change_bound(rng: &mut Rng, history: &mut History, change: fn(&mut Reply)) -> bool {
    let replies = history.attempts.iter_mut().filter_map(|attempt| bound(&mut attempt.answer));
    let replies: Vec<_> = replies.collect();
    rng.choice(replies).map(change).is_some()
}

fn add_after_ok(history: &mut History, answer: fn(Reply) -> Answer) -> bool {
    let Some(ok) = first_ok(history).cloned() else { return false };
    let Answer::Ok(reply) = ok.answer.clone() else { return false };
    let (started, ended) = (ok.ended, ok.ended + Duration::from_millis(9));
    history.attempts.push(Attempt { started, ended, answer: answer(reply), ..ok });
    true
}

fn end_ok_otherwise(rng: &mut Rng, history: &mut History, word: fn(&Reply) -> Verdict) -> bool {
    let endings = history.endings.values_mut();
    let endings: Vec<_> =
        endings.filter(|ending| matches!(ending.verdict, Verdict::Ok(_))).collect();
    let Some(ending) = rng.choice(endings) else { return false };
    let Verdict::Ok(reply) = &ending.verdict else { return false };
    ending.verdict = word(reply);
    true
}
