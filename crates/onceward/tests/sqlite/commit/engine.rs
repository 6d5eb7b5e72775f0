//! The same without HTTP: claims that end in transactions by the engine alone.

use onceward::{
    CommitError, Effect, Ending, Engine, Execution, Fingerprint, Outcome, Request, Status, Terms,
    Verdict,
    protocol::{Admission, Fence},
    store::{Change, memory::MemoryStore},
};

use crate::{
    commit::shop::{Shop, begin_charge_blocking},
    server_support::charge,
};

pub(crate) fn asked(key: &str) -> Request {
    Request {
        operation: charge(key),
        fingerprints: Fingerprint::from_parts(1, [7; 32]).into(),
        terms: Terms::of(Effect::Transactional).build().unwrap(),
    }
}

/// The change that claims this key for the first time.
pub(crate) fn claiming(key: &str) -> Change {
    let fence = Fence::from_random([1; 16]);
    Admission::new(asked(key), fence, Execution::from_bytes([2; 16])).change().clone()
}

pub(crate) async fn claim(engine: &Engine, key: &str) -> onceward::protocol::Claim {
    match engine.admit(asked(key)).await.unwrap() {
        Verdict::Run(claim) => claim,
        other => panic!("expected to run, got {other:?}"),
    }
}

fn paid() -> Outcome {
    Outcome::inline(201, b"paid".to_vec())
}

/// The operation has ended with its charge.
async fn is_paid_once(shop: &Shop, engine: &Engine) {
    match engine.admit(asked("k")).await.unwrap() {
        Verdict::Replay(replay) => assert_eq!(replay.outcome, paid()),
        other => panic!("expected the answer, got {other:?}"),
    }
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_claim_ends_with_the_commit_of_the_engine() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let engine = Engine::new(shop.store.clone());
        let claim = claim(&engine, "k").await;
        match blocking {
            false => {
                let transaction = shop.till.begin_charge().await;
                engine.commit(&claim, transaction, Ending::Succeeded(paid())).await.unwrap();
            }
            true => {
                let mut connection = shop.till.connect();
                let transaction = begin_charge_blocking(&mut connection);
                let ending = Ending::Succeeded(paid());
                engine.commit_blocking(&claim, transaction, ending).unwrap();
                assert!(connection.is_autocommit(), "the connection can be used on");
            }
        }
        is_paid_once(&shop, &engine).await;
    }
}

#[tokio::test]
async fn settle_in_only_proposes_and_the_commit_decides() {
    for blocking in [false, true] {
        for commits in [false, true] {
            let shop = Shop::new();
            let engine = Engine::new(shop.store.clone());
            let claim = claim(&engine, "k").await;
            let ending = Ending::Succeeded(paid());
            if blocking {
                let mut connection = shop.till.connect();
                let transaction = begin_charge_blocking(&mut connection);
                engine.settle_in_blocking(&claim, &transaction, ending).unwrap();
                assert_eq!(shop.status("k").await, Some(Status::InProgress));
                match commits {
                    true => transaction.commit().unwrap(),
                    false => transaction.rollback().unwrap(),
                }
            } else {
                let mut transaction = shop.till.begin_charge().await;
                engine.settle_in(&claim, &mut transaction, ending).await.unwrap();
                assert_eq!(shop.status("k").await, Some(Status::InProgress));
                match commits {
                    true => transaction.commit().await.unwrap(),
                    false => transaction.rollback().await.unwrap(),
                }
            }
            match commits {
                true => is_paid_once(&shop, &engine).await,
                false => {
                    assert_eq!(shop.status("k").await, Some(Status::InProgress));
                    assert_eq!(shop.charges(), 0);
                }
            }
        }
    }
}

/// Every end is possible, also one that frees the key with a note in the trail.
#[tokio::test]
async fn a_claim_may_end_in_a_transaction_in_every_way() {
    use onceward::store::Trail as _;
    let endings = [
        (Ending::Succeeded(paid()), Status::Succeeded, 0),
        (Ending::FailedFinal(paid()), Status::FailedFinal, 0),
        (Ending::FailedRetryable, Status::FailedRetryable, 0),
        (Ending::Released, Status::Released, 1),
        (Ending::Unknown, Status::Unknown, 1),
    ];
    for blocking in [false, true] {
        for (ending, expected, notes) in endings.clone() {
            let shop = Shop::new();
            let engine = Engine::new(shop.store.clone());
            let claim = claim(&engine, "k").await;
            if blocking {
                let mut connection = shop.till.connect();
                let transaction = begin_charge_blocking(&mut connection);
                engine.commit_blocking(&claim, transaction, ending).unwrap();
            } else {
                let transaction = shop.till.begin_charge().await;
                engine.commit(&claim, transaction, ending).await.unwrap();
            }
            assert_eq!(shop.status("k").await, Some(expected));
            assert_eq!(shop.charges(), 1);
            assert_eq!(shop.store.trail(&claim.id()).await.unwrap().len(), notes);
        }
    }
}

#[tokio::test]
async fn a_claim_that_was_taken_over_ends_nothing() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let engine = Engine::new(shop.store.clone());
        let lost = claim(&engine, "k").await;
        shop.clock.advance(lost.terms().lease() * 2);
        let owner = claim(&engine, "k").await;
        let error = if blocking {
            let mut connection = shop.till.connect();
            let transaction = begin_charge_blocking(&mut connection);
            engine.commit_blocking(&lost, transaction, Ending::Succeeded(paid())).unwrap_err()
        } else {
            let transaction = shop.till.begin_charge().await;
            engine.commit(&lost, transaction, Ending::Succeeded(paid())).await.unwrap_err()
        };
        assert_eq!(error, CommitError::LeaseLost);
        assert_eq!(shop.charges(), 0);
        let transaction = shop.till.begin_charge().await;
        engine.commit(&owner, transaction, Ending::Succeeded(paid())).await.unwrap();
        is_paid_once(&shop, &engine).await;
    }
}

/// The owner that took over found that the outcome is unknown; the late truth is told all the same.
#[tokio::test]
async fn the_late_truth_of_a_commit_wins_over_unknown() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let engine = Engine::new(shop.store.clone());
        let claim = claim(&engine, "k").await;
        engine.settle(claim.clone(), Ending::Unknown).await.unwrap();
        assert_eq!(shop.status("k").await, Some(Status::Unknown));
        if blocking {
            let mut connection = shop.till.connect();
            let transaction = begin_charge_blocking(&mut connection);
            engine.commit_blocking(&claim, transaction, Ending::Succeeded(paid())).unwrap();
        } else {
            let transaction = shop.till.begin_charge().await;
            engine.commit(&claim, transaction, Ending::Succeeded(paid())).await.unwrap();
        }
        is_paid_once(&shop, &engine).await;
    }
}

#[tokio::test]
async fn an_engine_on_another_store_refuses_and_nothing_is_committed() {
    let shop = Shop::new();
    let engine = Engine::new(MemoryStore::not_durable());
    let claim = claim(&engine, "k").await;
    let ending = || Ending::Succeeded(paid());
    let mut transaction = shop.till.begin_charge().await;
    let error = engine.settle_in(&claim, &mut transaction, ending()).await.unwrap_err();
    assert_eq!(error, CommitError::WrongStore);
    let error = engine.commit(&claim, transaction, ending()).await.unwrap_err();
    assert_eq!(error, CommitError::WrongStore);
    let mut connection = shop.till.connect();
    let transaction = begin_charge_blocking(&mut connection);
    let error = engine.settle_in_blocking(&claim, &transaction, ending()).unwrap_err();
    assert_eq!(error, CommitError::WrongStore);
    let error = engine.commit_blocking(&claim, transaction, ending()).unwrap_err();
    assert_eq!(error, CommitError::WrongStore);
    assert_eq!(shop.charges(), 0);
}

/// A store that is shared, or chosen at run time, is still known by its own type.
#[tokio::test]
async fn a_shared_store_takes_part_in_transactions() {
    let shop = Shop::new();
    let store: std::sync::Arc<dyn onceward::Store> = std::sync::Arc::new(shop.store.clone());
    let engine = Engine::new(store);
    let claim = claim(&engine, "k").await;
    let transaction = shop.till.begin_charge().await;
    engine.commit(&claim, transaction, Ending::Succeeded(paid())).await.unwrap();
    is_paid_once(&shop, &engine).await;
}
