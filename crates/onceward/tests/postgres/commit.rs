//! Effect, record and answer in one commit of the user's own, on PostgreSQL, with each driver.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use axum::{Router, routing::post};
use onceward::{
    CommitError, Effect, Ending, Engine, Outcome, Status, Store as _,
    protocol::Found,
    server::{Claim, Completed},
    store::{Transactional, postgres::Dialect},
};

use crate::{
    server_support::{ask, created, eventually, is_charged, is_problem, is_replayed, layer},
    shop::{INSERT, Shop, Till, Turns, admit},
};

/// How a handler ends its claim with its effect.
#[derive(Clone, Copy, Debug)]
enum CommitMethod {
    Tokio,
    TokioCompleteIn,
    Deadpool,
    Sqlx,
    SqlxCompleteIn,
}

impl CommitMethod {
    const ALL: [Self; 5] =
        [Self::Tokio, Self::TokioCompleteIn, Self::Deadpool, Self::Sqlx, Self::SqlxCompleteIn];

    async fn charge(self, till: &Till, claim: &Claim) -> Result<Completed, CommitError> {
        let answer = created(format!("{self:?}"));
        match self {
            Self::Tokio | Self::TokioCompleteIn => {
                let mut client = crate::support::connect(&till.url).await;
                let mut transaction = client.transaction().await?;
                transaction.execute(INSERT, &[]).await?;
                if matches!(self, Self::Tokio) {
                    return claim.commit(transaction, answer).await;
                }
                let completed = claim.complete_in(&mut transaction, answer).await?;
                transaction.commit().await?;
                Ok(completed)
            }
            Self::Deadpool => {
                let mut client = till.deadpool.get().await?;
                let transaction = client.transaction().await?;
                transaction.execute(INSERT, &[]).await?;
                claim.commit(transaction, answer).await
            }
            Self::Sqlx | Self::SqlxCompleteIn => {
                let mut transaction = till.sqlx.begin().await?;
                sqlx::query(INSERT).execute(&mut *transaction).await?;
                if matches!(self, Self::Sqlx) {
                    return claim.commit(transaction, answer).await;
                }
                let completed = claim.complete_in(&mut transaction, answer).await?;
                transaction.commit().await?;
                Ok(completed)
            }
        }
    }
}

fn service<Fut>(
    shop: &Shop,
    handler: impl Fn(Till, Claim) -> Fut + Clone + Send + Sync + 'static,
) -> Router
where
    Fut: Future<Output = Result<Completed, CommitError>> + Send + 'static,
{
    let layer = layer(shop.store.clone()).effect(Effect::Transactional).build().unwrap();
    let till = shop.till.clone();
    let handler = move |claim: Claim| handler(till.clone(), claim);
    Router::new().route("/charges", post(handler)).layer(layer)
}

#[tokio::test]
async fn every_driver_commits_the_effect_with_its_record_and_its_answer() {
    let shop = Shop::open().await;
    for (number, method) in (1..).zip(CommitMethod::ALL) {
        let app =
            service(&shop, move |till, claim| async move { method.charge(&till, &claim).await });
        let key = format!("{method:?}");
        let first = ask(&app, &key).await;
        is_charged(&first, &key);
        is_replayed(&app, &key, &first).await;
        assert_eq!((shop.charges(), shop.count("onceward.open")), (number, 0), "{method:?}");
        assert_eq!(shop.status(&key).await, Some(Status::Succeeded));
    }
}

#[tokio::test]
async fn a_forgotten_commit_is_told_and_runs_again() {
    let shop = Shop::open().await;
    let app = service(&shop, |till, claim| async move {
        let mut client = till.deadpool.get().await?;
        let mut transaction = client.transaction().await?;
        transaction.execute(INSERT, &[]).await?;
        let completed = claim.complete_in(&mut transaction, created("lost")).await?;
        transaction.rollback().await?;
        Ok(completed)
    });
    is_problem(&ask(&app, "k").await, 500, "not-committed");
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::FailedRetryable)));
    let app =
        service(
            &shop,
            |till, claim| async move { CommitMethod::Tokio.charge(&till, &claim).await },
        );
    is_charged(&ask(&app, "k").await, "Tokio");
    assert_eq!(shop.charges(), 1);
}

fn paid() -> Ending {
    Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()))
}

/// Charges and ends a claim, with one of the drivers.
async fn commit(
    method: CommitMethod,
    shop: &Shop,
    engine: &Engine,
    claim: &onceward::protocol::Claim,
) -> Result<(), CommitError> {
    match method {
        CommitMethod::Tokio | CommitMethod::TokioCompleteIn => {
            let mut client = shop.connect().await;
            let mut transaction = client.transaction().await?;
            transaction.execute(INSERT, &[]).await?;
            if matches!(method, CommitMethod::Tokio) {
                return engine.commit(claim, transaction, paid()).await;
            }
            engine.settle_in(claim, &mut transaction, paid()).await?;
            Ok(transaction.commit().await?)
        }
        CommitMethod::Deadpool => {
            let mut client = shop.till.deadpool.get().await?;
            let transaction = client.transaction().await?;
            transaction.execute(INSERT, &[]).await?;
            engine.commit(claim, transaction, paid()).await
        }
        CommitMethod::Sqlx | CommitMethod::SqlxCompleteIn => {
            let mut transaction = shop.till.sqlx.begin().await?;
            sqlx::query(INSERT).execute(&mut *transaction).await?;
            if matches!(method, CommitMethod::Sqlx) {
                return engine.commit(claim, transaction, paid()).await;
            }
            engine.settle_in(claim, &mut transaction, paid()).await?;
            Ok(transaction.commit().await?)
        }
    }
}

#[tokio::test]
async fn who_was_taken_over_commits_nothing_and_who_ends_twice_neither() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    for (number, method) in (1..).zip(CommitMethod::ALL) {
        let key = format!("{method:?}");
        let slow = admit(&engine, &key).await;
        shop.abandon(&slow.id()).await;
        let other = admit(&engine, &key).await;
        assert_eq!(other.attempt(), 2);
        assert_eq!(
            commit(method, &shop, &engine, &slow).await,
            Err(CommitError::LeaseLost),
            "{method:?}"
        );
        assert_eq!(commit(method, &shop, &engine, &other).await, Ok(()), "{method:?}");
        assert_eq!(
            commit(method, &shop, &engine, &other).await,
            Err(CommitError::Twice),
            "{method:?}"
        );
        assert_eq!(
            commit(method, &shop, &engine, &slow).await,
            Err(CommitError::LeaseLost),
            "{method:?}"
        );
        assert_eq!(shop.charges(), number, "{method:?}");
        assert_eq!(shop.status(&key).await, Some(Status::Succeeded));
    }
}

#[tokio::test]
async fn the_commit_of_a_savepoint_is_refused_and_its_outer_transaction_does_not_go_on() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;

    let mut client = shop.connect().await;
    let mut outer = client.transaction().await.unwrap();
    outer.execute(INSERT, &[]).await.unwrap();
    let inner = outer.transaction().await.unwrap();
    assert_eq!(engine.commit(&claim, inner, paid()).await, Err(CommitError::Savepoint));
    assert!(outer.execute(INSERT, &[]).await.is_err(), "it must not go on without a transaction");
    let _ = outer.commit().await;
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::InProgress)));
    assert!(client.query("SELECT 1", &[]).await.is_ok(), "the connection is as good as before");

    let mut outer = shop.till.sqlx.begin().await.unwrap();
    let inner = sqlx::Connection::begin(&mut *outer).await.unwrap();
    assert_eq!(engine.commit(&claim, inner, paid()).await, Err(CommitError::Savepoint));
    outer.rollback().await.unwrap();
    assert_eq!(shop.status("k").await, Some(Status::InProgress));
    assert_eq!(commit(CommitMethod::Tokio, &shop, &engine, &claim).await, Ok(()));
}

#[tokio::test]
async fn a_transaction_that_would_lose_what_it_acknowledges_is_made_durable() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    for (weak, strong) in
        [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
    {
        let claim = admit(&engine, weak).await;
        let mut client = shop.connect().await;
        let settings = format!("SET synchronous_commit = {weak}; SET lock_timeout = '7s'");
        client.batch_execute(&settings).await.unwrap();
        let mut transaction = client.transaction().await.unwrap();
        engine.settle_in(&claim, &mut transaction, paid()).await.unwrap();
        let shown = "SELECT current_setting('synchronous_commit'), current_setting('lock_timeout')";
        let row = transaction.query_one(shown, &[]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (strong, "7s"), "inside the transaction");
        transaction.commit().await.unwrap();
        let row = client.query_one(shown, &[]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (weak, "7s"), "and as before afterwards");
    }
}

#[tokio::test]
async fn a_commit_that_the_database_refuses_leaves_the_claim_as_it_was() {
    let shop = Shop::open().await;
    shop.database.sql(
        "ALTER TABLE charges ADD CONSTRAINT one_note UNIQUE (note) DEFERRABLE INITIALLY DEFERRED",
    );
    shop.database.sql(INSERT);
    let engine = Engine::new(shop.store.clone());
    for method in CommitMethod::ALL {
        let key = format!("{method:?}");
        let claim = admit(&engine, &key).await;
        let refused = commit(method, &shop, &engine, &claim).await;
        assert!(matches!(refused, Err(CommitError::NotCommitted(_))), "{method:?}: {refused:?}");
        assert_eq!(shop.status(&key).await, Some(Status::InProgress), "{method:?}");
    }
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_transaction_that_has_failed_or_is_of_another_database_commits_nothing() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut client = shop.connect().await;
    let transaction = client.transaction().await.unwrap();
    transaction.execute(INSERT, &[]).await.unwrap();
    assert!(transaction.execute("SELECT 1 / 0", &[]).await.is_err());
    let failed = engine.commit(&claim, transaction, paid()).await;
    assert!(matches!(failed, Err(CommitError::NotCommitted(_))), "{failed:?}");

    let other = testbed::postgres().database();
    let mut client = crate::support::connect(other.url()).await;
    let failed = engine.commit(&claim, client.transaction().await.unwrap(), paid()).await;
    let Err(CommitError::NotCommitted(error)) = failed else { panic!("{failed:?}") };
    assert!(error.to_string().contains("onceward migrate"), "{error}");
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::InProgress)));
}

#[tokio::test]
async fn a_dropped_commit_is_done_or_not_and_never_half_of_it() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let mut done = 0;
    for polls in 0..6 {
        let key = format!("after-{polls}");
        let claim = admit(&engine, &key).await;
        let mut client = shop.connect().await;
        let transaction = client.transaction().await.unwrap();
        transaction.execute(INSERT, &[]).await.unwrap();
        {
            let mut commit = pin!(engine.commit(&claim, transaction, paid()));
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                if let Poll::Ready(committed) = commit.as_mut().poll(&mut context) {
                    committed.unwrap();
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // What was sent is answered in its order: this comes after it.
        client.query("SELECT 1", &[]).await.unwrap();
        let is_done = shop.status(&key).await == Some(Status::Succeeded);
        done += usize::from(is_done);
        assert_eq!(shop.charges(), done, "the record and the charge, or neither, after {polls}");
        assert_eq!(is_done, polls > 0, "both are sent when it is first polled");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_commits_nothing_or_all_of_it() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut client = shop.connect().await;
    let transaction = client.transaction().await.unwrap();
    transaction.execute(INSERT, &[]).await.unwrap();
    let row = transaction.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
    let pid: i32 = row.get(0);
    shop.database.sql(&format!("SELECT pg_terminate_backend({pid})"));
    let failed = engine.commit(&claim, transaction, paid()).await;
    // The driver may have noticed before, or may have sent it.
    let Err(CommitError::NotCommitted(_) | CommitError::Doubtful(_)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::InProgress)));
    assert_eq!(commit(CommitMethod::Tokio, &shop, &engine, &claim).await, Ok(()));
    assert_eq!(shop.charges(), 1);
}

/// Waits until somebody waits for a lock in this database.
async fn somebody_waits(shop: &Shop) -> i32 {
    let waits = "SELECT coalesce(max(pid), 0) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let watch = async {
        loop {
            match shop.database.sql(waits).trim().parse().unwrap() {
                0 => tokio::time::sleep(Duration::from_millis(10)).await,
                pid => return pid,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), watch).await.unwrap()
}

/// Another transaction that holds the record of a claim.
async fn holding<'c>(
    client: &'c mut tokio_postgres::Client,
    claim: &onceward::protocol::Claim,
) -> tokio_postgres::Transaction<'c> {
    let other = client.transaction().await.unwrap();
    let hold = "SELECT 1 FROM onceward.record WHERE digest = $1 FOR UPDATE";
    assert_eq!(other.execute(hold, &[&claim.id().0.as_slice()]).await.unwrap(), 1);
    other
}

#[tokio::test]
async fn an_end_without_an_answer_is_in_doubt_although_the_claim_can_be_renewed() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut other = shop.connect().await;
    let other = holding(&mut other, &claim).await;
    let mut client = shop.connect().await;
    let transaction = client.transaction().await.unwrap();
    transaction.execute(INSERT, &[]).await.unwrap();
    let end = async {
        let pid = somebody_waits(&shop).await;
        shop.database.sql(&format!("SELECT pg_terminate_backend({pid})"));
        other.rollback().await.unwrap();
    };
    let (failed, ()) = tokio::join!(engine.commit(&claim, transaction, paid()), end);
    assert!(matches!(failed, Err(CommitError::Doubtful(_))), "{failed:?}");
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::InProgress)));
    assert_eq!(commit(CommitMethod::Tokio, &shop, &engine, &claim).await, Ok(()));
}

#[tokio::test]
async fn a_commit_of_ones_own_that_has_no_answer_is_in_doubt() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let asked = "SELECT pg_backend_pid()";
    let end = |pid: i32| shop.database.sql(&format!("SELECT pg_terminate_backend({pid})"));

    let claim = admit(&engine, "tokio").await;
    let mut client = shop.connect().await;
    let mut transaction = client.transaction().await.unwrap();
    engine.settle_in(&claim, &mut transaction, paid()).await.unwrap();
    end(transaction.query_one(asked, &[]).await.unwrap().get(0));
    let lost = CommitError::from(transaction.commit().await.unwrap_err());
    assert!(matches!(lost, CommitError::Doubtful(_)), "{lost:?}");

    let claim = admit(&engine, "sqlx").await;
    let mut transaction = shop.till.sqlx.begin().await.unwrap();
    engine.settle_in(&claim, &mut transaction, paid()).await.unwrap();
    end(sqlx::query_scalar(asked).fetch_one(&mut *transaction).await.unwrap());
    let lost = CommitError::from(transaction.commit().await.unwrap_err());
    assert!(matches!(lost, CommitError::Doubtful(_)), "{lost:?}");

    let refused = shop.connect().await.query_one("SELECT 1 / 0", &[]).await.unwrap_err();
    assert!(matches!(CommitError::from(refused), CommitError::NotCommitted(_)));
    let refused = sqlx::query("SELECT 1 / 0").execute(&shop.till.sqlx).await.unwrap_err();
    assert!(matches!(CommitError::from(refused), CommitError::NotCommitted(_)));
}

#[tokio::test]
async fn an_end_is_confirmed_only_if_it_is_there() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let confirmed = async |fence| {
        let id = claim.id();
        Transactional::<tokio_postgres::Transaction<'_>>::confirm(&shop.store, &id, fence).await
    };
    assert_eq!(confirmed(claim.fence()).await, Ok(()));
    assert_eq!(commit(CommitMethod::Tokio, &shop, &engine, &claim).await, Ok(()));
    assert!(confirmed(claim.fence()).await.is_err(), "another fence is stored");
    let Found::Record(stored) = shop.store.get(&claim.id()).await.unwrap() else { panic!("lost") };
    assert_eq!(confirmed(stored.record.fence).await, Ok(()));
    shop.database.sql("DELETE FROM onceward.record");
    assert!(confirmed(stored.record.fence).await.is_err(), "nothing is stored");
}

#[tokio::test]
async fn over_the_wire_a_savepoint_does_not_count_as_a_commit() {
    let shop = Shop::with(|builder| builder.dialect(Dialect::Wire)).await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut client = shop.connect().await;
    let mut outer = client.transaction().await.unwrap();
    let inner = outer.transaction().await.unwrap();
    inner.execute(INSERT, &[]).await.unwrap();
    let failed = engine.commit(&claim, inner, paid()).await;
    assert!(matches!(failed, Err(CommitError::Doubtful(_))), "{failed:?}");
    outer.rollback().await.unwrap();
    assert_eq!((shop.charges(), shop.status("k").await), (0, Some(Status::InProgress)));
    assert_eq!(commit(CommitMethod::Tokio, &shop, &engine, &claim).await, Ok(()));
    assert_eq!((shop.charges(), shop.status("k").await), (1, Some(Status::Succeeded)));
}

#[tokio::test]
async fn an_end_does_not_wait_for_ever_where_nobody_said_how_long() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut other = shop.connect().await;
    let other = holding(&mut other, &claim).await;
    let ends = async |method| {
        let commit = commit(method, &shop, &engine, &claim);
        let failed = tokio::time::timeout(Duration::from_secs(60), commit).await.unwrap();
        assert!(matches!(failed, Err(CommitError::NotCommitted(_))), "{method:?}: {failed:?}");
    };
    tokio::join!(ends(CommitMethod::Tokio), ends(CommitMethod::SqlxCompleteIn));
    other.rollback().await.unwrap();
    assert_eq!(shop.charges(), 0);
    assert_eq!(commit(CommitMethod::Sqlx, &shop, &engine, &claim).await, Ok(()));
}

#[tokio::test]
async fn the_end_of_a_claim_and_the_commit_are_one_round_trip() {
    let shop = Shop::open().await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let turns = Turns::default();
    let mut client = turns.connect(shop.database.url()).await;
    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute(INSERT).await.unwrap();
    assert_eq!(turns.take(), 2, "BEGIN and the effect");
    engine.commit(&claim, transaction, paid()).await.unwrap();
    assert_eq!(turns.take(), 1, "the end and COMMIT");
    client.query("SELECT 1", &[]).await.unwrap();
    assert_eq!(shop.status("k").await, Some(Status::Succeeded));
}

#[tokio::test]
async fn large_answers_are_kept_in_the_same_commit() {
    let shop = Shop::open().await;
    let layer = layer(shop.store.clone()).effect(Effect::Transactional).spool(shop.store.clone());
    let till = shop.till.clone();
    let handler = move |claim: Claim| {
        let till = till.clone();
        async move {
            let mut client = till.deadpool.get().await?;
            let transaction = client.transaction().await?;
            transaction.execute(INSERT, &[]).await?;
            claim.commit(transaction, created("x".repeat(600_000))).await
        }
    };
    let app = Router::new().route("/charges", post(handler)).layer(layer.build().unwrap());
    let first = ask(&app, "k").await;
    is_charged(&first, &"x".repeat(600_000));
    assert_eq!(shop.count("onceward.spool"), 3);
    is_replayed(&app, "k", &first).await;
    assert_eq!(shop.charges(), 1);
}

/// PostgreSQL calls a commit done whose wait for the standby was cancelled, and says so only to whoever
/// drives the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_wait_for_the_standby_was_cancelled_is_not_believed_before_the_standby_has_it()
 {
    let primary =
        testbed::Server::start(&testbed::Installation::preferred().unwrap(), &[]).unwrap();
    let standby = primary.add_standby("s1").unwrap();
    primary.make_synchronous(&["s1"]);
    let shop = Shop::on(primary.database(), |builder| builder).await;
    let engine = Engine::new(shop.store.clone());
    let claim = admit(&engine, "k").await;
    let mut client = shop.connect().await;
    standby.pause();
    let committing = tokio::spawn(async move {
        let transaction = client.transaction().await?;
        transaction.execute(INSERT, &[]).await?;
        engine.commit(&claim, transaction, paid()).await
    });
    let waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE 'COMMIT%'";
    eventually(async || primary.sql(&format!("SELECT count(*) {waits}")) == "1").await;
    primary.sql(&format!("SELECT pg_cancel_backend(pid) {waits}"));
    eventually(async || shop.charges() == 1).await;
    // It is there for everybody to see, and on one server only.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!committing.is_finished(), "nobody may be told");
    standby.resume();
    assert_eq!(committing.await.unwrap(), Ok(()));
    primary.wait_for_standby(&standby);
}
