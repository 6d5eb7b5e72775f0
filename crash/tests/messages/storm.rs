//! Thousands of messages, while producers, relays and consumers are killed, answers are lost and messages doubled.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use onceward_crash::messages::Role;
use testbed::Process;

use super::bench::{Bench, Engine, Extra};

const PRODUCERS: i64 = 2;

/// Each sends about eight messages in ten of its orders, and a mail with every other one.
const MESSAGES_OF_TEN_ORDERS: i64 = 12;

/// How long a process lives before it is killed, at most: the first one of its kind, and the longest of them. A relay that never
/// comes to the end of a page sends the same one again and again, so that each lives longer than the one before.
const LIFE: (Duration, Duration) = (Duration::from_millis(1_500), Duration::from_secs(60));

/// Of a thousand.
const FAULTS: &str = "30";

/// At least so many messages; with `ONCEWARD_LONG` twenty times as many.
pub(crate) fn survive(engine: Engine, messages: i64) {
    let is_long = std::env::var_os("ONCEWARD_LONG").is_some();
    let messages = if is_long { messages * 20 } else { messages };
    let began = Instant::now();
    let mut bench = Bench::new(engine);
    bench.orders = (PRODUCERS, messages * 10 / MESSAGES_OF_TEN_ORDERS / PRODUCERS + 1, 40);
    let kills = go(&bench);
    let history = bench.history();
    let (committed, took) = (history.committed.len(), began.elapsed());
    eprintln!("{committed} messages on {engine:?}, {kills} processes killed, in {took:.1?}");
    assert!(committed >= usize::try_from(messages).unwrap(), "{committed} messages");
    let complaints = bench.complaints();
    let (number, first) = (complaints.len(), complaints.first());
    assert!(complaints.is_empty(), "{number} complaints: {first:?}");
    assert!(kills > 0, "somebody was killed");
}

/// Everything goes on until the producers have ended; then one relay delivers the rest.
fn go(bench: &Bench) -> u32 {
    let (is_over, is_applied) = (AtomicBool::new(false), AtomicBool::new(false));
    let kills = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| again_and_again(bench, Role::Relay, &[], &is_over, &kills));
        }
        let consumer =
            scope.spawn(|| again_and_again(bench, Role::Consume, &[], &is_applied, &kills));
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let kills = &kills;
                scope.spawn(move || {
                    let arguments = ["--producer".to_owned(), producer.to_string()];
                    let never = AtomicBool::new(false);
                    again_and_again(bench, Role::Produce, &arguments, &never, kills);
                })
            })
            .collect();
        for producer in producers {
            producer.join().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        let drain = extra(&["--drain".to_owned()]);
        let relay = bench.start(Role::Relay, &drain);
        let longest = Duration::from_secs(3_600);
        let ended = relay.wait_for_end_within(longest);
        assert!(ended.is_some_and(|ended| ended.success()), "{}", relay.state());
        is_applied.store(true, Ordering::SeqCst);
        consumer.join().unwrap();
    });
    kills.into_inner()
}

fn extra(arguments: &[String]) -> Extra {
    let faults = ["--faults", FAULTS].map(str::to_owned);
    Extra { arguments: [arguments, &faults].concat(), ..Extra::default() }
}

/// One process after the other, each killed after a while, until one ends by itself or all is over.
fn again_and_again(
    bench: &Bench,
    role: Role,
    arguments: &[String],
    is_over: &AtomicBool,
    kills: &AtomicU32,
) {
    let (mut longest, limit) = LIFE;
    while !is_over.load(Ordering::SeqCst) {
        let process = bench.start(role, &extra(arguments));
        let life = longest.mul_f64(0.1 + 0.9 * fastrand::f64());
        longest = longest.mul_f64(1.25).min(limit);
        if has_ended(&process, life, is_over) {
            return;
        }
        if !is_over.load(Ordering::SeqCst) {
            kills.fetch_add(1, Ordering::SeqCst);
        }
        process.kill().unwrap();
    }
}

/// Whether it ended by itself, and well.
fn has_ended(process: &Process, life: Duration, is_over: &AtomicBool) -> bool {
    let began = Instant::now();
    while began.elapsed() < life && !is_over.load(Ordering::SeqCst) {
        if let Some(ended) = process.ended() {
            assert!(ended.success(), "{}", process.state());
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}
