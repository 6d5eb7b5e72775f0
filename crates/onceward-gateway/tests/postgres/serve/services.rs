//! What a service is told by the functions that it calls, and what its clients are told then.

use crate::{
    gateway_support::eventually,
    serve::Upstream,
    support::{Shop, pay},
};

/// What a statement of the service's own role is refused with.
fn refusal(shop: &Shop, statement: &str) -> String {
    let role = shop.role();
    let asked = format!("\\set VERBOSITY verbose\nSET ROLE {role};\n{statement}");
    shop.database.try_sql(&asked).unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_that_is_wrong_over_or_of_another_operation_is_refused() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let gateway = shop.plan(&upstream.url(), "lease = \"300ms\"").start();
    let running = gateway.begin(&pay("one", 5).told(serde_json::json!({ "gate": "g" })));
    upstream.arrival(1).await;
    let execution = upstream.last_lines("onceward-execution").await.remove(0);
    let complete = |execution: &str| format!("SELECT onceward.complete('{execution}', 201);");
    for malformed in ["", "x", "sesame.0190-", &execution.replace('.', ":")] {
        let said = refusal(&shop, &complete(malformed));
        assert!(said.contains("OW002") && said.contains("Onceward-Execution"), "{said}");
    }
    let (digest, own) = execution.split_once('.').unwrap();
    let other = format!("{}.{own}", digest.chars().rev().collect::<String>());
    let nobody = format!("{digest}.00000000-0000-7000-8000-000000000000");
    for wrong in [&other, &nobody] {
        let said = refusal(&shop, &complete(wrong));
        assert!(said.contains("OW001") && said.contains("this execution is over"), "{said}");
    }
    // The upstream commits in its stead.
    shop.database.sql(&format!("SET ROLE {}; {}", shop.role(), complete(&execution)));
    let said = refusal(&shop, &complete(&execution));
    assert!(said.contains("OW001") && said.contains("it has ended before"), "{said}");
    upstream.open("g").await;
    let reply = running.await.unwrap();
    assert_eq!((reply.status, reply.text()), (201, ""), "what was committed is sent: {reply:?}");
}

/// Who was taken over cannot commit, and its client is told what counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_that_was_taken_over_cannot_commit() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let lines = "lease = \"300ms\"\nmax_run = \"300ms\"";
    let gateway = shop.plan(&upstream.url(), lines).start();
    let late = gateway.send(&pay("one", 5).told(serde_json::json!({ "gate": "g" }))).await;
    assert_eq!(late.problem(), (504, "upstream-failed".into()), "{late:?}");
    let first = upstream.last_lines("onceward-execution").await.remove(0);
    let is_run_again = || async {
        let reply = gateway.send(&pay("one", 5)).await;
        reply.problem() == (500, "not-committed".into())
    };
    eventually("a retry takes over", is_run_again).await;
    let said = refusal(&shop, &format!("SELECT onceward.complete('{first}', 201);"));
    assert!(said.contains("OW001") && said.contains("another one took over"), "{said}");
    upstream.open("g").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_committed_did_not_happen() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let gateway = shop.plan(&upstream.url(), "").start();
    let said = gateway.send(&pay("one", 5)).await;
    assert_eq!(said.problem(), (500, "not-committed".into()), "{said:?}");
    assert_eq!(said.json()["retryable"], true, "{said:?}");
    let failed = gateway.send(&pay("one", 5).told(serde_json::json!({ "status": 503 }))).await;
    assert_eq!(
        (failed.status, failed.is_replay()),
        (503, false),
        "it is sent as it is: {failed:?}"
    );
    let refused = gateway.send(&pay("one", 5).told(serde_json::json!({ "status": 402 }))).await;
    assert_eq!((refused.status, refused.is_replay()), (402, false));
    let again = gateway.send(&pay("one", 5)).await;
    assert_eq!((again.status, again.is_replay()), (402, true), "a refusal is final: {again:?}");
    assert_eq!(upstream.count_of("one").await, 3);
}

#[tokio::test]
async fn a_role_without_rights_may_call_nothing() {
    let shop = Shop::open();
    shop.database.sql(&format!("REVOKE onceward_app FROM {}", shop.role()));
    for statement in [
        "SELECT onceward.complete('x', 201)",
        "SELECT onceward.fail('x', true)",
        "SELECT onceward.first_time('shop', 'm1')",
        "SELECT count(*) FROM onceward.record",
    ] {
        let said = refusal(&shop, statement);
        assert!(said.contains("42501") && said.contains("permission denied"), "{said}");
    }
    shop.database.sql(&format!("GRANT onceward_app TO {}", shop.role()));
    let inner = "SELECT onceward.settle('x', 3::smallint, '', '', '', '')";
    for statement in [inner, "SELECT count(*) FROM onceward.record", "DELETE FROM onceward.open"] {
        let said = refusal(&shop, statement);
        assert!(said.contains("permission denied"), "services read and change no record: {said}");
    }
    let said = refusal(&shop, "SELECT onceward.complete('x', 201)");
    assert!(said.contains("OW002"), "{said}");
}

/// The routes of a file are read again, its store is not: a service could commit nothing to the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_becomes_transactional_only_with_its_store() {
    let (shop, upstream) = (Shop::open(), Upstream::any());
    let plain = crate::serve::route("key = \"required\"");
    let gateway = crate::serve::Plan::new(&upstream.url(), &plain).start();
    let text = gateway.configuration().replace("sqlite://onceward.db", shop.database.url());
    gateway.reload(&text.replace("key =", "effect = \"transactional\"\nkey ="));
    let said = gateway.wait_for("the old routes stay");
    assert!(said.contains("count only after a restart"), "{said}");
    assert_eq!(gateway.send(&crate::serve::pay("one")).await.status, 201, "as before");
}
