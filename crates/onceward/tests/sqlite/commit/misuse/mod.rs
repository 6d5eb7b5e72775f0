//! Handlers that do it wrong: no client is ever told of success without the effect.

mod claims;
mod commits;
mod connections;
mod leaks;
mod savepoints;

use axum::Router;

use crate::{
    commit::shop::Shop,
    server_support::{ask, is_charged, is_problem, is_replayed},
};

/// The first try went wrong and charged nothing; the retry charges, once.
async fn is_mended_by_a_retry(shop: &Shop, app: &Router, status: u16, code: &str) {
    is_problem(&ask(app, "k").await, status, code);
    assert_eq!((shop.charges(), shop.chunks()), (0, 0), "nothing of the first try is left");
    let retry = ask(app, "k").await;
    is_charged(&retry, "charge 1");
    is_replayed(app, "k", &retry).await;
    assert_eq!(shop.charges(), 1);
}

/// Everybody is told what was committed, once.
async fn is_charged_once(shop: &Shop, app: &Router) {
    let first = ask(app, "k").await;
    is_charged(&first, "charge 1");
    is_replayed(app, "k", &first).await;
    assert_eq!(shop.charges(), 1);
}
