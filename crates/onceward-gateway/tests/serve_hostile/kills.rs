//! kill -9 under load: no effect twice, and what is unknown says so.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    client, counting_upstream,
    gateway_support::{Gateway, Plan, Reply, TEST_TIMEOUT},
    plan,
};

const OPTIONS: &str = "lease = \"300ms\"\nmax_run = \"20s\"";

const CLIENTS: usize = 8;

/// How a key ended for its client.
struct Ended {
    key: String,
    answer: Reply,
}

#[test]
fn a_hundred_kills_cause_no_second_effect() {
    // Two stores side by side, because most of the time goes by while a gateway starts.
    crate::run(async {
        let halves = [50, 50].map(|count| tokio::spawn(kills(count)));
        for half in halves {
            half.await.unwrap();
        }
    });
}

async fn kills(count: usize) {
    let (address, ledger) = counting_upstream::start(Duration::from_millis(8)).await;
    let plan = Arc::new(plan(address, OPTIONS).on_its_own_address());
    let mut gateway = start(&plan).await;
    let (place, done) = (Arc::new(Mutex::new(gateway.address)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        clients.spawn(load(client, place.clone(), done.clone()));
    }
    for _ in 0..count {
        sleep(Duration::from_millis(fastrand::u64(20..120))).await;
        gateway.kill();
        gateway = start(&plan).await;
        *place.lock().unwrap() = gateway.address;
    }
    done.store(true, Ordering::Relaxed);
    let ended: Vec<Ended> = clients.join_all().await.into_iter().flatten().collect();
    let (known, unknown): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|ended| ended.answer.status == 200);
    for Ended { key, answer } in &known {
        assert_eq!((&answer.json()["effects"], ledger.effects(key)), (&1.into(), 1), "{key}");
    }
    for Ended { key, answer } in &unknown {
        assert_eq!(answer.code().as_deref(), Some("outcome-unknown"), "{key}: {answer:?}");
        assert_eq!(client::state(gateway.address, answer).await, "unknown", "{key}");
        assert!(ledger.effects(key) <= 1, "{key}");
    }
    // Otherwise nothing was tested.
    assert!(known.len() >= 10 && !unknown.is_empty(), "{} {}", known.len(), unknown.len());
    eprintln!("{count} kills: {} keys ended, {} are unknown", known.len(), unknown.len());
    gateway.assert_well();
}

/// Waits for it on another thread, so that the clients go on.
async fn start(plan: &Arc<Plan>) -> Gateway {
    let plan = plan.clone();
    spawn_blocking(move || plan.start()).await.unwrap()
}

/// One client: a new key when the last one has ended.
async fn load(client: usize, place: Arc<Mutex<SocketAddr>>, done: Arc<AtomicBool>) -> Vec<Ended> {
    let mut ended = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let key = format!("k-{client}-{}", ended.len());
        let answer =
            timeout(2 * TEST_TIMEOUT, insist(&key, &place)).await.expect("a key never ends");
        ended.push(Ended { key, answer });
    }
    ended
}

/// The same key, wherever the gateway is now, until there is a final answer.
async fn insist(key: &str, place: &Mutex<SocketAddr>) -> Reply {
    let request = client::keyed("/pay", key, "{}");
    loop {
        let address = *place.lock().unwrap();
        match client::ask(address, &request).await {
            Ok(answer) if !answer.is_passing() => return answer,
            _ => sleep(Duration::from_millis(10)).await,
        }
    }
}
