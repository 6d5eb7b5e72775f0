//! Services without a network, for tests in virtual time.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use onceward::Body;
use tokio::time::Instant;
use tower::{Service, service_fn};

/// One answer: after which time, with which status and `Retry-After`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Then {
    pub(crate) after: Duration,
    pub(crate) status: u16,
    pub(crate) hint: Option<u64>,
}

impl Then {
    pub(crate) fn status(status: u16) -> Self {
        Self { after: Duration::ZERO, status, hint: None }
    }

    pub(crate) fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    pub(crate) fn hint(self, seconds: u64) -> Self {
        Self { hint: Some(seconds), ..self }
    }
}

/// When requests began, as the service saw it.
#[derive(Clone, Default)]
pub(crate) struct Begun(Arc<Mutex<Vec<Instant>>>);

impl Begun {
    pub(crate) fn all(&self) -> Vec<Instant> {
        self.0.lock().unwrap().clone()
    }
}

/// Answers by a script, the last line of it for all further requests.
pub(crate) fn scripted(
    script: impl IntoIterator<Item = Then>,
) -> (
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static,
    Begun,
) {
    let begun = Begun::default();
    let script = Arc::new(Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
    let observation = begun.clone();
    let service = service_fn(move |_: Request<Body>| {
        observation.0.lock().unwrap().push(Instant::now());
        let then = {
            let mut script = script.lock().unwrap();
            if script.len() > 1 { script.pop_front().unwrap() } else { script[0] }
        };
        async move {
            tokio::time::sleep(then.after).await;
            let mut response = Response::builder().status(then.status);
            if let Some(seconds) = then.hint {
                response = response.header("retry-after", seconds);
            }
            Ok(response.body(Full::default()).unwrap())
        }
    });
    (service, begun)
}
