//! What a layer hides in answers stays out of the database also when a handler ends its operation by SQL.

use axum::{Router, http::StatusCode, routing::post};
use onceward::{
    Effect, Outcome,
    protocol::StoredBody,
    server::{Claim, Redaction},
};

use crate::{
    server_support::{ask, layer},
    shop::Shop,
};

fn hide(outcome: &mut Outcome) -> Redaction {
    let StoredBody::Inline(bytes) = &mut outcome.body else { return Redaction::Unchanged };
    *bytes = b"paid with ****".to_vec();
    Redaction::Redacted
}

#[tokio::test]
async fn what_sql_cannot_redact_it_does_not_store() {
    let shop = Shop::open().await;
    let database = shop.database.clone();
    let handler = move |claim: Claim| {
        let execution = format!("{}.{}", claim.id(), claim.execution());
        let lines = r#"[["Location", "/charges/4111"]]"#;
        let complete =
            format!("onceward.complete('{execution}', 201, '{lines}', 'paid with 4111')");
        database.sql(&format!("SELECT {complete}"));
        async { (StatusCode::CREATED, "paid with 4111") }
    };
    let layer = layer(shop.store.clone()).effect(Effect::Transactional).redact(hide);
    let app = Router::new().route("/charges", post(handler)).layer(layer.build().unwrap());
    let first = ask(&app, "k").await;
    assert_eq!((first.status.as_u16(), first.text()), (201, "paid with 4111"));
    let again = ask(&app, "k").await;
    assert!(again.text().contains("result-unavailable"), "{}", again.text());
    let stored = "SELECT count(*) FROM onceward.record WHERE position('4111' IN body) > 0";
    assert_eq!(shop.database.sql(stored), "0");
}
