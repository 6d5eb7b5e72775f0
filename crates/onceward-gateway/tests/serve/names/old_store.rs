//! A store that version 0.1 wrote, before stores knew the names of routes.
//!
//! `store-0.1.sqlite` has four completed keys `k` of Alice, kept until 2036, made by
//! `POST /v1/charges/{id}`, `POST /v1/{tenant}/refunds` with the name `refund.create` and `path:tenant` in its
//! scope, `POST /files/{*rest}`, and `POST /v1/certified` with `cert:subject` as it was then.

use std::fs;

use crate::{
    gateway_support::{Plan, Upstream, route_for},
    names::send,
};

const REFUNDS: &str = "name = \"refund.create\"\nscope = [\"secret:x-api-key\", \"path:tenant\"]";

fn plan(upstream: &Upstream, text: &str) -> Plan {
    let plan = Plan::new(&upstream.url(), text);
    let store = include_bytes!("store-0.1.sqlite");
    fs::write(plan.directory.path().join("onceward.db"), store).unwrap();
    plan
}

#[tokio::test]
async fn its_keys_are_known_whatever_parameters_are_called() {
    let upstream = Upstream::any();
    for (id, rest) in [("id", "rest"), ("charge", "path")] {
        let text = route_for(&format!("POST /v1/charges/{{{id}}}"), "")
            + &route_for("POST /v1/{tenant}/refunds", REFUNDS)
            + &route_for(&format!("POST /files/{{*{rest}}}"), "");
        let gateway = plan(&upstream, &text).start();
        for (path, body) in [("/v1/charges/7", "1"), ("/v1/acme/refunds", "2"), ("/files/a/b", "4")]
        {
            let reply = gateway.send(&send(path, "k")).await;
            assert_eq!(reply.text(), format!("receipt of the old version {body}"), "{path}");
            assert!(reply.is_replay());
        }
        assert_eq!(upstream.count().await, 0);
        // And from now on they are known by the rows.
        let plan = Plan { text: gateway.configuration(), ..Plan::new("", "") };
        let gateway = Plan { directory: gateway.kill(), ..plan }.start();
        assert!(gateway.send(&send("/v1/charges/7", "k")).await.is_replay());
    }
}

#[test]
fn a_route_that_would_not_find_them_is_refused() {
    let upstream = Upstream::any();
    let tls = "[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n";
    for (text, words) in [
        (
            route_for("POST /v1/charges/{charge}", "name = \"charge.create\""),
            ["`POST /v1/charges/{id}`", "`charge.create`"],
        ),
        (
            route_for("POST /v1/charges/{id}", "scope = [\"global\"]"),
            ["`secret:x-api-key`", "`global`"],
        ),
        (
            route_for("POST /v1/{tenant}/refunds", "name = \"refund.create\""),
            ["`path:tenant,secret:x-api-key`", "`secret:x-api-key`"],
        ),
        (route_for("POST /files/{*rest}", "name = \"files\""), ["name of their path", "`files`"]),
        (
            // A caller's certificate was compared as text then.
            format!("{tls}{}", route_for("POST /v1/certified", "scope = [\"cert:subject\"]")),
            ["the scope `cert:subject`", "the scope `cert:subject-sha256`"],
        ),
    ] {
        let plan = plan(&upstream, &text);
        let made = crate::gateway_support::Certificates::make(plan.directory.path(), &[]);
        if made.is_none() && text.contains("[tls]") {
            continue;
        }
        let said = plan.refusal();
        for word in words.into_iter().chain(["1 live record has", "accept_identity_change = true"])
        {
            assert!(said.contains(word), "{word:?} is not said:\n{said}");
        }
    }
}
