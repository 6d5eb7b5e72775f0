//! Role × action: every path of the document, with every kind of token.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    admin::{plan, show},
    gateway_support::{Call, Gateway, Plan, Upstream},
};

const TOKENS: [(&str, &str); 3] = [
    ("read", "token-of-the-reader"),
    ("resolve", "token-of-the-resolver"),
    ("purge", "token-of-the-purger"),
];

fn guarded(upstream: &Upstream) -> Gateway {
    let lines = TOKENS.map(|(role, _)| {
        format!(
            "{role}r = {{ token_env = \"TOKEN_{}\", role = \"{role}\" }}\n",
            role.to_uppercase()
        )
    });
    let text = format!("{}[admin_tokens]\n{}", plan(), lines.concat());
    let plan = TOKENS.iter().fold(Plan::new(&upstream.url(), &text), |plan, (role, token)| {
        plan.variable(&format!("TOKEN_{}", role.to_uppercase()), token)
    });
    plan.start()
}

fn with(call: Call, token: &str) -> Call {
    call.header("authorization", format!("Bearer {token}"))
}

/// Every method and path with the role that it needs.
async fn actions(gateway: &Gateway) -> Vec<(String, String, Option<String>)> {
    let document = gateway.ask(&Call::new("GET", "/openapi.json")).await.json();
    let mut actions = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            let role = about["x-role"].as_str().map(str::to_owned);
            let path = path.replace("{reference}", &"A".repeat(43));
            actions.push((method.to_uppercase(), path, role));
        }
    }
    actions
}

fn call(method: &str, path: &str) -> Call {
    let call = Call::new(method, path);
    if method == "POST" { call.json(json!({})) } else { call }
}

#[tokio::test]
async fn every_action_needs_its_role_and_no_other() {
    let upstream = Upstream::any();
    let gateway = guarded(&upstream);
    let actions = actions(&gateway).await;
    let mut roles = BTreeSet::new();
    for (method, path, role) in &actions {
        let needed = TOKENS.iter().position(|(name, _)| role.as_deref() == Some(name));
        roles.insert(needed);
        for nobody in [None, Some("token-of-a-stranger"), Some("")] {
            let asked = call(method, path);
            let asked = nobody.map_or(asked.clone(), |token| with(asked, token));
            let reply = gateway.ask(&asked).await;
            assert_eq!(reply.status == 401, needed.is_some(), "{method} {path}: {}", reply.status);
            assert!(reply.status != 401 || reply.header("www-authenticate") == Some("Bearer"));
        }
        for (rank, (name, token)) in TOKENS.iter().enumerate() {
            let reply = gateway.ask(&with(call(method, path), token)).await;
            let is_refused = needed.is_some_and(|needed| rank < needed);
            assert_eq!(
                reply.status == 403,
                is_refused,
                "{name}: {method} {path}: {}",
                reply.status
            );
            assert_ne!(reply.status, 401, "{name}: {method} {path}");
            let is_known = reply.problem().1 != "not-found" && reply.status != 405;
            assert!(is_known, "{method} {path} is in the document and not served");
        }
    }
    assert_eq!(roles.len(), 4, "each role, and no role, has something to do: {actions:?}");
}

#[tokio::test]
async fn the_trail_names_the_token_and_never_shows_it() {
    let upstream = Upstream::any();
    let gateway = guarded(&upstream);
    let reference = crate::admin::lose(&gateway, "k").await;
    let document = json!({"outcome": "applied", "reason": "it is in the ledger"});
    let resolve = crate::admin::change(&reference, "resolve", document);
    let reply = gateway.ask(&with(resolve, TOKENS[1].1).header("onceward-actor", "ada")).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let shown = gateway.ask(&with(show(&reference), TOKENS[0].1)).await;
    let last = shown.json()["trail"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["actor"], "resolver/ada");
    assert_eq!(last["reason"], "it is in the ledger");
    for (_, token) in TOKENS {
        assert!(!shown.text().contains(token));
        let config = gateway.ask(&with(Call::new("GET", "/v1/config"), TOKENS[0].1)).await;
        assert!(config.status == 200 && !config.text().contains(token), "{}", config.text());
    }
}

#[tokio::test]
async fn the_document_has_every_role_in_its_words() {
    let (_upstream, gateway) = crate::admin::start().await;
    let document = gateway.ask(&Call::new("GET", "/openapi.json")).await;
    assert_eq!(document.header("content-type"), Some("application/json"));
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let states = &document["components"]["schemas"]["Line"]["properties"]["state"]["enum"];
    let words = onceward::Status::ALL.map(|status| Value::from(status.as_str()));
    assert!(words.iter().all(|word| states.as_array().unwrap().contains(word)), "{states}");
}
