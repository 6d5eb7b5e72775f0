//! The people with their phones: each tap is one operation, retried until it has an answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use http::StatusCode;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    gateways::Doors,
    network::{self, Answer, Loss, NetworkCondition, Order},
    tally::{Step, Story, Tally},
};

/// How long a tap is tried before its client gives up, which would be a failure of the demo.
const GIVE_UP: Duration = Duration::from_secs(30);
/// From this attempt on the network is fair, so that every tap ends.
const FAIR_FROM: u32 = 12;
const CUSTOMERS: [&str; 8] =
    ["ada", "alan", "barbara", "donald", "edsger", "grace", "leslie", "tony"];

#[derive(Clone, Debug)]
pub(super) struct Receipt {
    pub(super) key: String,
    pub(super) cents: u32,
    /// The body of the first answer that reached the client.
    pub(super) answer: Option<Bytes>,
    pub(super) other_answers: u32,
    pub(super) other_amount_accepted: bool,
}

impl Receipt {
    fn take(&mut self, answer: Bytes) {
        match &self.answer {
            None => self.answer = Some(answer),
            Some(first) if *first == answer => {}
            Some(_) => self.other_answers += 1,
        }
    }
}

#[derive(Clone)]
pub(super) struct Clients {
    pub(super) doors: Doors,
    pub(super) tally: Arc<Tally>,
    /// The same mischief for the same seed, as far as the scheduler allows.
    pub(super) seed: u64,
    pub(super) until: Instant,
    pub(super) tap_numbers: Arc<AtomicU64>,
}

impl Clients {
    /// Starts so many clients; each ends with its receipts when the time is over.
    pub(super) fn start(&self, clients: u16) -> JoinSet<Vec<Receipt>> {
        (0..clients).map(|number| self.clone().tap_until_the_end(number)).collect()
    }

    async fn tap_until_the_end(self, number: u16) -> Vec<Receipt> {
        let mut random = Rng::with_seed(self.seed ^ (u64::from(number) << 48));
        let mut receipts = Vec::new();
        while Instant::now() < self.until {
            let order = order(number, &mut random);
            receipts.push(self.tap(order, random.fork()).await);
            sleep(Duration::from_millis(random.u64(5..=40))).await;
        }
        receipts
    }

    /// One tap on "Pay". The order, with its key, is written down before it is first sent: that is
    /// all that a client which restarts has left.
    async fn tap(&self, order: Order, mut random: Rng) -> Receipt {
        self.tally.count(|numbers| numbers.taps += 1);
        let tap = self.tap_numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let Order { key, cents, .. } = order.clone();
        let story = Story { tap, key: key.clone(), ..Story::default() };
        let mut receipt =
            Receipt { key, cents, answer: None, other_answers: 0, other_amount_accepted: false };
        let mut attempts = Attempts {
            clients: self,
            order,
            story,
            receipt: &mut receipt,
            sent: AtomicU64::new(0),
            random: random.fork(),
        };
        let _ = timeout(GIVE_UP, attempts.until_answered()).await;
        attempts.story.requests = attempts.sent.load(Ordering::Relaxed);
        if one_in(30, &mut random) {
            attempts.try_another_amount().await;
        }
        self.tally.remember(attempts.story);
        receipt
    }
}

fn order(client: u16, random: &mut Rng) -> Order {
    // Seeded like everything here. A real client makes its keys with `Uuid::new_v4()`.
    let key = uuid::Builder::from_random_bytes(random.u128(..).to_be_bytes()).into_uuid();
    Order {
        key: key.to_string(),
        caller: format!("client-{client}"),
        customer: random.choice(CUSTOMERS).unwrap_or("ada"),
        cents: random.u32(2..=200) * 50,
    }
}

struct Attempts<'a> {
    clients: &'a Clients,
    order: Order,
    story: Story,
    receipt: &'a mut Receipt,
    sent: AtomicU64,
    random: Rng,
}

impl Attempts<'_> {
    async fn until_answered(&mut self) {
        if one_in(10, &mut self.random) {
            let alive = Duration::from_millis(self.random.u64(1..=25));
            if timeout(alive, self.attempts()).await.is_ok() {
                return;
            }
            // Its connections are closed, whatever they were waiting for.
            self.clients.tally.count(|numbers| numbers.restarts += 1);
            self.story.steps.push(Step::Restarted);
        }
        self.attempts().await;
    }

    async fn attempts(&mut self) {
        for attempt in 1.. {
            if attempt == 1 && one_in(4, &mut self.random) {
                self.tap_twice().await;
            } else {
                let (condition, random) = (self.condition(attempt), self.random.fork());
                let result = self.send(condition, random).await;
                self.take(result);
            }
            if self.receipt.answer.is_some() {
                return;
            }
            sleep(self.pause(attempt)).await;
        }
    }

    async fn tap_twice(&mut self) {
        self.story.steps.push(Step::TappedTwice);
        let later = Duration::from_millis(self.random.u64(0..=8));
        let (first, second) = (self.condition(1), self.condition(1));
        let (here, there) = (self.random.fork(), self.random.fork());
        let (one, other) = tokio::join!(self.send(first, here), async {
            sleep(later).await;
            self.send(second, there).await
        });
        self.take(one);
        self.take(other);
    }

    async fn send(&self, condition: NetworkCondition, mut random: Rng) -> Result<Answer, Loss> {
        let underway = self.clients.tally.send();
        self.sent.fetch_add(1, Ordering::Relaxed);
        let door = self.clients.doors.any(&mut random);
        let answer = network::send(door, &self.order, condition).await?;
        underway.answered();
        Ok(answer)
    }

    fn take(&mut self, result: Result<Answer, Loss>) {
        let step = match result {
            Err(loss) => Step::Lost(loss),
            Ok(Answer { status: StatusCode::CREATED, replayed, body }) => {
                self.receipt.take(body);
                if replayed { Step::Replayed } else { Step::Charged }
            }
            Ok(answer) if answer.problem().as_deref() == Some("outcome-unknown") => Step::Unknown,
            Ok(Answer { status: StatusCode::CONFLICT, .. }) => Step::StillRunning,
            Ok(_) => Step::Unready,
        };
        self.clients.tally.count(|numbers| match step {
            Step::Replayed => numbers.replays += 1,
            Step::Unknown => numbers.unknown += 1,
            Step::StillRunning => numbers.conflicts += 1,
            Step::Unready => numbers.unready += 1,
            _ => {}
        });
        self.story.steps.push(step);
    }

    /// The same key for something else: must be refused.
    async fn try_another_amount(&mut self) {
        self.order.cents += 50;
        for attempt in 1..FAIR_FROM {
            let fair = NetworkCondition::Fair { time_out: time_out(attempt) };
            let random = self.random.fork();
            match self.send(fair, random).await {
                Ok(Answer { status: StatusCode::UNPROCESSABLE_ENTITY, .. }) => {
                    self.clients.tally.count(|numbers| numbers.refused += 1);
                    return;
                }
                Ok(Answer { status: StatusCode::CREATED, .. }) => {
                    self.receipt.other_amount_accepted = true;
                    return;
                }
                Ok(_) | Err(_) => sleep(self.pause(attempt)).await,
            }
        }
    }

    fn condition(&mut self, attempt: u32) -> NetworkCondition {
        let fair = NetworkCondition::Fair { time_out: time_out(attempt) };
        if attempt >= FAIR_FROM {
            return fair;
        }
        match self.random.u8(..100) {
            0..12 => NetworkCondition::CutsOff,
            12..50 => NetworkCondition::LosesAnswer {
                after: Duration::from_millis(self.random.u64(0..=20)),
            },
            _ => fair,
        }
    }

    /// Exponential backoff with full jitter, in a tenth of the time that a phone would take.
    fn pause(&mut self, attempt: u32) -> Duration {
        let longest_ms = (10_u64 << attempt.min(4)).min(100);
        Duration::from_millis(self.random.u64(0..=longest_ms))
    }
}

/// Doubles with each attempt: a slow server is given a chance.
fn time_out(attempt: u32) -> Duration {
    Duration::from_millis(60 << attempt.saturating_sub(1).min(7))
}

fn one_in(chance: u32, random: &mut Rng) -> bool {
    random.u32(..chance) == 0
}
