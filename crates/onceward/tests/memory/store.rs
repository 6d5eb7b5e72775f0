//! What is particular about the memory store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use onceward::{
    Effect, Ending, Engine, Execution, Resolution, Status, Store, StoreError, Verdict,
    clock::ManualClock,
    protocol::{
        Fence, Force, Found, Repair, RepairError, RepairKind,
        conformance::{Sample, answer},
    },
    store::{Filter, Inspect as _, memory::MemoryStore},
    telemetry,
};
use tracing::{Event, Metadata, Subscriber, span};

/// Whoever opens it by its name has read the words; whoever reads the log sees them too.
#[test]
fn a_memory_store_says_that_it_is_not_durable() {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        let _ = MemoryStore::not_durable();
    });
    let warnings = warnings.0.lock().unwrap();
    assert!(warnings.iter().any(|text| text.contains("memory only")), "{warnings:?}");
}

#[tokio::test]
async fn a_clock_that_was_set_stops_the_sweep_and_raises_an_alarm() {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::not_durable_with_clock(clock.clone());
    clock.advance(Duration::from_secs(1_000_000));
    assert_eq!(store.sweep(10).await, Ok(0), "time that passes is no jump");
    for jump_micros in [61_000_000, -122_000_000] {
        let alarms = telemetry::CLOCK_JUMPED.count();
        clock.jump_micros(jump_micros);
        let swept = store.sweep(10).await;
        assert!(matches!(swept, Err(StoreError::Unusable(_))), "{swept:?}");
        assert!(telemetry::CLOCK_JUMPED.count() > alarms);
    }
    clock.jump_micros(60_000_000);
    assert_eq!(store.sweep(10).await, Ok(0), "set right again");
}

#[tokio::test]
async fn what_a_jump_lets_expire_is_refused_until_the_clock_is_back_or_trusted() {
    const DAY: i64 = 24 * 3600 * 1_000_000;
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
    let (engine, sample) = (Engine::new(store.clone()), Sample::new(Effect::External));
    let ask = async || engine.admit(sample.request(b'a')).await.unwrap();
    let Verdict::Run(claim) = ask().await else { panic!("it is new") };
    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();

    clock.jump_micros(2 * DAY);
    assert_eq!(ask().await, Verdict::ClockSuspect);
    let filter = Filter { status: Some(Status::ClockSuspect), ..Filter::default() };
    assert_eq!(store.list(&filter).await.unwrap().listed.len(), 1);
    assert!(store.sweep(10).await.is_err());
    clock.jump_micros(-2 * DAY);
    assert!(matches!(ask().await, Verdict::Replay(_)), "the clock is back");

    clock.jump_micros(2 * DAY);
    clock.advance(Duration::from_secs(24 * 3600 - 1));
    assert_eq!(ask().await, Verdict::ClockSuspect, "a second is left without the jump");
    clock.advance(Duration::from_secs(62));
    assert!(matches!(ask().await, Verdict::Run(_)), "it is over whatever the clock did");

    let Verdict::Run(claim) =
        engine.admit(Sample::new(Effect::External).request(b'a')).await.unwrap()
    else {
        panic!("it is new");
    };
    let other = Sample { operation: claim.operation().clone(), terms: sample.terms };
    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
    clock.jump_micros(2 * DAY);
    assert_eq!(engine.admit(other.request(b'a')).await.unwrap(), Verdict::ClockSuspect);
    assert_eq!(store.trust_clock().unwrap().ahead, Duration::from_secs(4 * 24 * 3600));
    assert!(matches!(engine.admit(other.request(b'a')).await.unwrap(), Verdict::Run(_)));
    assert_eq!(store.clock_suspicion(), None);
}

/// Whoever owns the claim may still run: by the clock that jumped, nobody knows how long ago it was made.
#[tokio::test]
async fn a_jump_does_not_make_it_late_enough_to_give_a_key_back() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
    let (engine, sample) = (Engine::new(store.clone()), Sample::new(Effect::External));
    let Verdict::Run(_running) = engine.admit(sample.request(b'a')).await.unwrap() else {
        panic!("it is new");
    };
    let never = async || {
        let Found::Record(stored) = store.get(&sample.id()).await.unwrap() else { panic!() };
        let repair = Repair {
            id: sample.id(),
            kind: RepairKind::Resolve(Resolution::Never),
            terms: &sample.terms,
            fence: Fence::from_random([7; 16]),
            execution: Execution::from_bytes([8; 16]),
            actor: None,
            reason: None,
            force: Force::No,
        };
        repair.of(&stored).map(drop)
    };
    clock.jump_micros(2 * 24 * 3600 * 1_000_000);
    assert_eq!(never().await, Err(RepairError::ClockSuspect));
    store.trust_clock();
    assert_eq!(never().await, Ok(()), "an operator answers for it");
}

#[tokio::test]
async fn what_was_written_after_a_jump_ends_by_the_clock_as_it_is() {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
    let (engine, sample) = (Engine::new(store.clone()), Sample::new(Effect::External));
    clock.jump_micros(2 * 24 * 3600 * 1_000_000);
    let ask = async || engine.admit(sample.request(b'a')).await.unwrap();
    let Verdict::Run(claim) = ask().await else { panic!("it is new") };
    engine.settle(claim, Ending::Succeeded(answer(201))).await.unwrap();
    assert!(matches!(ask().await, Verdict::Replay(_)));
    clock.advance(Duration::from_secs(24 * 3600));
    assert!(matches!(ask().await, Verdict::Run(_)), "the jump does not explain that");
}

/// Collects the texts of warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{value:?} ");
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
