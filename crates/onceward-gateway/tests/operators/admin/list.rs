//! What operators find.

use serde_json::json;

use crate::admin::{change, get, listed, lose, pay, post, reference, show, start};

#[tokio::test]
async fn operations_are_listed_by_what_they_are() {
    let (_upstream, gateway) = start().await;
    let unknown = lose(&gateway, "lost").await;
    let succeeded = reference(&gateway.send(&pay("paid")).await);
    let failed = gateway.send(&pay("refused").told(json!({"status": 402}))).await;
    let failed = reference(&failed);
    let bob = pay("paid").without("x-api-key").header("x-api-key", "bob");
    let of_bob = reference(&gateway.send(&bob).await);
    let all = listed(&gateway, "").await;
    let references = |lines: &[serde_json::Value]| -> Vec<String> {
        lines.iter().map(|line| line["operation"].as_str().unwrap().to_owned()).collect()
    };
    let in_order = [&unknown, &succeeded, &failed, &of_bob].map(Clone::clone);
    assert_eq!(references(&all), in_order);
    let scope_of_bob = all[3]["scope"].as_str().unwrap();
    for (query, expected) in [
        ("?state=unknown".to_owned(), vec![&unknown]),
        ("?state=failed_final".to_owned(), vec![&failed]),
        ("?state=succeeded".to_owned(), vec![&succeeded, &of_bob]),
        (format!("?scope={scope_of_bob}"), vec![&of_bob]),
        (format!("?scope={scope_of_bob}&state=unknown"), vec![]),
        ("?name=POST%20/pay&limit=1".to_owned(), vec![&unknown]),
        ("?name=refund".to_owned(), vec![]),
        ("?older=1d".to_owned(), vec![]),
        ("?older=0s&order=newest&limit=2".to_owned(), vec![&of_bob, &failed]),
    ] {
        let found = references(&listed(&gateway, &query).await);
        assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let by_key = gateway.ask(&post("/v1/operations/search", json!({"key": "paid"}))).await.json();
    let found = references(by_key["operations"].as_array().unwrap());
    assert!(found.len() == 2 && found.contains(&succeeded) && found.contains(&of_bob));
    let exact = json!({"key": "paid", "scope": scope_of_bob, "name": "POST /pay"});
    let exact = gateway.ask(&post("/v1/operations/search", exact)).await.json();
    assert_eq!(references(exact["operations"].as_array().unwrap()), [of_bob]);
}

#[tokio::test]
async fn pages_follow_each_other_while_others_write() {
    let (_upstream, gateway) = start().await;
    let mut expected = Vec::new();
    for key in 0..7 {
        expected.push(reference(&gateway.send(&pay(&format!("k{key}"))).await));
    }
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let page = gateway.ask(&get(&format!("/v1/operations?limit=2{after}"))).await.json();
        for line in page["operations"].as_array().unwrap() {
            found.push(line["operation"].as_str().unwrap().to_owned());
        }
        gateway.send(&pay(&format!("new{}", found.len()))).await;
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
        if found.len() > 30 {
            panic!("it never ends: {found:?}");
        }
    }
    assert_eq!(found[..7], expected);
}

#[tokio::test]
async fn one_is_shown_with_sizes_and_names_only() {
    let (_upstream, gateway) = start().await;
    let answer = json!({"status": 201, "headers": [["X-Number", "7"]], "body": "hello"});
    let reply = gateway.send(&pay("k").told(answer)).await;
    let shown = gateway.ask(&show(&reference(&reply))).await;
    assert_eq!(shown.header("cache-control"), Some("no-store"));
    let shown = shown.json();
    assert_eq!((&shown["state"], &shown["attempt"]), (&json!("succeeded"), &json!(1)));
    assert_eq!(shown["effect"], "external");
    assert_eq!(shown["answer"]["status"], 201);
    assert_eq!(
        (&shown["answer"]["kept"], &shown["answer"]["bytes"]),
        (&json!("inline"), &json!(5))
    );
    assert!(shown["answer"]["headers"].as_array().unwrap().contains(&json!("x-number")));
    assert_eq!(shown["trail"], json!([]));
    assert!(!shown.to_string().contains("hello"));
}

#[tokio::test]
async fn bad_questions_are_answered_in_words() {
    let (_upstream, gateway) = start().await;
    for (query, word) in [
        ("?state=lost", "in_progress"),
        ("?limit=0", "1 to 500"),
        ("?limit=501", "1 to 500"),
        ("?limit=many", "limit"),
        ("?older=soon", "older"),
        ("?older=30", "30s"),
        ("?scope=alice", "name=value"),
        ("?after=nowhere", "after"),
        ("?key=k", "/v1/operations/search"),
        ("?stat=unknown", "stat"),
        ("?state=unknown&state=unknown", "twice"),
        ("?name=", "name"),
    ] {
        let reply = gateway.ask(&get(&format!("/v1/operations{query}"))).await;
        assert_eq!(reply.problem(), (400, "malformed".into()), "{query}");
        assert!(reply.text().contains(word), "{query}: {}", reply.text());
    }
    let nobody = show(&"A".repeat(43));
    assert_eq!(gateway.ask(&nobody).await.problem(), (404, "operation-not-found".into()));
    assert_eq!(gateway.ask(&show("short")).await.problem(), (400, "malformed".into()));
    assert_eq!(gateway.ask(&get("/v2/operations")).await.problem(), (404, "not-found".into()));
    let wrong = gateway.ask(&Call::new("DELETE", "/v1/operations")).await;
    assert_eq!(wrong.problem(), (405, "method-not-allowed".into()));
    for text in ["", "[]", "{", "{\"reason\":null}", "{\"reason\":\" \"}", "{\"reasons\":\"x\"}"] {
        let call = change(&"A".repeat(43), "purge", json!({})).body(text.to_owned());
        assert_eq!(gateway.ask(&call).await.problem(), (400, "malformed".into()), "{text}");
    }
    let form = Call::post("/v1/resolve").header("content-type", "text/plain").body("{}");
    assert_eq!(gateway.ask(&form).await.problem(), (415, "not-json".into()));
    let large = post("/v1/resolve", json!({"reason": "x".repeat(300 << 10)}));
    assert_eq!(gateway.ask(&large).await.status, 413);
}

use crate::gateway_support::Call;
