//! Somebody changes the file who knows the format and not the key: every checksum is right.

use crate::{
    server_support::charge,
    shop::{Shop, alarms, ask, ask_large, assert_replays, keys, told, unknown},
};

/// The status of the shop's answers, as it stands in a record: member 10, then 201 in CBOR.
const STATUS: [u8; 3] = [10, 0x18, 201];

fn place_of(part: &[u8], whole: &[u8]) -> usize {
    whole.windows(part.len()).position(|window| window == part).unwrap()
}

#[tokio::test]
async fn a_changed_byte_of_a_sealed_answer_makes_it_unknown() {
    let shop = Shop::new();
    let app = shop.open(keys(1, &[]));
    let first = ask(&app, "k").await;
    let good = shop.record("k");
    // The sealed member follows the status: its key, the two bytes of its length, then what is sealed.
    let start = place_of(&STATUS, &good) + STATUS.len() + 3;
    let end = good.len() - 9;
    // Format, name of the key, nonce, what is hidden, the last byte of its tag.
    for place in [start, start + 1, start + 2, start + 26, (start + end) / 2, end - 1] {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        shop.forge("k", bytes);
        let before = alarms();
        assert_eq!(told(&ask(&app, "k").await), unknown(), "byte {place}");
        assert!(alarms() > before);
    }
    shop.forge("k", good);
    assert_replays(&ask(&app, "k").await, &first);
    assert_eq!(shop.ledger.len(), 1);
}

#[tokio::test]
async fn a_changed_status_makes_a_sealed_answer_unknown() {
    for (ring, is_noticed) in [(keys(1, &[]), true), (None, false)] {
        let shop = Shop::new();
        let app = shop.open(ring);
        ask(&app, "k").await;
        let mut bytes = shop.record("k");
        let place = place_of(&STATUS, &bytes);
        bytes[place + 2] = 202;
        shop.forge("k", bytes);
        let before = alarms();
        match is_noticed {
            true => {
                assert_eq!(told(&ask(&app, "k").await), unknown());
                assert!(alarms() > before);
            }
            // Without a key a forger is believed: the checksum is against accidents.
            false => assert_eq!(ask(&app, "k").await.status, 202),
        }
        assert_eq!(shop.ledger.len(), 1);
    }
}

#[tokio::test]
async fn a_sealed_answer_cannot_be_moved_to_another_record() {
    for (ring, is_noticed) in [(keys(1, &[]), true), (None, false)] {
        let shop = Shop::new();
        let app = shop.open(ring);
        let (one, _other) = (ask(&app, "one").await, ask(&app, "other").await);
        shop.forge("other", shop.record("one"));
        let before = alarms();
        let moved = ask(&app, "other").await;
        match is_noticed {
            true => {
                assert_eq!(told(&moved), unknown());
                assert!(alarms() > before);
            }
            false => assert_eq!(moved.body, one.body, "without a key it would be believed"),
        }
        assert_eq!(shop.ledger.len(), 2);
    }
}

#[tokio::test]
async fn changed_or_exchanged_chunks_are_not_replayed() {
    let flip = "UPDATE onceward_spool SET bytes = CAST(X'00' || substr(bytes, 2) AS BLOB)
                WHERE digest = ?1 AND chunk = 1";
    let exchange = "UPDATE onceward_spool SET chunk = 1 - chunk + 10 WHERE digest = ?1";
    let back = "UPDATE onceward_spool SET chunk = chunk - 10 WHERE digest = ?1";
    for changes in [&[flip][..], &[exchange, back]] {
        let shop = Shop::new();
        let app = shop.open(keys(1, &[]));
        ask_large(&app, "large").await;
        let id = charge("large").digest();
        assert_eq!(shop.chunks(&id), 2);
        for change in changes {
            assert!(shop.connect().execute(change, [id.0]).unwrap() > 0);
        }
        let before = alarms();
        let told = told(&ask_large(&app, "large").await);
        assert_eq!(told, (409, "result-unavailable".into()));
        assert!(alarms() > before);
        assert_eq!(shop.ledger.len(), 1);
    }
}
