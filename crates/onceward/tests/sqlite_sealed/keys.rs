//! Keys come and go.

use std::time::Duration;

use onceward::{
    AdmitError, Effect, Engine, Request, Store, StoreError, Terms, Verdict,
    protocol::{Fence, Found},
    seal::Keyring,
    store::{Inspect, Note, NoteKind, Purge},
};

use crate::{
    server_support::{charge, post, send},
    shop::{Shop, alarms, ask, ask_large, assert_replays, keys, told, unknown},
};

#[tokio::test]
async fn records_from_before_a_change_of_keys_are_replayed() {
    let shop = Shop::new();
    let (small, large) = {
        let app = shop.open(keys(1, &[]));
        (ask(&app, "small").await, ask_large(&app, "large").await)
    };
    let changed = shop.open(keys(2, &[1]));
    assert_replays(&ask(&changed, "small").await, &small);
    assert_replays(&ask_large(&changed, "large").await, &large);
    let other = send(&changed, post("/charges", "small", "another request")).await;
    assert_eq!(told(&other), (422, "key-reused".into()), "fingerprints are compared as well");
    let newer = ask(&changed, "newer").await;
    drop(changed);
    let without_the_old = shop.open(keys(2, &[]));
    assert_replays(&ask(&without_the_old, "newer").await, &newer);
    assert_eq!(shop.ledger.len(), 3);
}

#[tokio::test]
async fn without_its_key_a_record_is_unknown_and_never_run_again() {
    let shop = Shop::new();
    let app = shop.open(keys(1, &[]));
    let (small, large) = (ask(&app, "small").await, ask_large(&app, "large").await);
    drop(app);
    for ring in [keys(2, &[]), keys(2, &[3]), None] {
        let app = shop.open(ring);
        for _ in 0..2 {
            let before = alarms();
            assert_eq!(told(&ask(&app, "small").await), unknown());
            assert_eq!(told(&ask_large(&app, "large").await), unknown());
            assert!(alarms() >= before + 2);
        }
        assert_eq!(shop.ledger.len(), 2, "nothing ran again");
    }
    let again = shop.open(keys(2, &[1]));
    assert_replays(&ask(&again, "small").await, &small);
    assert_replays(&ask_large(&again, "large").await, &large);
}

#[tokio::test]
async fn encryption_can_be_switched_on_later() {
    let shop = Shop::new();
    let (small, large) = {
        let app = shop.open(None);
        (ask(&app, "small").await, ask_large(&app, "large").await)
    };
    let app = shop.open(keys(1, &[]));
    assert_replays(&ask(&app, "small").await, &small);
    assert_replays(&ask_large(&app, "large").await, &large);
    let other = send(&app, post("/charges", "small", "another request")).await;
    assert_eq!(told(&other), (422, "key-reused".into()));
    assert_eq!(shop.ledger.len(), 2);
}

fn request(ring: &Keyring, key: &str) -> Request {
    let plain = onceward::Fingerprint::from_parts(1, [7; 32]);
    let terms = Terms::of(Effect::External).build().unwrap();
    Request { operation: charge(key), fingerprints: ring.fingerprints(plain), terms }
}

/// What has no answer is not sealed, but nobody can tell any more whether the request is the same.
#[tokio::test]
async fn a_fingerprint_of_a_key_that_is_gone_is_an_error_of_the_store() {
    let shop = Shop::new();
    let (old, new) = (keys(1, &[]).unwrap(), keys(2, &[]).unwrap());
    let engine = Engine::new(shop.store(Some(&old)));
    assert!(matches!(engine.admit(request(&old, "k")).await, Ok(Verdict::Run(_))));
    let refused = Engine::new(shop.store(Some(&new))).admit(request(&new, "k")).await;
    assert!(matches!(refused, Err(AdmitError::Store(StoreError::Newer(_)))), "{refused:?}");
    let both = keys(2, &[1]).unwrap();
    let busy = Engine::new(shop.store(Some(&both))).admit(request(&both, "k")).await;
    assert!(matches!(busy, Ok(Verdict::Busy { .. })), "{busy:?}");
}

/// Whoever loses a key must not keep what it hides for ever.
#[tokio::test]
async fn sealed_records_are_swept_without_their_key() {
    let shop = Shop::new();
    let app = shop.open(keys(1, &[]));
    let (small, large) = (charge("small").digest(), charge("large").digest());
    ask(&app, "small").await;
    ask_large(&app, "large").await;
    drop(app);
    assert!(shop.chunks(&large) > 1);
    let day_and_more = i64::try_from(Duration::from_secs(26 * 3600).as_micros()).unwrap();
    let sql = "UPDATE onceward_record SET expires_at = expires_at - ?1";
    assert_eq!(shop.connect().execute(sql, [day_and_more]).unwrap(), 2);
    let store = shop.store(None);
    assert_eq!(store.sweep(100).await, Ok(2));
    for id in [small, large] {
        assert_eq!(store.get(&id).await, Ok(Found::Nothing));
        assert_eq!(shop.chunks(&id), 0);
    }
}

#[tokio::test]
async fn lists_and_purges_open_what_they_look_at() {
    let shop = Shop::new();
    ask(&shop.open(keys(1, &[])), "k").await;
    let id = charge("k").digest();
    let note = Note::of_protocol(NoteKind::Purge, onceward::Execution::from_bytes([0; 16]));
    let with_key = shop.store(keys(1, &[]).as_ref());
    let listed = with_key.list(&onceward::store::Filter::default()).await.unwrap().listed;
    let [onceward::store::Listed { found: Found::Record(stored), .. }] = &listed[..] else {
        panic!("{listed:?}");
    };
    let fence = stored.record.fence;
    assert_eq!(with_key.purge(&id, fence, &note).await, Ok(Purge::Recent), "it can be read");
    let without = shop.store(None);
    let listed = without.list(&onceward::store::Filter::default()).await.unwrap().listed;
    assert!(matches!(
        listed[..],
        [onceward::store::Listed { found: Found::Unreadable { .. }, .. }]
    ));
    let wrong = Fence::from_random([9; 16]);
    let refused = without.purge(&id, wrong, &note).await;
    assert!(matches!(refused, Ok(Purge::Conflict(Found::Unreadable { .. }))), "{refused:?}");
}
