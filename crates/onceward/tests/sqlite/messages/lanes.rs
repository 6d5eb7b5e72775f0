//! What relays see of the outbox.

use std::time::Duration;

use onceward::message::Next;

use super::support::{Shop, order};

#[tokio::test]
async fn messages_are_delivered_in_the_order_of_their_commits() {
    let shop = Shop::new();
    let relay = shop.relay("billing").await;
    for number in 0..20 {
        shop.enqueue(&order(&format!("order-{}", number % 2), number));
    }
    let bodies = relay.deliver(|_| Next::Delivered).await;
    assert_eq!(bodies.len(), 20);
    for rest in [0, 1] {
        let mut numbers = bodies.iter().map(|body| body.parse::<u32>().unwrap());
        let order: Vec<_> = numbers.by_ref().filter(|number| number % 2 == rest).collect();
        assert!(order.is_sorted(), "{order:?}");
    }
    assert!(relay.deliver(|_| Next::Delivered).await.is_empty(), "once");
}

#[tokio::test]
async fn a_message_that_fails_holds_up_its_aggregate_and_no_other() {
    let shop = Shop::new();
    let relay = shop.relay("billing").await;
    for number in 0..6 {
        shop.enqueue(&order(if number % 2 == 0 { "even" } else { "odd" }, number));
    }
    let wait = Duration::from_secs(60);
    let fails = |body: &str| match body {
        "0" => Next::Park { wait, why: "503".into() },
        _ => Next::Delivered,
    };
    assert_eq!(relay.deliver(fails).await, ["1", "3", "5"]);
    shop.enqueue(&order("even", 6));
    assert!(relay.deliver(fails).await.is_empty(), "it waits behind the first one");
    shop.clock.advance(wait);
    assert_eq!(relay.deliver(|_| Next::Delivered).await, ["0", "2", "4", "6"]);
}
