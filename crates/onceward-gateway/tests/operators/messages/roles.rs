//! What each role may do with messages, through the operators' listener of a relay.

use serde_json::json;

use super::{PLAIN, Relay, Shop, billing};
use crate::gateway_support::{Call, Upstream};

const TOKENS: [(&str, &str); 3] = [
    ("READ", "a-token-for-reading"),
    ("RESOLVE", "a-token-for-resolving"),
    ("PURGE", "a-token-for-purging"),
];

async fn status(relay: &Relay, token: Option<&str>, call: Call) -> u16 {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let call = bearer.iter().fold(call, |call, value| call.header("authorization", value));
    relay.ask(&call).await.status
}

#[tokio::test]
async fn each_role_may_do_what_its_name_says() {
    let (upstream, mut shop) = (Upstream::any(), Shop::new());
    shop.environment = TOKENS.to_vec();
    let wrong = json!([["x-do", json!({"status": 400}).to_string()]]).to_string();
    let dead = shop.enqueue("order-7", &wrong);
    let tokens = "admin = \"127.0.0.1:0\"\n[admin_tokens]\nreader = { token_env = \"READ\", role = \"read\" }\n\
                  oncall = { token_env = \"RESOLVE\", role = \"resolve\" }\n\
                  chief = { token_env = \"PURGE\", role = \"purge\" }\n";
    let relay = shop.relay("relay.toml", &format!("{tokens}{}", billing(&upstream.url())));
    shop.becomes(dead, "dead").await;
    let one = format!("/v1/messages/{dead}");
    let get = |path: &str| Call::new("GET", path);
    let post = |path: &str, document| Call::post(path).json(document);
    let why = || json!({"reason": "a test"});
    for (call, statuses) in [
        (get("/v1/messages?state=dead"), [401, 200, 200, 200]),
        (get(&one), [401, 200, 200, 200]),
        (get("/v1/sinks"), [401, 200, 200, 200]),
        (get(&format!("{one}/body")), [401, 403, 200, 200]),
        (post(&format!("{one}/redrive"), json!({})), [401, 403, 400, 400]),
        (
            post(&format!("{one}/redrive"), json!({"reason": "x", "sink": "mail"})),
            [401, 403, 404, 404],
        ),
        (post("/v1/sinks/remove", json!({"sink": "mail", "reason": "x"})), [401, 403, 403, 404]),
        (post("/v1/sinks/remove", json!({"sink": "billing", "reason": "x"})), [401, 403, 403, 409]),
        (get("/ready"), [200; 4]),
        (get("/v1/messages/7"), [401, 400, 400, 400]),
        (get("/v1/messages?state=lost"), [401, 400, 400, 400]),
        (get("/v1/messages?after=%20"), [401, 400, 400, 400]),
    ] {
        let tokens = [None, Some(TOKENS[0].1), Some(TOKENS[1].1), Some(TOKENS[2].1)];
        for (token, expected) in tokens.into_iter().zip(statuses) {
            assert_eq!(status(&relay, token, call.clone()).await, expected, "{token:?} {call:?}");
        }
    }
    let discard = post(&format!("{one}/discard"), why());
    assert_eq!(status(&relay, Some(TOKENS[0].1), discard.clone()).await, 403);
    let admin = format!("http://{}", relay.admin.unwrap());
    let id = dead.to_string();
    let arguments = ["messages", "discard", "--message", &id, "--reason", "a test", "--json"];
    let place = ["--admin", &admin, "--token-env", "RESOLVE"];
    let out = shop.run(&[&arguments[..], &place].concat());
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["sinks"][0]["state"], "discarded", "{shown}");
    assert_eq!(shown["trail"][0]["actor"], "oncall/ada", "{shown}");
    let listed = shop.finished(&["messages", "list", "--admin", &admin, "--token-env", "READ"]);
    assert!(listed.stdout.contains(&id), "{listed}");
    shop.enqueue("order-8", PLAIN);
    upstream.arrival(2).await;
    relay.end();
}
