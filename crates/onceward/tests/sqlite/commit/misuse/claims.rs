//! Claims that are lost, used for another request, used twice at once, or not used at all.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{http::StatusCode, response::IntoResponse as _};
use onceward::{CommitError, Status, server::Claim, store::memory::MemoryStore};

use super::{is_charged_once, is_mended_by_a_retry};
use crate::{
    commit::shop::{CommitMethod, Shop, request, service_on},
    server_support::{Gate, ask, created, is_charged, is_problem, is_replayed, is_same, send},
};

const LEASE: Duration = Duration::from_secs(30);

/// The first execution stalls for longer than its lease, and another one takes over.
struct TakenOver {
    shop: Shop,
    gate: Gate,
    late: tokio::task::JoinHandle<crate::server_support::Reply>,
    app: axum::Router,
}

impl TakenOver {
    /// What the late execution does is said by `late`, with an error that it must have met.
    async fn new<Fut>(
        late: impl Fn(crate::commit::shop::Till, Claim) -> Fut + Clone + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = axum::response::Response> + Send + 'static,
    {
        let (shop, gate) = (Shop::new(), Gate::closed());
        let inside = gate.clone();
        let app = shop.app(move |till, claim| {
            let (gate, late) = (inside.clone(), late.clone());
            async move {
                if claim.attempt() > 1 {
                    let completed =
                        till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
                    return completed.into_response();
                }
                gate.pass().await;
                late(till, claim).await
            }
        });
        let first = app.clone();
        let late = tokio::spawn(async move { send(&first, request("k")).await });
        gate.reached().await;
        shop.clock.advance(LEASE * 2);
        Self { shop, gate, late, app }
    }
}

/// The client of the late execution is not told of success: its effect was rolled back.
#[tokio::test]
async fn a_claim_that_was_taken_over_ends_nothing_and_its_effect_is_rolled_back() {
    for way in CommitMethod::ALL {
        let TakenOver { shop, gate, late, app } = TakenOver::new(move |till, claim| async move {
            let completed = till.charge(way, &claim, created("too late")).await;
            assert_eq!(completed.as_ref().unwrap_err(), &CommitError::LeaseLost);
            completed.into_response()
        })
        .await;
        let winner = ask(&app, "k").await;
        is_charged(&winner, "charge 1");
        gate.open();
        is_problem(&late.await.unwrap(), 409, "lease-lost");
        is_replayed(&app, "k", &winner).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

/// The client of the late execution is not told of success, even if its handler claims one.
#[tokio::test]
async fn a_late_handler_that_speaks_of_success_is_not_believed() {
    for status in [201, 402, 500] {
        let TakenOver { shop, gate, late, app } = TakenOver::new(move |_, _| async move {
            StatusCode::from_u16(status).unwrap().into_response()
        })
        .await;
        let winner = ask(&app, "k").await;
        gate.open();
        is_problem(&late.await.unwrap(), 409, "lease-lost");
        is_replayed(&app, "k", &winner).await;
        assert_eq!(shop.charges(), 1);
    }
}

/// The client is told that it was too late. A handler that commits against the advice of the error
/// has charged twice, and nothing but its own rollback could help it.
#[tokio::test]
async fn an_effect_that_is_committed_against_the_error_is_not_protected() {
    let TakenOver { shop, gate, late, app } = TakenOver::new(|till, claim| async move {
        let mut transaction = till.begin_charge().await;
        let completed = claim.complete_in(&mut transaction, created("too late")).await;
        assert_eq!(completed.unwrap_err(), CommitError::LeaseLost);
        transaction.commit().await.unwrap();
        created("too late")
    })
    .await;
    let winner = ask(&app, "k").await;
    gate.open();
    is_problem(&late.await.unwrap(), 409, "lease-lost");
    is_replayed(&app, "k", &winner).await;
    assert_eq!(shop.charges(), 2);
}

/// The client hears of its charge: a lease that is over carries no safety, and nobody took over.
#[tokio::test]
async fn a_late_execution_that_nobody_took_over_ends_its_claim() {
    for way in CommitMethod::ALL {
        let TakenOver { shop, gate, late, app } = TakenOver::new(move |till, claim| async move {
            till.charge(way, &claim, created("charge 1")).await.into_response()
        })
        .await;
        gate.open();
        let first = late.await.unwrap();
        is_charged(&first, "charge 1");
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

/// A handler that keeps the claims of its requests, and the way in which it uses the first one.
fn keeps_claims() -> Arc<Mutex<Option<Claim>>> {
    Arc::new(Mutex::new(None))
}

/// The client of the second request is not told of success: its own claim did not end.
#[tokio::test]
async fn the_claim_of_an_ended_request_does_not_end_another_one() {
    for way in CommitMethod::ALL {
        let (shop, kept) = (Shop::new(), keeps_claims());
        let app = shop.app(move |till, claim| {
            let old = kept.lock().unwrap().replace(claim.clone());
            async move {
                let Some(old) = old.filter(|_| claim.attempt() == 1) else {
                    return till.charge(way, &claim, created("charge 1")).await;
                };
                let completed = till.charge(way, &old, created("under the wrong key")).await;
                assert_eq!(completed.as_ref().unwrap_err(), &CommitError::Twice);
                completed
            }
        });
        let first = ask(&app, "first").await;
        is_charged(&first, "charge 1");
        is_problem(&ask(&app, "second").await, 500, "misconfigured");
        assert_eq!(shop.charges(), 1, "{way:?}: rolled back");
        is_replayed(&app, "first", &first).await;
        is_charged(&ask(&app, "second").await, "charge 1");
        assert_eq!(shop.charges(), 2, "{way:?}: one for each key");
    }
}

/// Each client is told what the record of its own key says.
#[tokio::test]
async fn the_claim_of_a_running_request_that_another_one_uses_ends_its_own_request() {
    for way in CommitMethod::ALL {
        let (shop, kept, gate) = (Shop::new(), keeps_claims(), Gate::closed());
        let inside = gate.clone();
        let app = shop.app(move |till, claim| {
            let (old, gate) = (kept.lock().unwrap().replace(claim.clone()), inside.clone());
            async move {
                if let Some(old) = old {
                    return till.charge(way, &old, created("charge 1")).await;
                }
                gate.pass().await;
                let completed = till.charge(way, &claim, created("charge 2")).await;
                assert_eq!(completed.as_ref().unwrap_err(), &CommitError::Twice);
                completed
            }
        });
        let running = tokio::spawn({
            let app = app.clone();
            async move { send(&app, request("first")).await }
        });
        gate.reached().await;
        is_problem(&ask(&app, "second").await, 500, "not-committed");
        gate.open();
        let first = running.await.unwrap();
        is_charged(&first, "charge 1");
        is_replayed(&app, "first", &first).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
        assert_eq!(shop.status("second").await, Some(Status::FailedRetryable));
    }
}

/// The client hears of the one charge that was committed.
#[tokio::test]
async fn of_two_commits_at_once_with_one_claim_one_is_made() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        let charge = |way| {
            let (till, claim) = (till.clone(), claim.clone());
            tokio::spawn(async move { till.charge(way, &claim, created("charge 1")).await })
        };
        let both = CommitMethod::ALL.map(charge);
        let mut completed = Vec::new();
        for charge in both {
            match charge.await.unwrap() {
                Ok(done) => completed.push(done),
                Err(error) => assert_eq!(error, CommitError::Twice),
            }
        }
        assert_eq!(completed.len(), 1);
        completed.pop().unwrap()
    });
    is_charged_once(&shop, &app).await;
}

/// The client is never told of success by a handler that does not know that it has a claim.
#[tokio::test]
async fn a_handler_that_never_looks_at_its_claim_is_no_success() {
    let shop = Shop::new();
    let idempotency = crate::server_support::layer(shop.store.clone())
        .effect(onceward::Effect::Transactional)
        .build()
        .unwrap();
    let till = shop.till.clone();
    let handler = async move || {
        drop(till.begin_charge().await);
        created("charge 1")
    };
    let app =
        axum::Router::new().route("/charges", axum::routing::post(handler)).layer(idempotency);
    for _ in 0..2 {
        is_problem(&ask(&app, "k").await, 500, "not-committed");
    }
    assert_eq!(shop.charges(), 0);
}

/// The client is never told of success if the records are somewhere else.
#[tokio::test]
async fn an_engine_whose_records_are_not_in_the_database_refuses() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = service_on(
            MemoryStore::not_durable(),
            shop.till.clone(),
            |layer| layer,
            move |till, claim| async move {
                let completed = till.charge(way, &claim, created("charge 1")).await;
                assert_eq!(completed.as_ref().unwrap_err(), &CommitError::WrongStore);
                completed
            },
        );
        for _ in 0..2 {
            is_problem(&ask(&app, "k").await, 500, "misconfigured");
        }
        assert_eq!(shop.charges(), 0, "{way:?}");
    }
}

/// The client of a run that took too long is told to ask again, and hears of the late commit then.
#[tokio::test]
async fn a_commit_after_the_longest_run_is_found_by_the_retry() {
    let (shop, gate) = (Shop::new(), Gate::closed());
    let inside = gate.clone();
    let lease = Duration::from_millis(100);
    let app = shop.service(
        |layer| layer.lease(lease).max_run(lease),
        move |till, claim| {
            let gate = inside.clone();
            async move {
                gate.pass().await;
                till.charge(CommitMethod::Commit, &claim, created("charge 1")).await
            }
        },
    );
    let first = ask(&app, "k").await;
    assert_eq!((first.status.as_u16(), &*first.code()), (504, "upstream-failed"));
    gate.open();
    crate::server_support::eventually(async || shop.status("k").await == Some(Status::Succeeded))
        .await;
    let retry = ask(&app, "k").await;
    is_charged(&retry, "charge 1");
    is_same(&retry, &ask(&app, "k").await);
    assert_eq!(shop.charges(), 1);
}

/// The client of a request without a key is told to send one, before anything is charged.
#[tokio::test]
async fn a_request_without_a_key_has_no_claim_and_charges_nothing() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        till.charge(CommitMethod::Commit, &claim, created("charge 1")).await
    });
    let mut without = request("k");
    without.headers_mut().remove("idempotency-key");
    is_problem(&send(&app, without).await, 400, "key-missing");
    assert_eq!(shop.charges(), 0);
}

/// A first try that ends well after a refused one: nothing of the refused one is left.
#[tokio::test]
async fn an_error_of_the_effect_itself_leaves_the_key_usable() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        if claim.attempt() > 1 {
            return till.charge(CommitMethod::Commit, &claim, created("charge 1")).await;
        }
        let mut transaction = till.begin_charge().await;
        sqlx::query("INSERT INTO nowhere VALUES (1)").execute(&mut *transaction).await?;
        claim.commit(transaction, created("never")).await
    });
    is_mended_by_a_retry(&shop, &app, 503, "not-committed").await;
}
