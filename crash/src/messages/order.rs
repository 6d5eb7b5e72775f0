//! What is ordered, and which messages tell of it.

use onceward::outbox::{MessageError, NewMessage};

/// An order, known by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Whose it is, and which of that producer's.
    pub number: i64,
    /// Among how many aggregates it is distributed.
    pub aggregates: i64,
}

impl Order {
    /// A producer has fewer orders than this.
    const MOST: i64 = 1_000_000;

    /// One of this producer's orders, counted from 1.
    #[must_use]
    pub fn of(producer: i64, order: i64, aggregates: i64) -> Self {
        Self { number: producer * Self::MOST + order, aggregates }
    }

    /// The numbers between which all orders of a producer are.
    #[must_use]
    pub fn numbers(producer: i64) -> (i64, i64) {
        (producer * Self::MOST, (producer + 1) * Self::MOST)
    }

    /// Whether its transaction is rolled back.
    #[must_use]
    pub fn is_rolled_back(self) -> bool {
        self.number % 5 == 3
    }

    /// Aggregate and body of each message that tells of it, in their order.
    #[must_use]
    pub fn messages(self) -> Vec<(String, String)> {
        let producer = self.number / Self::MOST;
        let aggregate = format!("order-{producer}-{}", self.number % self.aggregates);
        let mut messages = vec![(aggregate, self.number.to_string())];
        if self.number % 2 == 0 {
            messages.push((format!("customer-{producer}"), format!("{} mail", self.number)));
        }
        messages
    }

    pub(super) fn to_enqueue(self) -> Result<Vec<NewMessage>, MessageError> {
        let messages = self.messages().into_iter();
        messages
            .map(|(aggregate, body)| NewMessage::new("order.placed", body)?.aggregate(&aggregate))
            .collect()
    }
}
