//! The inbox: what makes "at least once" once.

use alloc::format;

use super::*;

/// The second delivery is recognised, by each consumer for itself.
pub async fn a_message_is_received_once_by_each_consumer<B: InboxBench>(bench: &B) {
    let queue = bench.open().await;
    let id = format!("{}", fresh_id());
    for consumer in ["billing", "audit"] {
        assert!(receive(bench, &queue, consumer, &id).await, "{consumer} has not seen it");
        assert!(!receive(bench, &queue, consumer, &id).await, "{consumer} has seen it");
    }
    assert!(receive(bench, &queue, "billing", "another").await);
    let mut transaction = bench.begin(&queue).await;
    for expected in [true, false] {
        let first = bench.first_time(&queue, &mut transaction, "billing", "twice", HOUR).await;
        assert_eq!(first, Ok(expected), "also within one transaction");
    }
    bench.commit(transaction).await;
}

/// The memory is part of the transaction of the effect.
pub async fn a_message_whose_effect_was_rolled_back_is_new<B: InboxBench>(bench: &B) {
    let queue = bench.open().await;
    for _ in 0..2 {
        let mut transaction = bench.begin(&queue).await;
        let first = bench.first_time(&queue, &mut transaction, "billing", "m", HOUR).await;
        assert_eq!(first, Ok(true));
        bench.roll_back(transaction).await;
    }
    assert!(receive(bench, &queue, "billing", "m").await);
    assert!(!receive(bench, &queue, "billing", "m").await);
}

/// It is remembered for as long as the consumer asked, and no longer.
pub async fn a_message_is_new_again_after_its_retention<B: InboxBench>(bench: &B) {
    let queue = bench.open().await;
    assert!(receive(bench, &queue, "billing", "m").await);
    bench.age(&queue, HOUR - MINUTE).await;
    assert!(!receive(bench, &queue, "billing", "m").await);
    bench.age(&queue, MINUTE * 2).await;
    assert!(receive(bench, &queue, "billing", "m").await);
    assert!(!receive(bench, &queue, "billing", "m").await);
}

/// Of deliveries at once one is the first; the others wait for its transaction.
pub async fn of_racing_deliveries_one_is_the_first<B: InboxBench>(bench: &B) {
    let queue = bench.open().await;
    let tasks = (0..20).map(|number| {
        let (bench, queue) = (bench.clone(), queue.clone());
        async move {
            let mut transaction = bench.begin(&queue).await;
            let first = bench.first_time(&queue, &mut transaction, "billing", "m", HOUR).await;
            let first = first.expect("the inbox answers");
            // The first of them fails, and leaves it to another.
            if number % 2 == 0 {
                bench.roll_back(transaction).await;
                return false;
            }
            bench.commit(transaction).await;
            first
        }
    });
    let first = gather(bench, tasks).await.into_iter().filter(|first| *first).count();
    assert_eq!(first, 1, "one of those that commit");
}

async fn receive<B: InboxBench>(bench: &B, queue: &B::Queue, consumer: &str, id: &str) -> bool {
    let mut transaction = bench.begin(queue).await;
    let first = bench.first_time(queue, &mut transaction, consumer, id, HOUR).await;
    bench.commit(transaction).await;
    first.expect("the inbox answers")
}
