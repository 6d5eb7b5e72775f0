//! Claim, effect and end in one transaction of the handler's own.

use std::{future::Future, time::Duration};

use axum::{Router, http::StatusCode, response::IntoResponse, routing::post as on_post};
use onceward::{
    CommitError, Effect, Ending, Engine, Outcome, Status, Verdict,
    server::{Claim, Completed, Deferred, IdempotencyBuilder, InFlight},
    store::{memory::MemoryStore, sqlite::SqliteStore},
};

use crate::{
    server_support::{Gate, ask, created, is_charged, is_problem, is_replayed, layer, post, send},
    shop::{INSERT, Shop, Till, Turns, request},
};

#[derive(Clone, Copy, Debug)]
enum Driver {
    OnConnection,
    Tokio,
    Deadpool,
    Sqlx,
}

impl Driver {
    const ALL: [Self; 4] = [Self::OnConnection, Self::Tokio, Self::Deadpool, Self::Sqlx];

    async fn charge(self, till: &Till, deferred: &Deferred) -> Result<Completed, CommitError> {
        match self {
            Self::OnConnection => {
                let mut client = crate::support::connect(&till.url).await;
                let run = deferred.run_on(&mut client, |shop| {
                    Box::pin(async move {
                        shop.execute(INSERT, &[]).await?;
                        Ok(created("charged"))
                    })
                });
                run.await
            }
            Self::Tokio => {
                let mut client = crate::support::connect(&till.url).await;
                let run = deferred.run_in(client.transaction().await?, |shop| {
                    Box::pin(async move {
                        shop.execute(INSERT, &[]).await?;
                        Ok(created("charged"))
                    })
                });
                run.await
            }
            Self::Deadpool => {
                let mut client = till.deadpool.get().await?;
                let run = deferred.run_in(client.transaction().await?, |shop| {
                    Box::pin(async move {
                        shop.execute(INSERT, &[]).await?;
                        Ok(created("charged"))
                    })
                });
                run.await
            }
            Self::Sqlx => {
                let run = deferred.run_in(till.sqlx.begin().await?, |shop| {
                    Box::pin(async move {
                        sqlx::query(INSERT).execute(&mut **shop).await?;
                        Ok(created("charged"))
                    })
                });
                run.await
            }
        }
    }
}

fn deferred_layer(shop: &Shop) -> IdempotencyBuilder {
    layer(shop.store.clone()).effect(Effect::Transactional).deferred()
}

fn service<Fut>(
    shop: &Shop,
    handler: impl Fn(Till, Deferred) -> Fut + Clone + Send + Sync + 'static,
) -> Router
where
    Fut: Future<Output: IntoResponse> + Send + 'static,
{
    let till = shop.till.clone();
    let handler = move |deferred: Deferred| handler(till.clone(), deferred);
    let layer = deferred_layer(shop).build().unwrap();
    Router::new().route("/charges", on_post(handler)).layer(layer)
}

fn charging(shop: &Shop, driver: Driver) -> Router {
    service(shop, move |till, deferred| async move { driver.charge(&till, &deferred).await })
}

#[tokio::test]
async fn every_driver_claims_charges_and_ends_in_one_commit() {
    let shop = Shop::open().await;
    for (number, driver) in (1..).zip(Driver::ALL) {
        let (app, key) = (charging(&shop, driver), format!("{driver:?}"));
        let first = ask(&app, &key).await;
        is_charged(&first, "charged");
        is_replayed(&app, &key, &first).await;
        assert_eq!((shop.charges(), shop.count("onceward.open")), (number, 0), "{driver:?}");
        assert_eq!(shop.status(&key).await, Some(Status::Succeeded));
        let other = send(&app, post("/charges", &key, r#"{"cents":2}"#)).await;
        is_problem(&other, 422, "key-reused");
        assert_eq!(shop.charges(), number, "{driver:?}");
    }
}

#[tokio::test]
async fn nobody_sees_a_claim_before_its_commit_and_a_duplicate_does_not_wait_for_long() {
    for driver in Driver::ALL {
        let shop = Shop::open().await;
        let gate = Gate::closed();
        let holding = {
            let gate = gate.clone();
            service(&shop, move |till, deferred| {
                let gate = gate.clone();
                async move {
                    let mut client = till.deadpool.get().await?;
                    let run = deferred.run_in(client.transaction().await?, |shop| {
                        Box::pin(async move {
                            shop.execute(INSERT, &[]).await?;
                            gate.pass().await;
                            Ok::<_, CommitError>(created("charged"))
                        })
                    });
                    run.await
                }
            })
        };
        let first = tokio::spawn(async move { ask(&holding, "k").await });
        gate.reached().await;
        assert_eq!(shop.status("k").await, None, "it is not committed");
        let app = charging(&shop, driver);
        let busy = ask(&app, "k").await;
        is_problem(&busy, 409, "in-progress");
        assert_eq!(busy.header("retry-after"), Some("1"));
        is_charged(&ask(&app, "another").await, "charged");
        gate.open();
        let first = first.await.unwrap();
        is_charged(&first, "charged");
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 2, "{driver:?}");
    }
}

#[tokio::test]
async fn an_effect_that_fails_leaves_nothing_behind() {
    let shop = Shop::open().await;
    let app = service(&shop, |till, deferred| async move {
        let mut client = till.deadpool.get().await?;
        let run = deferred.run_in(client.transaction().await?, |shop| {
            Box::pin(async move {
                shop.execute(INSERT, &[]).await?;
                shop.execute("SELECT 1 / 0", &[]).await?;
                Ok::<_, CommitError>(created("never"))
            })
        });
        run.await
    });
    is_problem(&ask(&app, "k").await, 503, "not-committed");
    assert_eq!((shop.charges(), shop.status("k").await), (0, None));
    is_charged(&ask(&charging(&shop, Driver::OnConnection), "k").await, "charged");
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_handler_that_never_runs_it_has_committed_nothing() {
    let shop = Shop::open().await;
    let app = service(&shop, |_, _| async { "all is well" });
    is_problem(&ask(&app, "k").await, 500, "not-committed");
    let app = service(&shop, |_, _| async { (StatusCode::BAD_REQUEST, "which order?") });
    let refused = ask(&app, "k").await;
    assert_eq!((refused.status.as_u16(), refused.text()), (400, "which order?"));
    assert_eq!(shop.status("k").await, None, "nothing is bound");
    let app = service(&shop, |_, _| async { panic!("oh no") as StatusCode });
    is_problem(&ask(&app, "k").await, 502, "upstream-failed");
    is_charged(&ask(&charging(&shop, Driver::Tokio), "k").await, "charged");
}

#[tokio::test]
async fn a_business_refusal_that_is_committed_is_kept() {
    let shop = Shop::open().await;
    let app = service(&shop, |till, deferred| async move {
        let mut client = till.deadpool.get().await?;
        let run = deferred.run_in(client.transaction().await?, |_| {
            Box::pin(async { Ok::<_, CommitError>((StatusCode::PAYMENT_REQUIRED, "declined")) })
        });
        run.await
    });
    let first = ask(&app, "k").await;
    assert_eq!((first.status.as_u16(), first.text()), (402, "declined"));
    is_replayed(&app, "k", &first).await;
    assert_eq!(shop.status("k").await, Some(Status::FailedFinal));
}

#[tokio::test]
async fn it_is_run_once_whatever_is_done_with_it() {
    let shop = Shop::open().await;
    let app = service(&shop, |till, deferred| async move {
        let first = Driver::Tokio.charge(&till, &deferred).await?;
        assert!(first.is_first());
        assert_eq!(Driver::Tokio.charge(&till, &deferred).await.unwrap_err(), CommitError::Twice);
        Ok::<_, CommitError>("something else")
    });
    is_charged(&ask(&app, "k").await, "charged");
    let app = service(&shop, |till, deferred| async move {
        let again = Driver::Deadpool.charge(&till, &deferred).await?;
        assert!(!again.is_first(), "what else is done once can be told apart");
        Ok::<_, CommitError>(again)
    });
    let replay = ask(&app, "k").await;
    is_charged(&replay, "charged");
    assert!(replay.is_replay());
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn many_duplicates_at_once_are_one_charge_and_one_answer() {
    let shop = Shop::open().await;
    let app = charging(&shop, Driver::Deadpool);
    let asked: Vec<_> = (0..24)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, "k").await })
        })
        .collect();
    for reply in asked {
        let reply = reply.await.unwrap();
        match reply.status.as_u16() {
            201 => is_charged(&reply, "charged"),
            _ => is_problem(&reply, 409, "in-progress"),
        }
    }
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn an_abandoned_claim_of_a_layer_that_does_not_defer_is_taken_over() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = crate::shop::admit(&engine, "k").await;
    let app = charging(&shop, Driver::OnConnection);
    is_problem(&ask(&app, "k").await, 422, "key-reused");
    // The same request, as its fingerprint says.
    let mut client = shop.connect().await;
    let patience = Duration::from_millis(50);
    let (_, verdict) = engine.begin_in(request("k"), &mut client, patience).await.unwrap();
    assert!(matches!(verdict, Verdict::Busy { .. }), "{verdict:?}");
    shop.abandon(&claim.id()).await;
    let (shopping, verdict) = engine.begin_in(request("k"), &mut client, patience).await.unwrap();
    let Verdict::Run(other) = verdict else { panic!("{verdict:?}") };
    assert_eq!(other.attempt(), 2);
    shopping.execute(INSERT, &[]).await.unwrap();
    let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    engine.commit(&other, shopping, paid).await.unwrap();
    assert_eq!((shop.charges(), shop.status("k").await), (1, Some(Status::Succeeded)));
    assert_eq!(shop.count("onceward.trail"), 1, "a take-over is noted");
}

/// A charge whose commit waits until nobody holds the advisory lock 8.
const SLOW_COMMIT: &str = "
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN PERFORM pg_advisory_xact_lock(8); RETURN NULL; END$$;
    CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON charges DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION wait()";

/// Waits until a commit waits for that.
async fn somebody_waits(till: &Till) {
    let client = crate::support::connect(&till.url).await;
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database())";
    while !client.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_commit_that_is_under_way_is_not_nothing_although_the_handler_has_left() {
    for driver in [Driver::Deadpool, Driver::Sqlx] {
        let shop = Shop::open().await;
        shop.database.sql(SLOW_COMMIT);
        let other = shop.connect().await;
        other.batch_execute("SELECT pg_advisory_lock(8)").await.unwrap();
        let app = service(&shop, move |till, deferred| async move {
            tokio::select! {
                completed = driver.charge(&till, &deferred) => completed.into_response(),
                () = somebody_waits(&till) => {
                    (StatusCode::GATEWAY_TIMEOUT, "nothing happened").into_response()
                }
            }
        });
        is_problem(&ask(&app, "k").await, 503, "outcome-unknown");
        assert_eq!(shop.status("k").await, None, "it is not committed");
        other.batch_execute("SELECT pg_advisory_unlock(8)").await.unwrap();
        let landed = async {
            while shop.status("k").await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), landed).await.unwrap();
        let retry = ask(&charging(&shop, Driver::Tokio), "k").await;
        is_charged(&retry, "charged");
        assert!(retry.is_replay());
        assert_eq!(shop.charges(), 1, "{driver:?}");
    }
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_leaves_nothing_behind() {
    let shop = Shop::open().await;
    shop.database.sql(
        "ALTER TABLE charges ADD CONSTRAINT one_note UNIQUE (note) DEFERRABLE INITIALLY DEFERRED",
    );
    shop.database.sql(INSERT);
    for driver in Driver::ALL {
        is_problem(&ask(&charging(&shop, driver), "k").await, 503, "not-committed");
        assert_eq!((shop.charges(), shop.status("k").await), (1, None), "{driver:?}");
    }
}

#[tokio::test]
async fn three_round_trips_with_the_effect() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let turns = Turns::default();
    let mut client = turns.connect(shop.database.url()).await;
    let patience = Duration::from_millis(50);
    let begun = engine.begin_in(request("k"), &mut client, patience).await.unwrap();
    let (transaction, Verdict::Run(claim)) = begun else { panic!("it does not run") };
    assert_eq!(turns.take(), 1, "BEGIN and the claim");
    transaction.batch_execute(INSERT).await.unwrap();
    let paid = Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
    engine.commit(&claim, transaction, paid).await.unwrap();
    assert_eq!(turns.take(), 2, "the effect; the end and COMMIT");
    assert_eq!(shop.status("k").await, Some(Status::Succeeded));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_it_serves() {
    let shop = Shop::open().await;
    let transactional =
        |builder: IdempotencyBuilder| builder.effect(Effect::Transactional).deferred();
    let refused = |builder: IdempotencyBuilder| builder.build().unwrap_err().to_string();
    let directory = testbed::directory();
    let sqlite = SqliteStore::open(directory.path().join("shop.db")).unwrap();
    for (text, expected) in [
        (refused(layer(shop.store.clone()).deferred()), "Effect::Transactional"),
        (refused(transactional(layer(sqlite))), "use PostgreSQL"),
        (refused(transactional(layer(MemoryStore::not_durable()))), "use PostgreSQL"),
        (refused(deferred_layer(&shop).in_flight(InFlight::Async)), "deferred_wait"),
        (refused(deferred_layer(&shop).deferred_wait(Duration::from_secs(6))), "5 s"),
        (refused(deferred_layer(&shop).deferred_wait(Duration::ZERO)), "1 ms"),
    ] {
        assert!(text.starts_with("`deferred") && text.contains(expected), "{text}");
    }
    let layer_of = deferred_layer(&shop).build().unwrap();
    let app = Router::new().route("/charges", on_post(|_: Claim| async {})).layer(layer_of);
    let reply = ask(&app, "k").await;
    is_problem(&reply, 500, "misconfigured");
    let plain = layer(shop.store.clone()).effect(Effect::Transactional).build().unwrap();
    let app = Router::new().route("/charges", on_post(|_: Deferred| async {})).layer(plain);
    is_problem(&ask(&app, "other").await, 500, "misconfigured");
}

/// Rule 28: the effect is not run, and the transaction leaves nothing behind.
#[tokio::test]
async fn what_nobody_waits_for_any_more_is_not_run() {
    let shop = Shop::open().await;
    for (number, driver) in (1..).zip(Driver::ALL) {
        let (app, key) = (charging(&shop, driver), format!("{driver:?}"));
        let mut expired = post("/charges", &key, r#"{"cents":1}"#);
        expired.headers_mut().insert("onceward-deadline", "0".parse().unwrap());
        is_problem(&send(&app, expired).await, 504, "deadline-exceeded");
        assert_eq!((shop.status(&key).await, shop.charges()), (None, number - 1), "{driver:?}");
        is_charged(&ask(&app, &key).await, "charged");
    }
}
