//! The name of a parameter is nobody's business but the configuration's.

use crate::{
    gateway_support::{Gateway, Plan, Upstream, route_for},
    names::{restart, send},
};

const BY_TENANT: &str = "scope = [\"secret:x-api-key\", \"path:tenant\"]";

#[tokio::test]
async fn a_renamed_parameter_keeps_its_keys() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route_for("POST /charges/{id}", ""));
    let first = gateway.send(&send("/charges/7", "k")).await;
    assert_eq!(first.status, 201);
    let renamed = route_for("POST /%63harges/{charge}", "");
    let gateway = restart(gateway, &upstream, &renamed).start();
    let again = gateway.send(&send("/charges/7", "k")).await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    // What is new belongs to the same operation, under whatever name it is asked for.
    gateway.send(&send("/charges/8", "new")).await;
    let gateway = restart(gateway, &upstream, &route_for("POST /charges/{id}", "")).start();
    assert!(gateway.send(&send("/charges/8", "new")).await.is_replay());
    for name in ["id", "anything"] {
        let path = format!("/.onceward/operations?operation=POST%20/charges/%7B{name}%7D&key=new");
        let status = gateway.send(&send("/", "").without_key().retarget("GET", &path)).await;
        assert_eq!(status.status, 200, "{name}");
    }
    assert_eq!(upstream.count().await, 2);
}

#[tokio::test]
async fn a_reload_that_renames_a_parameter_keeps_its_keys() {
    let upstream = Upstream::any();
    let gateway = Gateway::start(&upstream, &route_for("POST /charges/{id}", ""));
    let first = gateway.send(&send("/charges/7", "k")).await;
    gateway.reload(&gateway.configuration().replace("{id}", "{charge}"));
    gateway.wait_for("read again");
    let again = gateway.send(&send("/charges/7", "k")).await;
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    let status = gateway.status_of(&again, &send("/", "")).await;
    assert_eq!(status.status, 200, "the caller still owns it");
    assert_eq!(upstream.count().await, 1);
}

/// The part of the scope is named after the parameter, so it follows by its place in the path.
#[tokio::test]
async fn a_renamed_parameter_in_the_scope_keeps_its_keys() {
    let upstream = Upstream::any();
    for name in ["", "\nname = \"charge.create\""] {
        let text = route_for("POST /{tenant}/charges/{id}", &format!("{BY_TENANT}{name}"));
        let gateway = Gateway::start(&upstream, &text);
        let before = upstream.count().await;
        let first = gateway.send(&send("/acme/charges/7", "k")).await;
        // The other parameter now has the name of the first.
        let scope = "scope = [\"secret:x-api-key\", \"path:owner\"]";
        let text = route_for("POST /{owner}/charges/{tenant}", &format!("{scope}{name}"));
        let gateway = restart(gateway, &upstream, &text).start();
        let again = gateway.send(&send("/acme/charges/7", "k")).await;
        assert_eq!((again.is_replay(), &again.body), (true, &first.body), "{name}");
        assert_eq!(gateway.status_of(&again, &send("/", "")).await.status, 200);
        assert!(!gateway.send(&send("/other/charges/7", "k")).await.is_replay());
        // The same parameter by another name is not another parameter by the same name.
        let other = text.replace("path:owner", "path:tenant");
        let said = restart(gateway, &upstream, &other).refusal();
        assert!(said.contains("2 live records have"), "{said}");
        assert_eq!(upstream.count().await, before + 2);
    }
}

#[tokio::test]
async fn two_gateways_agree_whatever_they_call_a_parameter() {
    let upstream = Upstream::any();
    let first = Gateway::start(&upstream, &route_for("POST /charges/{id}", ""));
    let text = route_for("POST /charges/{charge}", "");
    let second = Plan::new(&upstream.url(), &text).beside(&first).start();
    second.send(&send("/charges/7", "k")).await;
    assert!(first.send(&send("/charges/7", "k")).await.is_replay());
    assert_eq!(upstream.count().await, 1);
}

/// Also if they start at the same moment, when the store knows nothing.
#[tokio::test]
async fn gateways_that_start_together_agree() {
    let upstream = Upstream::any();
    let directory = Plan::new("", "").directory;
    let plan = |name: &str| Plan {
        directory: directory.clone(),
        file: format!("{name}.toml"),
        ..Plan::new(&upstream.url(), &route_for(&format!("POST /charges/{{{name}}}"), ""))
    };
    let plans = ["a", "b", "c", "d"].map(plan);
    let gateways: Vec<Gateway> = std::thread::scope(|scope| {
        let starts: Vec<_> = plans.iter().map(|plan| scope.spawn(|| plan.start())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for gateway in &gateways {
        gateway.send(&send("/charges/7", "k")).await;
    }
    assert_eq!(upstream.count().await, 1);
}
