//! A payments API that answers as Stripe does, by the amount.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{Response, header},
    routing::post,
};
use serde_json::{Value, json};
use testbed::{Gate, Pieces, broken};

use crate::gateway_support::eventually;

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    pub(crate) gate: Gate,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Service {
    /// Waits at the gate.
    pub(crate) const GATED: u64 = 777;
    /// Breaks its answer off.
    pub(crate) const BROKEN: u64 = 504;
    pub(crate) const REFUSED: u64 = 400;
    pub(crate) const DECLINED: u64 = 402;

    pub(crate) async fn start() -> Self {
        let (gate, seen) = (Gate::closed(), Arc::<Mutex<Vec<u64>>>::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().route("/v1/charges", post(charge));
        let app = app.with_state((gate.clone(), seen.clone()));
        tokio::spawn(axum::serve(listener, app).into_future());
        Self { address, gate, seen }
    }

    /// How often it was asked for this amount.
    pub(crate) fn count(&self, amount: u64) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| **seen == amount).count()
    }

    pub(crate) async fn arrival(&self, amount: u64) {
        eventually("it arrives", async || self.count(amount) > 0).await;
    }
}

type Seen = (Gate, Arc<Mutex<Vec<u64>>>);

async fn charge(State((gate, seen)): State<Seen>, body: String) -> Response<Body> {
    let amount = form_urlencoded::parse(body.as_bytes()).find(|(name, _)| name == "amount");
    let amount: u64 = amount.map_or(0, |(_, amount)| amount.parse().unwrap());
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(amount);
        seen.len()
    };
    let made = json!({"id": format!("ch_{number}"), "object": "charge", "amount": amount});
    match amount {
        Service::GATED => gate.pass().await,
        Service::BROKEN => {
            return Response::new(Body::new(Pieces::of(["{\"id\":"]).then(broken())));
        }
        Service::REFUSED => return error(400, "invalid_request_error", "parameter_missing"),
        Service::DECLINED => return error(402, "card_error", "card_declined"),
        _ => {}
    }
    answer(200, &made)
}

fn error(status: u16, kind: &str, code: &str) -> Response<Body> {
    let message = "as the test wants it";
    answer(status, &json!({"error": {"type": kind, "code": code, "message": message}}))
}

fn answer(status: u16, document: &Value) -> Response<Body> {
    let response = Response::builder().status(status);
    let response = response.header(header::CONTENT_TYPE, "application/json");
    response.body(Body::from(document.to_string())).unwrap()
}
