//! Trap 4: what nobody knows the end of is not run again.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use axum::{
    Router,
    http::{StatusCode, request::Parts},
    routing::post as on_post,
};
use onceward::{
    Effect, Ending, Engine, Outcome, Scope,
    clock::ManualClock,
    conformance::FaultyStore,
    server::{Claim, Idempotency, IdempotencyBuilder, InFlight},
    store::memory::MemoryStore,
};

use crate::{
    server_support::{Ledger, Reply, layer, post, send},
    traps::fixture::{DAY, HOUR},
};

/// When a process is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// After the effect, while the handler is still at it.
    InTheHandler,
    /// After the handler's answer, before the end of it is durable.
    BeforeSettlement,
}

/// What is left of an operation whose process was killed.
struct Remains {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    ledger: Ledger,
    effect: Effect,
}

impl Remains {
    /// `kill -9` for one process among threads: its runtime is dropped with everything on it.
    fn of(killed: Killed, effect: Effect) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::not_durable_with_clock(clock.clone()));
        let ledger = Ledger::default();
        let cut = FaultyStore::new(store.clone(), None);
        let (made, down) = (ledger.clone(), cut.clone());
        let (sender, effect_was_made) = mpsc::channel();
        let handler = async move || {
            // Without a commit a transactional effect is none.
            if effect != Effect::Transactional {
                made.add("charge");
            }
            down.set_down(true);
            sender.send(()).unwrap();
            match killed {
                Killed::InTheHandler => std::future::pending().await,
                Killed::BeforeSettlement => StatusCode::CREATED,
            }
        };
        let process = tokio::runtime::Runtime::new().unwrap();
        let idempotency = layer(cut.clone()).effect(effect).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        process.spawn(async move { send(&app, post("/charges", "k", "{}")).await });
        effect_was_made.recv().unwrap();
        while matches!(killed, Killed::BeforeSettlement) && cut.swaps() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        process.shutdown_background();
        Self { clock, store, ledger, effect }
    }

    /// A retry at another process, whose handler tells its attempt.
    fn retry(&self) -> Reply {
        let (made, effect) = (self.ledger.clone(), self.effect);
        let engine = Engine::new(self.store.clone());
        let ending = engine.clone();
        let handler = async move |claim: Claim| {
            made.add("charge");
            let answer = format!("attempt {}", claim.attempt());
            if effect == Effect::Transactional {
                let outcome = Outcome::inline(201, answer.clone().into_bytes());
                ending.settle((*claim).clone(), Ending::Succeeded(outcome)).await.unwrap();
            }
            (StatusCode::CREATED, answer)
        };
        let idempotency = layer_on(engine).effect(effect).build().unwrap();
        let app = Router::new().route("/charges", on_post(handler)).layer(idempotency);
        let process = tokio::runtime::Runtime::new().unwrap();
        process.block_on(send(&app, post("/charges", "k", "{}")))
    }

    fn is_unknown(&self) {
        let reply = self.retry();
        assert_eq!((reply.status.as_u16(), &*reply.code()), (409, "outcome-unknown"));
        let problem = reply.json();
        assert_eq!(
            (&problem["retryable"], &problem["safe_new_key"]),
            (&false.into(), &false.into())
        );
        assert_eq!(self.ledger.len(), 1, "nothing runs any more");
    }
}

/// As `layer`, on an engine that the test drives too.
fn layer_on(engine: Engine) -> IdempotencyBuilder {
    Idempotency::builder(engine, |_: &Parts| Scope::of("caller", "anyone"))
        .in_flight(InFlight::Conflict)
}

/// Nobody knows, and then nobody runs it, unless a second run is harmless.
#[test]
fn trap_4_unknown_is_not_retryable() {
    const LEASE: Duration = Duration::from_secs(30);
    for killed in [Killed::InTheHandler, Killed::BeforeSettlement] {
        let remains = Remains::of(killed, Effect::External);
        remains.clock.advance(LEASE - Duration::from_secs(1));
        assert_eq!(remains.retry().code(), "in-progress", "its lease is not over: {killed:?}");
        remains.clock.advance(Duration::from_secs(1));
        remains.is_unknown();
        remains.clock.advance(DAY * 365);
        remains.is_unknown();

        let remains = Remains::of(killed, Effect::Repeatable { within: HOUR });
        remains.clock.advance(LEASE);
        assert_eq!(remains.retry().text(), "attempt 2", "{killed:?}");
        assert_eq!(remains.ledger.len(), 2, "the second run has the same downstream key");
        let replay = remains.retry();
        assert!(replay.is_replay() && remains.ledger.len() == 2, "and there is no third");

        let remains = Remains::of(killed, Effect::Repeatable { within: HOUR });
        remains.clock.advance(HOUR);
        remains.is_unknown();

        let remains = Remains::of(killed, Effect::Transactional);
        remains.clock.advance(LEASE);
        assert_eq!(remains.retry().text(), "attempt 2", "{killed:?}");
        let replay = remains.retry();
        assert!(replay.is_replay() && remains.ledger.len() == 1, "committed once");
    }
}
