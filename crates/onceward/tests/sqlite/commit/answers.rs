//! Handlers that do it right: what was committed is what everybody is told.

use axum::{
    body::Body as AxumBody,
    http::{StatusCode, header},
    response::IntoResponse as _,
};
use onceward::{Effect, Status, server::InFlight};

use crate::{
    commit::shop::{CommitMethod, Shop, request},
    server_support::{Gate, ask, created, is_charged, is_problem, is_replayed, is_same, send},
};

#[tokio::test]
async fn by_every_way_the_committed_answer_is_sent_and_replayed_verbatim() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            till.charge(way, &claim, created("charge 1")).await
        });
        let first = ask(&app, "k").await;
        is_charged(&first, "charge 1");
        assert!(!first.is_replay(), "{way:?}");
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.status("k").await, Some(Status::Succeeded), "{way:?}");
        is_charged(&ask(&app, "another").await, "charge 1");
        assert_eq!(shop.charges(), 2, "{way:?}: one for each key");
    }
}

#[tokio::test]
async fn any_status_is_bound_by_its_commit() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        for (number, status) in
            [200, 201, 204, 303, 400, 402, 404, 409, 429, 500, 503].into_iter().enumerate()
        {
            let app = shop.app(move |till, claim| async move {
                let status = StatusCode::from_u16(status).unwrap();
                let answer = (status, [("x-of", "the commit")], AxumBody::empty());
                till.charge(way, &claim, answer.into_response()).await
            });
            let key = status.to_string();
            let first = ask(&app, &key).await;
            assert_eq!(first.status, status);
            assert_eq!(first.header("x-of"), Some("the commit"), "{way:?} {status}");
            is_replayed(&app, &key, &first).await;
            let bound = if status < 400 { Status::Succeeded } else { Status::FailedFinal };
            assert_eq!(shop.status(&key).await, Some(bound), "{way:?} {status}");
            assert_eq!(shop.charges(), number + 1, "{way:?} {status}");
        }
    }
}

/// The first caller is sent what is stored, so that it hears what every retry will hear.
#[tokio::test]
async fn a_header_that_is_not_kept_is_not_sent_to_the_first_caller_either() {
    for (kept, expected) in [(false, None), (true, Some("a=1"))] {
        let shop = Shop::new();
        let app = shop.service(
            |layer| if kept { layer.keep_header("set-cookie") } else { layer },
            |till, claim| async move {
                let mut answer = created("charge 1");
                answer.headers_mut().insert(header::SET_COOKIE, "a=1".parse().unwrap());
                till.charge(CommitMethod::Commit, &claim, answer).await
            },
        );
        let first = ask(&app, "k").await;
        assert_eq!(first.header("set-cookie"), expected);
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 1);
    }
}

/// A refusal that is returned without a commit follows the rules of every answer.
#[tokio::test]
async fn a_refusal_without_a_commit_is_bound_by_its_status() {
    for (status, is_bound) in [(402, true), (404, true), (429, false), (500, false), (503, false)] {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 || shop_is_open(&till).await {
                return Ok(till.charge(CommitMethod::Commit, &claim, created("charge 1")).await);
            }
            till.begin_charge().await.rollback().await.unwrap();
            Err((StatusCode::from_u16(status).unwrap(), "no"))
        });
        let first = ask(&app, "k").await;
        assert_eq!((first.status.as_u16(), first.text()), (status, "no"));
        open_shop(&shop);
        let retry = ask(&app, "k").await;
        match is_bound {
            true => is_same(&first, &retry),
            false => is_charged(&retry, "charge 1"),
        }
        assert_eq!(retry.is_replay(), is_bound, "{status}");
        assert_eq!(shop.charges(), usize::from(!is_bound), "{status}");
    }
}

async fn shop_is_open(till: &crate::commit::shop::Till) -> bool {
    let sql = "SELECT count(*) FROM sqlite_schema WHERE name = 'open'";
    let (count,): (i64,) = sqlx::query_as(sql).fetch_one(&till.pool).await.unwrap();
    count > 0
}

fn open_shop(shop: &Shop) {
    shop.till.connect().execute_batch("CREATE TABLE open (yes)").unwrap();
}

/// The layer says what is at stake, but a commit is the end of any claim.
#[tokio::test]
async fn a_commit_ends_the_claim_of_an_external_or_repeatable_effect_too() {
    let within = std::time::Duration::from_secs(60);
    for effect in [Effect::External, Effect::Repeatable { within }] {
        for way in CommitMethod::ALL {
            let shop = Shop::new();
            let app = shop.service(
                |layer| layer.effect(effect),
                move |till, claim| async move {
                    let _ = till.charge(way, &claim, created("charge 1")).await.unwrap();
                    if way == CommitMethod::Commit {
                        panic!("a bug after the commit (expected by this test)");
                    }
                    "something else"
                },
            );
            let first = ask(&app, "k").await;
            is_charged(&first, "charge 1");
            is_replayed(&app, "k", &first).await;
            assert_eq!(shop.charges(), 1, "{effect:?} {way:?}");
        }
    }
}

#[tokio::test]
async fn those_who_wait_get_the_committed_answer() {
    for way in CommitMethod::ALL {
        let (shop, gate) = (Shop::new(), Gate::closed());
        let inside = gate.clone();
        let app = shop.service(
            |layer| layer.in_flight(InFlight::Wait(std::time::Duration::from_secs(30))),
            move |till, claim| {
                let gate = inside.clone();
                async move {
                    gate.pass().await;
                    let completed = till.charge(way, &claim, created("charge 1")).await;
                    gate.pass().await;
                    completed
                }
            },
        );
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let app = app.clone();
                tokio::spawn(async move { send(&app, request("k")).await })
            })
            .collect();
        gate.reached().await;
        gate.open();
        gate.reached().await;
        // It is committed: a retry has the answer although the handler has not returned.
        let replay = ask(&app, "k").await;
        assert!(replay.is_replay(), "{replay:?}");
        gate.open();
        for caller in callers {
            let reply = caller.await.unwrap();
            is_charged(&reply, "charge 1");
            is_same(&reply, &replay);
        }
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

/// Another request under the same key is refused as ever, and charges nothing.
#[tokio::test]
async fn another_request_with_the_key_of_a_committed_one_is_refused() {
    let shop = Shop::new();
    let app = shop.app(|till, claim| async move {
        till.charge(CommitMethod::Commit, &claim, created("charge 1")).await
    });
    is_charged(&ask(&app, "k").await, "charge 1");
    let other = crate::server_support::post("/charges", "k", "{\"cents\":7}");
    is_problem(&send(&app, other).await, 422, "key-reused");
    assert_eq!(shop.charges(), 1);
}
