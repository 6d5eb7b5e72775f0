//! kill -9 of the service and of the gateway at every step of an operation that ends in the service's own
//! transaction: one payment, and the retry gets the committed answer.
//!
//! The service is this very program, started again (see [`service`]). It stops at the step that it was
//! told, and says so by a file.

mod gateway_dies;
mod service;
mod service_dies;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use service::{Service, Step};

use crate::{
    gateway_support::{Gateway, Reply, TEST_TIMEOUT, free_address},
    support::{Shop, pay},
};

/// Short, so that what a killed gateway has claimed is taken over soon.
const LINES: &str =
    "lease = \"700ms\"\nmax_run = \"30s\"\ntimeout = \"25s\"\nin_flight = \"conflict\"\n";

const CENTS: i64 = 5;

struct Bench {
    shop: Shop,
    address: SocketAddr,
}

impl Bench {
    fn new() -> Self {
        Self { shop: Shop::open(), address: free_address().unwrap() }
    }

    fn service(&self, stops_at: Option<Step>) -> Service {
        Service::start(self.address, &self.shop.service_url(), stops_at)
    }

    fn gateway(&self) -> Gateway {
        self.gateway_with(LINES)
    }

    fn gateway_with(&self, lines: &str) -> Gateway {
        self.shop.plan(&format!("http://{}", self.address), lines).start()
    }

    /// Asks until there is a final answer.
    async fn insist(&self, gateway: &Gateway) -> Reply {
        let mut reply = gateway.send(&pay("k", CENTS)).await;
        let start = Instant::now();
        while reply.status != 201 {
            let is_passing =
                ["in-progress", "upstream-failed", "lease-lost", "upstream-unreachable"];
            let (_, code) = reply.problem();
            assert!(is_passing.contains(&code.as_str()), "{reply:?}");
            assert!(start.elapsed() < TEST_TIMEOUT, "it never ends: {reply:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
            reply = gateway.send(&pay("k", CENTS)).await;
        }
        reply
    }

    /// One payment, and the answer that speaks of it, now and for ever.
    async fn assert_paid_once(&self, gateway: &Gateway, answer: &Reply) {
        let again = gateway.send(&pay("k", CENTS)).await;
        assert_eq!((again.status, again.is_replay()), (201, true), "{again:?}");
        assert_eq!(again.body, answer.body);
        assert_eq!(self.shop.payments(), 1);
        let paid: u64 = self.shop.database.sql("SELECT id FROM payment").parse().unwrap();
        assert_eq!(again.json()["id"], paid, "the answer is about the payment that is there");
        assert_eq!(self.shop.database.sql("SELECT count(*) FROM onceward.open"), "0");
    }
}
