//! Many at once: of N concurrent claims exactly one runs, of N settlements exactly one counts.

use super::*;

const TASKS: usize = 200;

/// Nothing stored, 200 requests: one runs, the others get `Busy`.
pub async fn of_200_first_requests_one_runs<B: Bench>(bench: &B) {
    for effect in [Effect::External, Effect::Transactional] {
        let (store, sample) = (bench.open().await, Sample::new(effect));
        one_of_many_runs(bench, &store, &sample).await;
    }
}

/// The same over a record that binds nothing or may be run again.
pub async fn of_200_claims_over_an_old_record_one_runs<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let [expired, released, failed] = [(); 3].map(|()| Sample::new(Effect::External));
    ended(bench, &store, &expired, Ending::Succeeded(answer(201))).await;
    bench.age(&store, &expired.id(), RETAIN).await;
    ended(bench, &store, &released, Ending::Released).await;
    ended(bench, &store, &failed, Ending::FailedRetryable).await;
    let abandoned = Sample::new(Effect::Transactional);
    claim(bench, &store, &abandoned).await;
    bench.age(&store, &abandoned.id(), LEASE).await;
    for sample in [expired, released, failed, abandoned] {
        one_of_many_runs(bench, &store, &sample).await;
    }
}

async fn one_of_many_runs<B: Bench>(bench: &B, store: &B::Store, sample: &Sample) {
    let tasks = (0..TASKS).map(|_| {
        let (bench, store, sample) = (bench.clone(), store.clone(), sample.clone());
        async move { ask(&bench, &store, &sample, b'a').await }
    });
    let verdicts = gather(bench, tasks).await;
    let running = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Run(_))).count();
    let busy = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Busy { .. })).count();
    assert_eq!((running, busy), (1, TASKS - 1), "exactly one runs, the others are busy");
}

/// A lost claim that finds nothing tries again or says busy; it never runs unclaimed.
pub async fn of_200_claims_during_a_sweep_one_runs<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for _ in 0..5 {
        let sample = Sample::new(Effect::External);
        ended(bench, &store, &sample, Ending::Succeeded(answer(201))).await;
        bench.age(&store, &sample.id(), RETAIN + HOUR + SECOND).await;
        let tasks = (0..TASKS).map(|index| {
            let (bench, store, sample) = (bench.clone(), store.clone(), sample.clone());
            async move {
                if index % 4 == 0 {
                    store.sweep(10).await.expect("the store answers");
                }
                matches!(ask(&bench, &store, &sample, b'a').await, Verdict::Run(_))
            }
        });
        let running = gather(bench, tasks).await.into_iter().filter(|runs| *runs).count();
        assert_eq!(running, 1);
    }
}

/// One claim, 200 ways to end it at once: the first is durable, the others learn of it.
pub async fn of_200_settlements_one_is_stored<B: Bench>(bench: &B) {
    let (store, sample) = (bench.open().await, Sample::new(Effect::External));
    let claim = claim(bench, &store, &sample).await;
    let tasks = (0..TASKS as u16).map(|index| {
        let (bench, store, claim) = (bench.clone(), store.clone(), claim.clone());
        async move {
            let settled =
                bench.settle(&store, &claim, Ending::Succeeded(answer(200 + index))).await;
            matches!(settled, Settled::Stored { .. }).then_some(200 + index)
        }
    });
    let stored: Vec<u16> = gather(bench, tasks).await.into_iter().flatten().collect();
    let [status] = stored[..] else { panic!("exactly one is stored, not {stored:?}") };
    let Verdict::Replay(replay) = ask(bench, &store, &sample, b'a').await else {
        panic!("an ended operation is replayed");
    };
    assert_eq!(replay.outcome, answer(status), "and it is the one that is replayed");
}

/// Owner and zombie end the same operation at once, again and again: the zombie never wins.
pub async fn of_owner_and_zombie_only_the_owner_settles<B: Bench>(bench: &B) {
    let store = bench.open().await;
    for _ in 0..25 {
        let sample = Sample::new(Effect::Transactional);
        let zombie = claim(bench, &store, &sample).await;
        bench.age(&store, &sample.id(), LEASE).await;
        let owner = claim(bench, &store, &sample).await;
        let tasks = [(zombie, 500), (owner, 201)].map(|(claim, status)| {
            let (bench, store) = (bench.clone(), store.clone());
            async move { bench.settle(&store, &claim, Ending::Succeeded(answer(status))).await }
        });
        let settled = gather(bench, tasks).await;
        assert!(matches!(settled[0], Settled::FencedOff(_)), "zombie: {:?}", settled[0]);
        assert!(matches!(settled[1], Settled::Stored { .. }), "owner: {:?}", settled[1]);
    }
}

/// 200 operations side by side: each runs, each ends with its own answer.
pub async fn distinct_operations_do_not_disturb_each_other<B: Bench>(bench: &B) {
    let store = bench.open().await;
    let samples: Vec<Sample> = (0..TASKS).map(|_| Sample::new(Effect::External)).collect();
    let tasks = samples.iter().cloned().zip(200..).map(|(sample, status)| {
        let (bench, store) = (bench.clone(), store.clone());
        async move {
            ended(&bench, &store, &sample, Ending::Succeeded(answer(status))).await;
        }
    });
    gather(bench, tasks).await;
    for (sample, status) in samples.iter().zip(200..) {
        let Verdict::Replay(replay) = ask(bench, &store, sample, b'a').await else {
            panic!("an ended operation is replayed");
        };
        assert_eq!(replay.outcome, answer(status));
    }
}
