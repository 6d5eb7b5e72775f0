//! The gateway is killed, at each step; the service lives, and finds out what became of its claim.

use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    gateway_support::{Gateway, eventually, read_until},
    kill::{
        Bench, CENTS,
        service::{LARGE, Service, Step},
    },
    support::pay,
};

/// A gateway that was killed while its service stood at this step, and another one.
async fn killed_at(bench: &Bench, step: Step) -> (Service, Gateway) {
    let (service, gateway) = (bench.service(Some(step)), bench.gateway());
    let running = gateway.begin(&pay("k", CENTS));
    service.stopped().await;
    gateway.kill();
    assert!(running.await.is_err(), "nobody is there to answer");
    (service, bench.gateway())
}

/// The retry takes over, and the first execution is told so by its own transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_claim_a_retry_takes_over_and_the_first_run_rolls_back() {
    for step in [Step::Received, Step::Effect] {
        let bench = Bench::new();
        let (service, gateway) = killed_at(&bench, step).await;
        let answer = bench.insist(&gateway).await;
        assert!(!answer.is_replay(), "{step:?}");
        service.resume();
        service.ended().await;
        bench.assert_paid_once(&gateway, &answer).await;
    }
}

/// The service's open transaction has the record: whoever retries has to wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_waits_the_service_commits_and_the_retry_gets_that() {
    let bench = Bench::new();
    let (service, gateway) = killed_at(&bench, Step::Completed).await;
    // Its lease is over by then, and nobody takes over what is about to be committed.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let busy = gateway.send(&pay("k", CENTS)).await;
    assert_eq!(busy.problem(), (409, "in-progress".into()), "{busy:?}");
    let other = gateway.send(&pay("other", CENTS + 1)).await;
    assert_eq!(other.status, 201, "nobody else waits: {other:?}");
    bench.shop.database.sql(&format!("DELETE FROM payment WHERE cents = {}", CENTS + 1));
    service.resume();
    service.ended().await;
    let answer = bench.insist(&gateway).await;
    assert!(answer.is_replay());
    bench.assert_paid_once(&gateway, &answer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_commit_the_retry_gets_it() {
    for step in [Step::Committed, Step::Answering] {
        let bench = Bench::new();
        let (service, gateway) = killed_at(&bench, step).await;
        let answer = gateway.send(&pay("k", CENTS)).await;
        assert!(answer.is_replay(), "{step:?}: {answer:?}");
        service.resume();
        bench.assert_paid_once(&gateway, &answer).await;
    }
}

/// The service has answered, and the gateway is about to read what was committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_it_reads_the_record() {
    let bench = Bench::new();
    // With a lease that is not renewed meanwhile: nothing but that read waits below.
    let (service, gateway) = (bench.service(Some(Step::Committed)), bench.gateway_with(""));
    let running = gateway.begin(&pay("k", CENTS));
    service.stopped().await;
    let (mut holder, connection) =
        tokio_postgres::connect(bench.shop.database.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let held = holder.transaction().await.unwrap();
    held.batch_execute("LOCK TABLE onceward.record IN ACCESS EXCLUSIVE MODE").await.unwrap();
    service.resume();
    let waiting = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted \
                   AND relation = 'onceward.record'::regclass";
    let database = &bench.shop.database;
    eventually("the gateway reads", || async { database.sql(waiting) == "t" }).await;
    gateway.kill();
    assert!(running.await.is_err(), "nobody is there to answer");
    held.rollback().await.unwrap();
    let gateway = bench.gateway();
    let answer = gateway.send(&pay("k", CENTS)).await;
    assert!(answer.is_replay(), "{answer:?}");
    bench.assert_paid_once(&gateway, &answer).await;
}

/// The client has seen a part of the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_it_answers() {
    let bench = Bench::new();
    let (_service, gateway) = (bench.service(None), bench.gateway());
    let body = format!("{{\"cents\":{LARGE}}}");
    let request = format!(
        "POST /payments HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\nx-api-key: alice\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 201"), "{head}");
    gateway.kill();
    let gateway = bench.gateway();
    let call = pay("k", i64::try_from(LARGE).unwrap());
    let answer = gateway.send(&call).await;
    assert_eq!((answer.status, answer.is_replay()), (201, true));
    assert_eq!((answer.body.len(), answer.json()["id"].as_i64()), (LARGE, Some(1)));
    assert_eq!(bench.shop.payments(), 1);
}
