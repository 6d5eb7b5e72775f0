//! Answers that are committed with their effect, and from which something is hidden.

use onceward::{
    Outcome,
    protocol::StoredBody,
    server::{IdempotencyBuilder, Redaction},
};

use crate::{
    commit::shop::{CommitMethod, Shop},
    server_support::{ask, created, is_problem},
};

/// Hides the first word, however long the answer is.
fn hide(outcome: &mut Outcome) -> Redaction {
    let StoredBody::Inline(bytes) = &mut outcome.body else { return Redaction::Unchanged };
    bytes.splice(..6, *b"hidden");
    Redaction::Redacted
}

#[tokio::test]
async fn the_first_client_gets_the_whole_answer_and_a_replay_what_was_committed() {
    for way in CommitMethod::ALL {
        for padding in [0, 100 << 10] {
            let shop = Shop::new();
            let answer = format!("secret{}", " ".repeat(padding));
            let handed = answer.clone();
            let app = shop.service(
                |layer| layer.spool(shop.store.clone()).redact(hide),
                move |till, claim| {
                    let answer = handed.clone();
                    async move { till.charge(way, &claim, created(answer)).await }
                },
            );
            let first = ask(&app, "k").await;
            assert_eq!(first.text(), answer, "{way:?}");
            assert_eq!(first.header("onceward-redacted"), None);
            assert!(first.header("idempotency-completed").is_some());
            let again = ask(&app, "k").await;
            assert!(again.is_replay(), "{way:?} {padding}: {}", again.code());
            assert_eq!(again.text(), answer.replace("secret", "hidden"));
            assert_eq!(again.header("onceward-redacted"), Some("true"));
            assert_eq!(shop.charges(), 1);
        }
    }
}

/// What is done to an answer on its way out does not count: the client gets what was committed.
#[tokio::test]
async fn another_answer_than_the_committed_one_is_not_believed() {
    let shop = Shop::new();
    let app = shop.service(
        |layer| layer.redact(hide),
        async |till, claim| {
            let completed = till.charge(CommitMethod::ALL[0], &claim, created("secret 1")).await;
            completed.map(|_| created("forged 2"))
        },
    );
    let first = ask(&app, "k").await;
    assert_eq!((first.text(), first.header("onceward-redacted")), ("hidden 1", Some("true")));
}

#[tokio::test]
async fn only_the_status_may_be_committed() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let app = shop.service(IdempotencyBuilder::status_only, move |till, claim| async move {
            till.charge(way, &claim, created("secret")).await
        });
        assert_eq!(ask(&app, "k").await.text(), "secret", "{way:?}");
        is_problem(&ask(&app, "k").await, 409, "result-unavailable");
        assert_eq!(shop.charges(), 1);
    }
}
