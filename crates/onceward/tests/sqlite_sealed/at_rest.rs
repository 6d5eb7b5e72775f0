//! What can be read in the file.

use onceward::{
    Fingerprint,
    outbox::{NewMessage, Outbox},
    protocol::RequestHead,
};

use crate::{
    server_support::send,
    shop::{LARGE, PLANTED, Shop, Till, ask, ask_large, assert_replays, keys},
};

const TILLS: [Till; 3] = [Till::Layer, Till::Rusqlite, Till::Sqlx];

#[tokio::test]
async fn a_sealed_file_shows_nothing_of_any_answer() {
    for till in TILLS {
        let shop = Shop::new();
        let app = shop.open_with(keys(1, &[]), till);
        let (small, large) = (ask(&app, "small").await, ask_large(&app, "large").await);
        assert!(small.text().contains(PLANTED) && large.body.len() > LARGE);
        assert!(shop.shows("POST /charges"), "names are not hidden: the bytes are the right ones");
        for text in [PLANTED, "receipt", "x-planted"] {
            assert!(!shop.shows(text), "{till:?}: {text}");
        }
        drop(app);
        let reopened = shop.open_with(keys(1, &[]), till);
        assert_replays(&ask(&reopened, "small").await, &small);
        assert_replays(&ask_large(&reopened, "large").await, &large);
        assert_eq!(shop.ledger.len(), 2, "{till:?}");
        assert!(!shop.shows(PLANTED), "{till:?}");
    }
}

/// Otherwise the test above could not fail.
#[tokio::test]
async fn without_keys_everything_can_be_read() {
    for till in TILLS {
        let shop = Shop::new();
        let app = shop.open_with(None, till);
        ask(&app, "small").await;
        for text in [&format!("{PLANTED} receipt 1"), &format!("{PLANTED} header 1"), "x-planted"] {
            assert!(shop.shows(text), "{till:?}: {text}");
        }
        ask_large(&app, "large").await;
        assert!(shop.shows(format!("{PLANTED} receipt 2")), "{till:?}");
    }
}

/// They are the service's own data: what `docs/guarantees.md` says of them, with a seal and without.
#[tokio::test]
async fn messages_are_not_sealed() {
    for ring in [keys(1, &[]), None] {
        let shop = Shop::new();
        let store = shop.store(ring.as_ref());
        let mut connection = shop.connect();
        let transaction = store.begin_blocking(&mut connection).unwrap();
        let message = NewMessage::new("order.placed", format!("{PLANTED} body")).unwrap();
        Outbox::new(store.clone()).enqueue_blocking(&transaction, message).unwrap();
        transaction.commit().unwrap();
        assert!(shop.shows(format!("{PLANTED} body")));
    }
}

/// Whoever has the file can guess what was asked for and compare, unless it takes a key.
#[tokio::test]
async fn a_fingerprint_cannot_be_computed_without_the_key() {
    let head = RequestHead::new("POST", "/charges").content_type(Some(&b"application/json"[..]));
    let guessed = Fingerprint::v1(&head, br#"{"cents":5}"#);
    for (ring, is_found) in [(None, true), (keys(1, &[]), false)] {
        let shop = Shop::new();
        ask(&shop.open(ring), "k").await;
        assert_eq!(shop.shows(guessed.digest()), is_found);
    }
}

#[tokio::test]
async fn another_request_with_the_same_key_is_refused_as_before() {
    let shop = Shop::new();
    let app = shop.open(keys(1, &[]));
    ask(&app, "k").await;
    let other = crate::server_support::post("/charges", "k", r#"{"cents":6}"#);
    assert_eq!(send(&app, other).await.code(), "key-reused");
    assert_eq!(shop.ledger.len(), 1);
}
