//! One request and its answer, however it is sent.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    client::{Body, BoxError},
    http::ByteBody,
};

/// How a request is sent: by a tower service, by reqwest, by the rest of a middleware chain.
pub(crate) trait Exchange: Send {
    type Body: ByteBody;

    /// Sends it; `sent` is raised before anything can have left.
    fn send(
        &mut self,
        request: Request<Body>,
        sent: Sent,
    ) -> impl Future<Output = Result<Response<Self::Body>, BoxError>> + Send + use<Self>;
}

/// Whether something can have been sent.
#[derive(Clone, Default)]
pub(crate) struct Sent(Arc<AtomicBool>);

impl Sent {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) struct Served<S>(pub(crate) S);

impl<S, B> Exchange for Served<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: ByteBody,
{
    type Body = B;

    fn send(
        &mut self,
        request: Request<Body>,
        sent: Sent,
    ) -> impl Future<Output = Result<Response<B>, BoxError>> + Send + use<S, B> {
        let mut service = self.0.clone();
        async move {
            poll_fn(|context| service.poll_ready(context)).await.map_err(Into::into)?;
            sent.raise();
            service.call(request).await.map_err(Into::into)
        }
    }
}
