//! Answers that are too large for a record, not to be kept, rebuilt, or in pieces.

use axum::{
    body::{Body as AxumBody, Bytes},
    http::{Response, StatusCode},
    response::IntoResponse as _,
};
use onceward::{
    CommitError,
    server::{NotKept, Resource},
    store::sqlite::SqliteStore,
};
use tower::ServiceExt as _;

use crate::{
    commit::shop::{CommitMethod, Shop, begin_charge_blocking, request},
    server_support::{
        Pieces, ask, broken, created, data, is_charged, is_problem, is_replayed, trailers,
    },
};

/// Three chunks, and no two of them alike.
fn large() -> Vec<u8> {
    (0..600_u32 << 10).map(|number| (number / 1000 + number) as u8).collect()
}

#[tokio::test]
async fn a_large_answer_is_written_in_the_same_transaction() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.service(
            |layer| layer.spool(shop.store.clone()),
            move |till, claim| async move { till.charge(way, &claim, created(large())).await },
        );
        let first = ask(&app, "k").await;
        assert_eq!(first.status, 201);
        assert!(first.body == large(), "{way:?}: {} bytes", first.body.len());
        is_replayed(&app, "k", &first).await;
        assert_eq!((shop.charges(), shop.chunks()), (1, 3), "{way:?}");
    }
}

#[tokio::test]
async fn a_large_answer_is_gone_with_the_rollback_of_its_transaction() {
    for blocking in [false, true] {
        let shop = Shop::new();
        let app = shop.service(
            |layer| layer.spool(shop.store.clone()),
            move |till, claim| async move {
                if blocking {
                    return till
                        .blocking(move |connection| {
                            let transaction = begin_charge_blocking(connection);
                            claim.complete_in_blocking(&transaction, created(large()))
                        })
                        .await;
                }
                let mut transaction = till.begin_charge().await;
                claim.complete_in(&mut transaction, created(large())).await
            },
        );
        is_problem(&ask(&app, "k").await, 500, "not-committed");
        is_problem(&ask(&app, "k").await, 500, "not-committed");
        assert_eq!((shop.charges(), shop.chunks()), (0, 0), "blocking: {blocking}");
    }
}

/// The effect happened once; that its answer cannot be had again is no reason to repeat it.
async fn is_told_once(shop: &Shop, app: &axum::Router, expected: &[u8]) {
    let first = ask(app, "k").await;
    assert_eq!(first.status, 201, "{first:?}");
    assert!(first.body == expected, "{} bytes", first.body.len());
    assert_eq!(first.header("x-of"), Some("the commit"));
    for _ in 0..2 {
        is_problem(&ask(app, "k").await, 409, "result-unavailable");
    }
    assert_eq!((shop.charges(), shop.chunks()), (1, 0));
}

#[tokio::test]
async fn without_a_spool_a_large_answer_is_sent_once_and_the_charge_not_repeated() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app =
            shop.app(
                move |till, claim| async move { till.charge(way, &claim, created(large())).await },
            );
        is_told_once(&shop, &app, &large()).await;
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_sent_once_and_the_charge_not_repeated() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.service(
            |layer| layer.spool(shop.store.clone()).max_inline(1000).max_response(100_000),
            move |till, claim| async move {
                let pieces =
                    large().chunks(50_000).map(|piece| data(piece.to_vec())).collect::<Vec<_>>();
                let body = AxumBody::new(Pieces::of(pieces));
                till.charge(way, &claim, created(body)).await
            },
        );
        is_told_once(&shop, &app, &large()).await;
    }
}

#[tokio::test]
async fn an_answer_that_shall_not_be_kept_is_sent_once_and_the_charge_not_repeated() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            let mut answer = created("the password is sesame");
            answer.extensions_mut().insert(NotKept);
            till.charge(way, &claim, answer).await
        });
        is_told_once(&shop, &app, b"the password is sesame").await;
        let file = std::fs::read(&shop.till.path).unwrap();
        let log = std::fs::read(shop.till.path.with_extension("db-wal")).unwrap();
        for bytes in [file, log] {
            assert!(!bytes.windows(6).any(|window| window == b"sesame"), "it is in the file");
        }
    }
}

#[tokio::test]
async fn a_stream_of_events_is_committed_before_it_is_passed_on() {
    let shop = Shop::new();
    let app = shop.app(move |till, claim| async move {
        let (sender, body) = Pieces::channel();
        tokio::spawn(async move {
            for event in ["data: 1\n\n", "data: 2\n\n"] {
                sender.send(data(event)).unwrap();
            }
        });
        let answer = ([("content-type", "text/event-stream")], AxumBody::new(body));
        till.charge(CommitMethod::Commit, &claim, answer.into_response()).await
    });
    let first = ask(&app, "k").await;
    assert_eq!((first.status.as_u16(), first.text()), (200, "data: 1\n\ndata: 2\n\n"));
    is_problem(&ask(&app, "k").await, 409, "result-unavailable");
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn an_answer_that_refers_to_a_resource_is_rebuilt_for_everybody() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let till = shop.till.clone();
        let rebuild = move |resource: Resource| {
            let till = till.clone();
            async move {
                let sql = "SELECT note FROM charges WHERE id = ?1";
                let found: Option<(String,)> =
                    sqlx::query_as(sql).bind(resource.id()).fetch_optional(&till.pool).await?;
                Ok(found.map(|(note,)| Response::new(Bytes::from(note))))
            }
        };
        let app = shop.service(
            |layer| layer.rebuild(rebuild),
            move |till, claim| async move {
                let mut answer = created("a charge");
                answer.extensions_mut().insert(Resource::new("charge", "1"));
                till.charge(way, &claim, answer).await
            },
        );
        let first = ask(&app, "k").await;
        is_charged(&first, "a charge");
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 1);
        shop.till.connect().execute("UPDATE charges SET note = 'a settled charge'", []).unwrap();
        is_charged(&ask(&app, "k").await, "a settled charge");
    }
}

#[tokio::test]
async fn trailers_are_committed_and_replayed() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            let pieces = [data("charge "), data("1"), trailers(&[("x-checksum", "abc")])];
            let answer = created(AxumBody::new(Pieces::of(pieces)));
            till.charge(way, &claim, answer).await
        });
        let first = ask(&app, "k").await;
        is_charged(&first, "charge 1");
        assert_eq!(first.trailers.as_ref().unwrap()["x-checksum"], "abc", "{way:?}");
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 1);
    }
}

/// The effect is rolled back: an answer that nobody could be told is no end of an operation.
#[tokio::test]
async fn an_answer_that_breaks_off_is_not_committed() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            if claim.attempt() > 1 {
                return till.charge(way, &claim, created("charge 1")).await;
            }
            let body = AxumBody::new(Pieces::of([data("half of the"), broken()]));
            let completed = till.charge(way, &claim, created(body)).await;
            assert_eq!(completed.as_ref().unwrap_err(), &CommitError::AnswerBroke);
            completed
        });
        is_problem(&ask(&app, "k").await, 503, "not-committed");
        assert_eq!(shop.charges(), 0, "{way:?}");
        let retry = ask(&app, "k").await;
        is_charged(&retry, "charge 1");
        is_replayed(&app, "k", &retry).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

/// What comes later than it is asked for is waited for by the one, and refused by the other.
#[tokio::test]
async fn an_answer_that_comes_in_pieces_is_not_waited_for_where_that_would_block() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            let (sender, body) = Pieces::channel();
            tokio::spawn(async move {
                for piece in ["charge", " ", "1"] {
                    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
                    // Whoever does not wait for it has gone.
                    let _ = sender.send(data(piece));
                }
            });
            till.charge(way, &claim, created(AxumBody::new(body))).await
        });
        let first = ask(&app, "k").await;
        match way {
            CommitMethod::Commit | CommitMethod::CompleteIn => is_charged(&first, "charge 1"),
            CommitMethod::CommitBlocking | CommitMethod::CompleteInBlocking => {
                is_problem(&first, 503, "not-committed");
            }
        }
        assert_eq!(shop.charges(), usize::from(first.status == 201), "{way:?}");
    }
}

/// The head is sent with the stored length or without one, never with a wrong one.
#[tokio::test]
async fn an_empty_answer_is_an_answer() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.app(move |till, claim| async move {
            till.charge(way, &claim, StatusCode::NO_CONTENT.into_response()).await
        });
        let first = ask(&app, "k").await;
        assert_eq!((first.status.as_u16(), first.text()), (204, ""));
        is_replayed(&app, "k", &first).await;
        assert_eq!(shop.charges(), 1);
    }
}

/// The chunks are where the record is, whatever the layer was told to spool to.
#[tokio::test]
async fn a_large_answer_is_found_again_if_the_layer_spools_to_another_file() {
    let shop = Shop::new();
    let other = SqliteStore::open(shop.directory.path().join("other.db")).unwrap();
    let app =
        shop.service(
            |layer| layer.spool(other),
            |till, claim| async move {
                till.charge(CommitMethod::Commit, &claim, created(large())).await
            },
        );
    let first = ask(&app, "k").await;
    assert_eq!(shop.charges(), 1);
    assert_eq!(first.status, 201, "{:?}", first.text());
    assert!(first.body == large());
    is_replayed(&app, "k", &first).await;
}

/// The client of a committed answer that was too large to be kept sees that it broke off.
#[tokio::test]
async fn an_answer_over_the_limit_that_breaks_off_is_committed_and_seen_to_break() {
    use http_body_util::BodyExt as _;
    let shop = Shop::new();
    let app = shop.service(
        |layer| layer.max_inline(10).max_response(25),
        |till, claim| async move {
            let pieces = [data("ten bytes!"), data("ten bytes!"), data("ten bytes!"), broken()];
            let answer = created(AxumBody::new(Pieces::of(pieces)));
            till.charge(CommitMethod::Commit, &claim, answer).await
        },
    );
    let first = app.clone().oneshot(request("k")).await.unwrap();
    assert_eq!(first.status(), 201);
    assert!(first.into_body().collect().await.is_err(), "it is seen to break");
    is_problem(&ask(&app, "k").await, 409, "result-unavailable");
    assert_eq!(shop.charges(), 1);
}
