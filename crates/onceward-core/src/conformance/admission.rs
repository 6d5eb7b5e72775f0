//! Every row of the admission table.

use super::*;
use crate::{Started, State, Status, Swap};

/// Nothing stored: the request runs, and the record says all of it.
pub async fn first_request_claims_and_is_read_back<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(REPEATABLE));
    assert!(is_absent(&store, &sample.id()).await, "an empty store has nothing");

    let claim = claim(bench, &store, &sample).await;
    let stored = read(&store, &sample.id()).await;
    let Record { scope, operation, key_digest, fence, execution, effect, .. } = &stored.record;
    assert_eq!((scope, operation), (sample.operation.scope(), sample.operation.name()));
    assert_eq!(*key_digest, sample.operation.key().digest());
    assert_eq!((*fence, *execution), (claim.fence(), claim.execution()));
    assert_eq!((*effect, stored.record.attempts), (REPEATABLE, 1));
    assert_eq!(stored.record.state, State::InProgress);
    assert_eq!(stored.record.fingerprint, sample.request(b'a').fingerprints.current());
    assert_eq!(stored.record.started, Started::At(claim.claimed_at()), "stamped by the store");
}

/// In progress with its lease: the duplicate gets `Busy` and changes nothing.
pub async fn duplicate_of_a_running_operation_is_busy<B: Bench>(bench: &B) {
    for effect in [Effect::External, Effect::Transactional, REPEATABLE] {
        let (store, sample) = (bench.open().await, Sample::new(effect));
        claim(bench, &store, &sample).await;
        let before = essence(&store, &sample.id()).await;
        let verdict = ask(bench, &store, &sample, b'a').await;
        assert!(matches!(verdict, Verdict::Busy { .. }), "{effect:?}: {verdict:?}");
        assert_eq!(essence(&store, &sample.id()).await, before, "a duplicate changes nothing");
    }
}

/// Ended: status, header lines in order and bytes come back as they were.
pub async fn ended_operations_are_replayed_verbatim<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for (ending, status) in
        [(Ending::Succeeded(answer(201)), 201), (Ending::FailedFinal(answer(402)), 402)]
    {
        let sample = Sample::new(Effect::External);
        let claim = claim(bench, &store, &sample).await;
        let Settled::Stored { at } = bench.settle(&store, &claim, ending).await else {
            panic!("the owner settles");
        };
        let Verdict::Replay(replay) = ask(bench, &store, &sample, b'a').await else {
            panic!("an ended operation is replayed");
        };
        assert_eq!(replay.outcome, answer(status));
        assert_eq!(replay.completed_at, at, "first answer and replay name the same time");
        assert_eq!(replay.expires_at, Some(at.plus(RETAIN)), "retention counts from completion");
    }
}

/// Checked before "in flight" and in every state that binds the key; nothing leaks or changes.
pub async fn other_fingerprint_is_a_mismatch_in_every_live_state<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for effect in [Effect::External, Effect::Transactional, REPEATABLE] {
        let [running, abandoned, unknown] = [(); 3].map(|()| Sample::new(effect));
        claim(bench, &store, &running).await;
        claim(bench, &store, &abandoned).await;
        bench.age(&store, &abandoned.id(), LEASE + SECOND).await;
        ended(bench, &store, &unknown, Ending::Unknown).await;
        let mut live = alloc::vec![running, abandoned, unknown];
        for ending in endings() {
            let sample = Sample::new(effect);
            ended(bench, &store, &sample, ending).await;
            live.push(sample);
        }
        for sample in live {
            let before = essence(&store, &sample.id()).await;
            assert_eq!(ask(bench, &store, &sample, b'b').await, Verdict::Mismatch, "{before:?}");
            assert_eq!(essence(&store, &sample.id()).await, before, "a mismatch changes nothing");
        }
    }
}

/// Failed and retryable: claimed over its fence, one attempt more, first claim's time kept.
pub async fn retryable_failure_is_claimed_again<B: Bench>(bench: &B) {
    for effect in [Effect::External, Effect::Transactional, REPEATABLE] {
        let (store, sample) = (bench.open().await, Sample::new(effect));
        let first = ended(bench, &store, &sample, Ending::FailedRetryable).await;
        let second = claim(bench, &store, &sample).await;
        assert_eq!(second.attempt(), 2);
        assert_ne!(second.execution(), first.execution(), "every claim is a new execution");
        let stored = read(&store, &sample.id()).await;
        assert_eq!(stored.started_at(), first.claimed_at());
    }
    let (store, sample) = (bench.open().await, Sample::new(REPEATABLE));
    ended(bench, &store, &sample, Ending::FailedRetryable).await;
    let other = ask(bench, &store, &sample.on(terms(Effect::External)), b'a').await;
    assert!(matches!(other, Verdict::Unknown(Some(_))), "it would not repeat the key: {other:?}");
    bench.age(&store, &sample.id(), WITHIN).await;
    let late = ask(bench, &store, &sample, b'a').await;
    assert!(matches!(late, Verdict::Unknown(Some(_))), "downstream may have forgotten: {late:?}");
    bench.age(&store, &sample.id(), RETAIN * 1000).await;
    assert_eq!(store.sweep(1000).await, Ok(0), "no timer turns Unknown into anything else");
    let late = ask(bench, &store, &sample, b'a').await;
    assert!(matches!(late, Verdict::Unknown(Some(_))), "nor does expiry: {late:?}");
}

/// Released: anyone may use the key for anything, from the start.
pub async fn released_key_binds_nothing<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let first = ended(bench, &store, &sample, Ending::Released).await;
    assert_eq!(read(&store, &sample.id()).await.status(), Status::Released);
    let second = run(ask(bench, &store, &sample, b'b').await);
    assert_eq!(second.attempt(), 1, "it starts afresh");
    let stored = read(&store, &sample.id()).await;
    assert_eq!(stored.started_at(), second.claimed_at());
    assert_eq!(stored.record.fingerprint, sample.request(b'b').fingerprints.current());
    let late = bench.settle(&store, &first, Ending::Succeeded(answer(201))).await;
    assert!(matches!(late, Settled::FencedOff(_)), "a released claim is over: {late:?}");
}

/// Retention over means absent, whether swept or not, whatever the fingerprint.
pub async fn expired_record_is_absent<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for ending in endings() {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, ending).await;
        bench.age(&store, &sample.id(), RETAIN - HOUR).await;
        assert_ne!(read(&store, &sample.id()).await.status(), Status::Expired, "an hour is left");
        bench.age(&store, &sample.id(), HOUR).await;
        assert_eq!(read(&store, &sample.id()).await.status(), Status::Expired);
        let claim = run(ask(bench, &store, &sample, b'b').await);
        assert_eq!(claim.attempt(), 1, "after expiry the key is new");
    }
}

/// The owner of an opaque effect vanished: its outcome is unknown, and nothing runs again.
pub async fn abandoned_external_effect_is_unknown<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    claim(bench, &store, &sample).await;
    bench.age(&store, &sample.id(), LEASE).await;
    let before = essence(&store, &sample.id()).await;
    for effect in [Effect::External, Effect::Transactional, REPEATABLE] {
        let verdict = ask(bench, &store, &sample.on(terms(effect)), b'a').await;
        let Verdict::Unknown(Some(stored)) = verdict else {
            panic!("by the stored effect, not by the reader's {effect:?}: {verdict:?}");
        };
        assert_eq!(stored.status(), Status::Unknown);
    }
    assert_eq!(essence(&store, &sample.id()).await, before, "the verdict is computed, not stored");
}

/// The owner of a transaction vanished: it was rolled back, so another may run.
pub async fn abandoned_transactional_effect_is_taken_over<B: Bench>(bench: &B) {
    for runner in [Effect::Transactional, Effect::External, REPEATABLE] {
        let (store, sample) = (bench.open().await, Sample::new(Effect::Transactional));
        let first = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), LEASE).await;
        let before = read(&store, &sample.id()).await;
        assert_eq!(before.status(), Status::Interrupted);
        let second = claim(bench, &store, &sample.on(terms(runner))).await;
        assert_eq!((second.attempt(), second.effect()), (2, runner), "the runner's own effect");
        assert_ne!(second.fence(), first.fence());
        assert_ne!(second.execution(), first.execution());
        let stored = read(&store, &sample.id()).await;
        assert_eq!(stored.started_at(), before.started_at(), "the first claim's time is kept");
    }
}

/// Downstream remembers the key for a while: within it another run is harmless.
pub async fn abandoned_repeatable_effect_is_taken_over_only_within<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let abandoned = async |age: Duration| {
        let sample = Sample::new(REPEATABLE);
        claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), age).await;
        sample
    };

    let sample = abandoned(LEASE).await;
    for runner in [Effect::External, Effect::Transactional] {
        let verdict = ask(bench, &store, &sample.on(terms(runner)), b'a').await;
        assert!(
            matches!(verdict, Verdict::Unknown(Some(_))),
            "{runner:?} would double: {verdict:?}"
        );
    }
    let shorter = Effect::Repeatable { within: SECOND };
    let verdict = ask(bench, &store, &sample.on(terms(shorter)), b'a').await;
    assert!(matches!(verdict, Verdict::Unknown(Some(_))), "its own promise is over: {verdict:?}");
    let longer = Effect::Repeatable { within: WITHIN * 2 };
    let claim = claim(bench, &store, &sample.on(terms(longer))).await;
    assert_eq!((claim.attempt(), claim.effect()), (2, REPEATABLE), "the shorter promise counts");

    let sample = abandoned(WITHIN).await;
    let verdict = ask(bench, &store, &sample, b'a').await;
    assert!(matches!(verdict, Verdict::Unknown(Some(_))), "too late: {verdict:?}");
}

/// No timer turns Unknown into anything else, unless a retention for it was set.
pub async fn unknown_stays_unknown<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    ended(bench, &store, &sample, Ending::Unknown).await;
    bench.age(&store, &sample.id(), RETAIN * 1000).await;
    let verdict = ask(bench, &store, &sample, b'a').await;
    assert!(matches!(verdict, Verdict::Unknown(Some(_))), "{verdict:?}");

    let bounded = Terms::of(Effect::External).unknown_retain(RETAIN).build().expect("valid terms");
    let sample = Sample::new(Effect::External).on(bounded);
    ended(bench, &store, &sample, Ending::Unknown).await;
    bench.age(&store, &sample.id(), RETAIN - HOUR).await;
    assert!(matches!(ask(bench, &store, &sample, b'a').await, Verdict::Unknown(Some(_))));
    bench.age(&store, &sample.id(), HOUR).await;
    assert_eq!(
        claim(bench, &store, &sample).await.attempt(),
        1,
        "unknown_retain was set explicitly"
    );
}

/// The same key under another caller or for another operation is another record.
pub async fn operations_differ_by_scope_name_and_key<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let key = |text| Key::new(text).expect("a valid key");
    for (tenant, name, text) in
        [("a", "pay", "k"), ("b", "pay", "k"), ("a", "refund", "k"), ("a", "pay", "K")]
    {
        let operation = operation(tenant, name, key(text));
        let sample = Sample { operation, terms: terms(Effect::External) };
        let claim = claim(bench, &store, &sample).await;
        assert_eq!(claim.attempt(), 1, "{tenant} {name} {text}");
    }
}

/// What newer software stored is neither replayed nor called a mismatch.
pub async fn unknown_fingerprint_version_is_not_compared<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let newer = Request {
        fingerprints: Fingerprint::from_parts(200, [b'a'; 32]).into(),
        ..sample.request(b'a')
    };
    let execution = Execution::from_bytes([9; 16]);
    run(drive(&store, Admission::new(newer, fresh_fence(), execution)).await);
    let admission = sample.admission(b'a');
    let swap = store.swap(admission.change()).await.expect("the store answers");
    assert!(matches!(swap, Swap::Conflict(Found::Record(_))));
    assert_eq!(admission.next(swap), Step::Newer { version: 200 });
}
