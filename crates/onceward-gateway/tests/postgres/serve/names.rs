//! A route that is changed, with its records on a server.

use crate::{
    gateway_support::{Call, Gateway, Plan, Upstream, route_for},
    serve::server,
};

const BY_TENANT: &str = "scope = [\"secret:x-api-key\", \"path:tenant\"]";

fn send(key: &str) -> Call {
    Call::post("/acme/charges/7").key(key).header("x-api-key", "alice")
}

fn plan(upstream: &Upstream, store: &str, matched: &str, lines: &str) -> Plan {
    Plan::new(&upstream.url(), &route_for(matched, lines)).store(store)
}

#[tokio::test]
async fn a_renamed_parameter_keeps_its_keys_and_another_change_is_refused() {
    let (database, upstream) = (testbed::postgres().database(), Upstream::any());
    let plan = |matched: &str, lines: &str| plan(&upstream, database.url(), matched, lines);
    let gateway = plan("POST /{tenant}/charges/{id}", BY_TENANT).start();
    let first = gateway.send(&send("k")).await;
    assert_eq!(first.status, 201);
    drop(gateway);
    let renamed = "scope = [\"secret:x-api-key\", \"path:owner\"]";
    let gateway = plan("POST /{owner}/charges/{charge}", renamed).start();
    let again = gateway.send(&send("k")).await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    gateway.reload(&gateway.configuration().replace("[[route]]", "[[route]]\nname = \"charge\""));
    gateway.wait_for("the old routes stay");
    assert!(gateway.send(&send("k")).await.is_replay());
    drop(gateway);
    for (lines, word) in [
        (format!("{renamed}\nname = \"charge\""), "the name would be `charge`"),
        (String::new(), "the scope `secret:x-api-key`"),
    ] {
        let said = plan("POST /{owner}/charges/{charge}", &lines).refusal();
        for word in [word, "1 live record has", "accept_identity_change = true"] {
            assert!(said.contains(word), "{word:?} is not said:\n{said}");
        }
    }
    let accepted = format!("{renamed}\nname = \"charge\"\naccept_identity_change = true");
    let gateway = plan("POST /{owner}/charges/{charge}", &accepted).start();
    assert!(!gateway.send(&send("k")).await.is_replay());
    assert_eq!(upstream.count().await, 2);
}

/// Tables of version 0.1 knew nothing of routes.
#[tokio::test]
async fn records_that_are_older_than_the_names_of_routes_are_found() {
    let (server, upstream) = (server(&[]), Upstream::any());
    let database = server.database();
    let plan = |matched: &str, lines: &str| plan(&upstream, database.url(), matched, lines);
    drop(plan("POST /{tenant}/charges/{id}", BY_TENANT).start().send(&send("k")).await);
    database.sql("TRUNCATE onceward.route");
    let said = plan("POST /{tenant}/charges/{id}", "").refusal();
    assert!(said.contains("the scope `path:tenant,secret:x-api-key`"), "{said}");
    let renamed = "scope = [\"secret:x-api-key\", \"path:owner\"]";
    let gateway = plan("POST /{owner}/charges/{charge}", renamed).start();
    assert!(gateway.send(&send("k")).await.is_replay());
    let kept = database.sql("SELECT operation || ' ' || parts FROM onceward.route");
    assert_eq!(kept, "POST /{tenant}/charges/{id} path:tenant,secret:x-api-key");
    assert_eq!(upstream.count().await, 1);
}

#[tokio::test]
async fn gateways_that_start_together_agree() {
    let (database, upstream) = (testbed::postgres().database(), Upstream::any());
    drop(plan(&upstream, database.url(), "POST /other", "").start());
    let plans = ["a", "b", "c"]
        .map(|name| plan(&upstream, database.url(), &format!("POST /acme/charges/{{{name}}}"), ""));
    let gateways: Vec<Gateway> = std::thread::scope(|scope| {
        let starts: Vec<_> = plans.iter().map(|plan| scope.spawn(|| plan.start())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for gateway in &gateways {
        gateway.send(&send("k")).await;
    }
    assert_eq!(upstream.count().await, 1);
}
