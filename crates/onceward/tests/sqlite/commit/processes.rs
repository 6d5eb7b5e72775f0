//! Several services on one file, clients that go away, and stampedes.

use std::time::Duration;

use axum::Router;
use onceward::{Status, server::InFlight};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    commit::shop::{CommitMethod, Shop, Till, request, service_on},
    server_support::{
        Gate, ask, created, eventually, is_charged, is_replayed, is_same, send, serve,
    },
};

const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The same service once more, as in another process: its own store, its own connections.
fn another(shop: &Shop, way: CommitMethod) -> Router {
    service_on(
        shop.another_store(),
        Till::new(shop.till.path.clone()),
        |layer| layer.in_flight(InFlight::Wait(PROCESS_TIMEOUT)),
        move |till, claim| async move { till.charge(way, &claim, created("charge 1")).await },
    )
}

#[tokio::test]
async fn what_one_process_has_committed_another_one_replays() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let (one, other) = (another(&shop, way), another(&shop, way));
        let first = ask(&one, "k").await;
        is_charged(&first, "charge 1");
        is_replayed(&other, "k", &first).await;
        drop((one, other));
        is_replayed(&another(&shop, way), "k", &first).await;
        assert_eq!(shop.charges(), 1, "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_callers_of_two_processes_one_charges_and_all_get_its_answer() {
    for way in CommitMethod::ALL {
        let shop = Shop::new();
        let apps = [another(&shop, way), another(&shop, way)];
        let keys = ["a", "b", "c"];
        let mut callers = Vec::new();
        for key in keys {
            for app in apps.iter().cycle().take(6) {
                let app = app.clone();
                callers.push((key, tokio::spawn(async move { send(&app, request(key)).await })));
            }
        }
        let mut told = std::collections::HashMap::new();
        for (key, caller) in callers {
            let reply = caller.await.unwrap();
            is_charged(&reply, "charge 1");
            is_same(told.entry(key).or_insert_with(|| reply.clone()), &reply);
        }
        assert_eq!(shop.charges(), keys.len(), "{way:?}: one for each key");
    }
}

/// Each process has its own way, and the lease runs out again and again: one charge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_executions_that_lose_their_lease_one_charges() {
    let (shop, gate) = (Shop::new(), Gate::closed());
    let mut executions = Vec::new();
    let arrived = gate.clone();
    for way in CommitMethod::ALL {
        let gate = gate.clone();
        let app = service_on(
            shop.another_store(),
            Till::new(shop.till.path.clone()),
            |layer| layer,
            move |till, claim| {
                let gate = gate.clone();
                async move {
                    gate.pass().await;
                    till.charge(way, &claim, created("charge 1")).await
                }
            },
        );
        executions.push(tokio::spawn(async move { send(&app, request("k")).await }));
        // It stalls, and the next one takes over.
        arrived.reached().await;
        shop.clock.advance(Duration::from_secs(60));
    }
    for _ in CommitMethod::ALL {
        gate.open();
    }
    let mut codes = Vec::new();
    for execution in executions {
        let reply = execution.await.unwrap();
        codes.push((reply.status.as_u16(), reply.code()));
    }
    codes.sort();
    assert_eq!(shop.charges(), 1, "{codes:?}");
    let charged = codes.iter().filter(|(status, _)| *status == 201).count();
    assert!(charged >= 1, "{codes:?}");
    for (status, code) in &codes {
        assert!(*status == 201 || code == "lease-lost", "{codes:?}");
    }
}

/// The execution outlives its client: the commit is made, and the retry hears of it.
#[tokio::test]
async fn a_client_that_goes_away_during_the_commit_finds_its_charge_when_it_asks_again() {
    for way in [CommitMethod::Commit, CommitMethod::CommitBlocking] {
        for after_the_effect in [false, true] {
            let (shop, gate) = (Shop::new(), Gate::closed());
            let inside = gate.clone();
            let app = shop.app(move |till, claim| {
                let gate = inside.clone();
                async move {
                    if after_the_effect {
                        let completed = till.charge(way, &claim, created("charge 1")).await;
                        gate.pass().await;
                        return completed;
                    }
                    gate.pass().await;
                    till.charge(way, &claim, created("charge 1")).await
                }
            });
            let address = serve(app.clone()).await;
            let mut client = TcpStream::connect(address).await.unwrap();
            let head = "POST /charges HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\n\
                        content-length: 2\r\nidempotency-key: k\r\n\r\n{}";
            client.write_all(head.as_bytes()).await.unwrap();
            gate.reached().await;
            drop(client);
            gate.open();
            eventually(async || shop.status("k").await == Some(Status::Succeeded)).await;
            let retry = ask(&app, "k").await;
            is_charged(&retry, "charge 1");
            is_replayed(&app, "k", &retry).await;
            assert_eq!(shop.charges(), 1, "{way:?}");
        }
    }
}
