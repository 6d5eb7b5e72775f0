//! What operators see of the upstream.

use serde_json::json;

use crate::{
    gateway_support::{Call, route},
    get, keyless, pay, start,
    switched::{Mode, Switched},
    upstream_state, warm_up,
};

#[tokio::test]
async fn every_state_of_the_upstream_is_shown() {
    let upstream = Switched::start().await;
    let gateway =
        start(&upstream, &format!("{}{}", keyless("retry = \"standard\""), route("limit = 7")));
    let document = gateway.ask(&get("/v1/upstream")).await.json();
    assert_eq!(document["upstream"], upstream.url());
    let names: Vec<_> = document["states"]
        .as_array()
        .unwrap()
        .iter()
        .map(|upstream_state| &upstream_state["name"])
        .collect();
    assert_eq!(names, ["POST /pay", "shared", "unmatched"]);
    assert_eq!(
        document["states"][1],
        json!({
            "name": "shared", "circuit": "closed", "in_flight": 0, "limit": 1024,
            "saturation": 0.0, "budget": {"left": 30, "capacity": 100},
            "attempts": 0, "retries": 0, "hedges": 0, "rejected": 0,
        })
    );
    assert_eq!(document["states"][0]["limit"], 7);

    warm_up(&gateway, &get("/x/1"), 5).await;
    assert_eq!(
        upstream_state(&gateway, "shared").await["budget"]["left"],
        35,
        "filled by successes"
    );
    upstream.then([Mode::Reset]);
    assert_eq!(gateway.send(&get("/x/1")).await.status, 200);
    let shared = upstream_state(&gateway, "shared").await;
    assert_eq!((&shared["attempts"], &shared["retries"]), (&json!(7), &json!(1)));
    assert_eq!(shared["budget"]["left"], 35, "given back, because it succeeded");
    assert_eq!(gateway.metric("onceward_gateway_retry_budget").await, 30, "where it is least");
    for (kind, count) in [("first", 6), ("retry", 1), ("hedge", 0)] {
        let series = format!("onceward_gateway_upstream_attempts_total{{kind=\"{kind}\"}}");
        assert_eq!(gateway.metric(&series).await, count, "{kind}");
    }
    let posted = gateway.ask(&Call::post("/v1/upstream").json(json!({}))).await;
    assert_eq!(posted.problem(), (405, "method-not-allowed".into()));
}

/// What is known of the upstream does not depend on the file.
#[tokio::test]
async fn a_reload_forgets_nothing() {
    let upstream = Switched::start().await;
    let gateway = start(&upstream, &format!("{}{}", keyless("limit = 3"), route("")));
    assert_eq!(gateway.send(&get("/x/1")).await.status, 200);
    assert_eq!(gateway.send(&pay("a")).await.status, 201);
    upstream.mode(Mode::Held(200));
    let running = gateway.begin(&get("/x/1"));
    upstream.arrival(3).await;
    gateway.reload(&gateway.configuration());
    gateway.wait_for("the routes were read again");
    let own = upstream_state(&gateway, "GET,HEAD,PUT,POST,DELETE /x/{*rest}").await;
    assert_eq!((&own["in_flight"], &own["attempts"]), (&json!(1), &json!(2)));
    assert_eq!(upstream_state(&gateway, "shared").await["attempts"], 1);
    upstream.release();
    assert_eq!(running.await.unwrap().status, 200);
    gateway.reload(&gateway.configuration().replace("limit = 3", "limit = 4"));
    gateway.wait_for("the routes were read again");
    assert_eq!(upstream_state(&gateway, "GET,HEAD,PUT,POST,DELETE /x/{*rest}").await["limit"], 4);
}
