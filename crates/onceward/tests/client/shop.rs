//! A real service: axum behind the server half, which counts what it has done.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{Router, http::request::Parts, routing::post};
use onceward::{Scope, server::Idempotency, store::memory::MemoryStore};
use tokio::{net::TcpListener, task::JoinHandle};

pub(crate) struct Shop {
    pub(crate) address: SocketAddr,
    effects: Arc<AtomicU32>,
    task: JoinHandle<()>,
}

impl Shop {
    /// Charges, and answers so much later.
    pub(crate) async fn open(answer_after: Duration) -> Self {
        let effects = Arc::new(AtomicU32::new(0));
        let counted = effects.clone();
        let charge = async move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::time::sleep(answer_after).await;
            format!("charge {number}")
        };
        let scope = |_: &Parts| Ok::<_, &str>(Scope::global());
        let idempotency =
            Idempotency::builder(MemoryStore::not_durable(), scope).require_key().build().unwrap();
        let app = Router::new()
            .route("/charges", post(charge))
            .layer(idempotency.clone())
            .merge(idempotency.status_routes());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { address, effects, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/charges", self.address)
    }

    /// How often something was charged.
    pub(crate) fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    pub(crate) async fn charged(&self) {
        while self.effects() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.task.abort();
    }
}
