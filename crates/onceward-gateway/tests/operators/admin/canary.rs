//! A secret that is planted everywhere appears nowhere but where it belongs.

use serde_json::json;

use crate::{
    admin::{get, lose, plan, post, reference, show},
    gateway_support::{Call, Finished, Plan, Signal, Upstream, command},
};

const CANARY: &str = "canary-5f1e0d3c";

/// With the secret in its key, its credential, its headers, its query and its body.
fn secret_call(path: &str) -> Call {
    let answer = json!({
        "status": 201,
        "headers": [["X-Secret", CANARY], ["Location", format!("/{CANARY}")]],
        "body": format!("{{\"secret\":\"{CANARY}\"}}"),
    });
    Call::post(&format!("{path}?secret={CANARY}"))
        .key(&format!("key-{CANARY}"))
        .header("x-api-key", CANARY)
        .header("authorization", format!("Bearer {CANARY}"))
        .header("x-secret", CANARY)
        .json(json!({"secret": CANARY}))
        .told(answer)
}

#[tokio::test]
async fn a_planted_secret_is_in_no_log_metric_or_view() {
    for format in ["text", "json"] {
        let upstream = Upstream::any();
        let plan = Plan::new(&upstream.url(), &plan())
            .variable("ONCEWARD_LOG", "trace,hyper=info,h2=info");
        let gateway = plan.variable("ONCEWARD_LOG_FORMAT", format).start();
        let call = secret_call("/pay");
        let first = gateway.send(&call).await;
        let again = gateway.send(&call).await;
        assert!(again.is_replay() && again.text().contains(CANARY), "it is replayed to its owner");
        assert!(upstream.seen().await.last().unwrap().to_string().contains(CANARY));
        // What goes wrong is told in more words than what goes well.
        gateway.send(&call.clone().json(json!({"other": CANARY}))).await;
        gateway
            .send(&call.clone().key(&format!("lost-{CANARY}")).told(json!({"hang_up": true})))
            .await;
        gateway.send(&call.clone().key(&format!("bad {CANARY}"))).await;
        gateway.send(&secret_call("/other")).await;
        let lost = lose(&gateway, &format!("unknown-{CANARY}")).await;

        let mut views = Vec::new();
        for path in ["/metrics", "/v1/operations", "/v1/config", "/v1/capabilities", "/ready"] {
            views.push((path.to_owned(), gateway.ask(&get(path)).await));
        }
        for reference in [reference(&first), lost] {
            views.push(("show".into(), gateway.ask(&show(&reference)).await));
        }
        let search = json!({"key": format!("key-{CANARY}")});
        views.push(("search".into(), gateway.ask(&post("/v1/operations/search", search)).await));
        for (view, reply) in &views {
            assert_eq!(reply.status, 200, "{view}");
            assert!(!reply.text().contains(CANARY), "{view}: {}", reply.text());
        }
        assert_eq!(views.last().unwrap().1.json()["operations"].as_array().unwrap().len(), 1);
        for arguments in
            [&["list"][..], &["list", "--json"], &["show", "--operation", &reference(&first)]]
        {
            let mut command = command(&["keys"]);
            command.args(arguments).args(["--config", "onceward.toml"]);
            let finished = Finished::of(command.current_dir(gateway.directory.path()));
            let said = finished.to_string();
            assert!(finished.is_success() && said.contains(&reference(&first)), "{said}");
            assert!(!said.contains(CANARY), "{arguments:?}: {said}");
        }
        gateway.signal(Signal::TERM);
        let said = gateway.rest_of_log();
        assert!(said.lines().count() > 5, "nothing is logged, so this proves nothing:\n{said}");
        let leaked: Vec<_> = said.lines().filter(|line| line.contains(CANARY)).collect();
        assert!(leaked.is_empty(), "{leaked:#?}");
    }
}
