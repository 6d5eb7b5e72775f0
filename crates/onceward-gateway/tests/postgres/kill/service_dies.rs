//! The service is killed, at each step.

use crate::{
    kill::{
        Bench, CENTS,
        service::{Care, Service, Step},
    },
    support::pay,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_its_commit_nothing_happened_and_a_retry_runs() {
    for step in [Step::Received, Step::Effect, Step::Completed] {
        let bench = Bench::new();
        let (service, gateway) = (bench.service(Some(step)), bench.gateway());
        let running = gateway.begin(&pay("k", CENTS));
        service.stopped().await;
        service.kill();
        let first = running.await.unwrap();
        assert_eq!(first.problem(), (502, "upstream-failed".into()), "{step:?}: {first:?}");
        assert_eq!(first.json()["retryable"], true, "{step:?}");
        assert_eq!(bench.shop.payments(), 0, "{step:?}");
        let away = gateway.send(&pay("k", CENTS)).await;
        assert_eq!(away.problem().1, "upstream-unreachable", "{step:?}: {away:?}");
        let _service = bench.service(None);
        let answer = gateway.send(&pay("k", CENTS)).await;
        assert_eq!((answer.status, answer.is_replay()), (201, false), "{step:?}: {answer:?}");
        bench.assert_paid_once(&gateway, &answer).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_commit_the_gateway_answers_for_it() {
    for step in [Step::Committed, Step::Answering] {
        assert!(step.is_committed());
        let bench = Bench::new();
        let (service, gateway) = (bench.service(Some(step)), bench.gateway());
        let running = gateway.begin(&pay("k", CENTS));
        service.stopped().await;
        service.kill();
        let answer = running.await.unwrap();
        assert_eq!((answer.status, answer.is_replay()), (201, false), "{step:?}: {answer:?}");
        bench.assert_paid_once(&gateway, &answer).await;
    }
}

/// Both are gone, and what was committed is what counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_and_its_gateway_may_die_one_after_the_other() {
    for step in Step::ALL {
        let bench = Bench::new();
        let (service, gateway) = (bench.service(Some(step)), bench.gateway());
        let running = gateway.begin(&pay("k", CENTS));
        service.stopped().await;
        gateway.kill();
        service.kill();
        assert!(running.await.is_err(), "nobody is there to answer");
        let (_service, gateway) = (bench.service(None), bench.gateway());
        let answer = bench.insist(&gateway).await;
        assert_eq!(answer.is_replay(), step.is_committed(), "{step:?}");
        bench.assert_paid_once(&gateway, &answer).await;
    }
}

/// A service that commits its effect on its own pays twice, and the ledger shows it: these tests would
/// notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_shows_an_effect_that_is_committed_apart() {
    let bench = Bench::new();
    let url = bench.shop.service_url();
    let service = Service::start_as(bench.address, &url, Some(Step::Effect), Care::NotTaken);
    let gateway = bench.gateway();
    let running = gateway.begin(&pay("k", CENTS));
    service.stopped().await;
    service.kill();
    assert_eq!(running.await.unwrap().problem().1, "upstream-failed");
    let _service = Service::start_as(bench.address, &url, None, Care::NotTaken);
    assert_eq!(gateway.send(&pay("k", CENTS)).await.status, 201);
    assert_eq!(bench.shop.payments(), 2);
}
