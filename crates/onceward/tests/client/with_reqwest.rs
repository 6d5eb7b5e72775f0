//! reqwest and its middleware, over real sockets.

use std::time::Duration;

use http::Extensions;
use onceward::{
    client::{self, CallError, Report, RetryMiddleware, SendWith as _},
    retry::{Class, Stop, StopReason},
};
use reqwest_middleware::{Middleware, Next};

use crate::{
    fast::{impatient, retry},
    server::{Server, Step},
};

fn http() -> reqwest::Client {
    client::reqwest_client().build().unwrap()
}

#[tokio::test]
async fn a_post_gets_a_key_and_is_retried_with_it() {
    let server =
        Server::script([Step::Reset, Step::status(500), Step::Answer(201, vec![], "made")]).await;
    let response =
        http().post(server.url("/charges")).body("{}").send_with(&retry()).await.unwrap();
    assert_eq!((response.status().as_u16(), response.url().path()), (201, "/charges"));
    let report = response.extensions().get::<Report>().unwrap().clone();
    assert_eq!(response.text().await.unwrap(), "made");
    let observation = server.observation();
    assert_eq!(observation.len(), 3);
    assert!(observation.iter().all(|observation| observation.body == b"{}"
        && observation.line("idempotency-key") == report.key()));
}

#[tokio::test]
async fn a_post_without_key_is_sent_once_also_by_reqwest() {
    for step in [Step::Reset, Step::status(503), Step::Silence] {
        let server = Server::script([step.clone()]).await;
        let request = http().post(server.url("/charges")).body("{}");
        let result = request.send_with(&impatient().without_keys()).await;
        assert_eq!(server.observation().len(), 1, "{step:?}");
        let report = match &result {
            Ok(response) => response.extensions().get::<Report>().unwrap(),
            Err(error) => error.report(),
        };
        assert_eq!(report.stop.unwrap().reason(), StopReason::Unsafe);
    }
}

#[tokio::test]
async fn a_connection_that_never_came_about_is_known_as_such() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let request = http().post(format!("http://{closed}/"));
    let error = request.send_with(&retry().without_keys()).await.unwrap_err();
    let classes: Vec<_> = error.report().attempts.iter().map(|attempt| attempt.class).collect();
    assert_eq!(classes, [Class::NeverSent { reused: false }; 3]);
}

#[tokio::test]
async fn a_stream_is_sent_once() {
    let server = Server::script([Step::status(500)]).await;
    let body = reqwest::Body::wrap(testbed::Pieces::of(["a", "b"]));
    let response = http().put(server.url("/")).body(body).send_with(&retry()).await.unwrap();
    let report = response.extensions().get::<Report>().unwrap();
    assert_eq!((report.sent_once, report.stop), (true, Some(Stop::Failed(StopReason::BodyGone))));
    assert_eq!((server.observation().len(), &*server.observation()[0].body), (1, &b"ab"[..]));
}

#[tokio::test]
async fn a_redirect_to_another_host_is_given_back_and_one_at_home_is_followed_with_the_key() {
    let elsewhere = Server::script([Step::status(200)]).await;
    for status in [301, 302, 303, 307, 308] {
        let server = Server::script([Step::with(status, "location", elsewhere.url("/"))]).await;
        let response = http().post(server.url("/")).body("{}").send_with(&retry()).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
        assert!(
            elsewhere.observation().is_empty(),
            "{status}: neither key nor write left its host"
        );
    }
    for status in [301, 302, 303] {
        let server =
            Server::script([Step::with(status, "location", "/new"), Step::status(200)]).await;
        let response =
            http().post(server.url("/old")).body("{}").send_with(&retry()).await.unwrap();
        let got = (response.status().as_u16(), server.observation().len());
        assert_eq!(got, (status, 1), "a GET that succeeds is not the success of a POST");
        let server =
            Server::script([Step::with(status, "location", "/new"), Step::status(200)]).await;
        let response = http().get(server.url("/old")).send_with(&retry()).await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().path()), (200, "/new"));
    }
    let server = Server::script([Step::with(307, "location", "/new"), Step::status(200)]).await;
    let response = http().post(server.url("/old")).body("{}").send_with(&retry()).await.unwrap();
    assert_eq!(response.url().path(), "/new");
    let observation = server.observation();
    assert_eq!(observation[0].line("idempotency-key"), observation[1].line("idempotency-key"));
    assert_eq!((observation.len(), &*observation[1].body), (2, &b"{}"[..]));
}

#[tokio::test]
async fn a_request_that_cannot_be_built_is_an_error_and_not_sent() {
    let error = http().get("no url").send_with(&retry()).await.unwrap_err();
    assert!(error.to_string().contains("not sent"), "{error}");
}

#[tokio::test]
async fn a_fallback_has_the_address_of_its_request() {
    let server = Server::script([Step::status(500)]).await;
    let retry = retry().fallback(|_| Some(http::Response::new("instead".into())));
    let response = http().get(server.url("/x")).send_with(&retry).await.unwrap();
    assert_eq!(response.url().path(), "/x");
    assert_eq!(response.text().await.unwrap(), "instead");
}

/// Stands between the retries and the network.
#[derive(Clone)]
struct Noted;

#[derive(Clone, Debug, PartialEq)]
struct Note(&'static str);

impl Middleware for Noted {
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        mut request: reqwest::Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> std::pin::Pin<
        Box<
            dyn Future<Output = reqwest_middleware::Result<reqwest::Response>>
                + Send
                + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            request.headers_mut().insert("x-signed", http::HeaderValue::from_static("yes"));
            extensions.insert(Note("inner"));
            next.run(request, extensions).await
        })
    }
}

#[tokio::test]
async fn the_middleware_retries_what_is_behind_it() {
    let server = Server::script([Step::status(500), Step::status(200)]).await;
    let client = reqwest_middleware::ClientBuilder::new(http())
        .with(RetryMiddleware::new(retry()))
        .with(Noted)
        .build();
    let mut extensions = Extensions::new();
    let request = client.post(server.url("/")).body("{}").build().unwrap();
    let response = client.execute_with_extensions(request, &mut extensions).await.unwrap();
    assert_eq!(response.extensions().get::<Report>().unwrap().attempts.len(), 2);
    assert_eq!(extensions.get(), Some(&Note("inner")), "what it left behind is not lost");
    let observation = server.observation();
    assert_eq!(observation.len(), 2);
    assert!(observation.iter().all(|observation| observation.line("x-signed") == Some("yes")));
    assert_eq!(observation[0].line("idempotency-key"), observation[1].line("idempotency-key"));
}

#[tokio::test]
async fn an_error_of_the_middleware_has_the_report() {
    let server = Server::script([Step::Reset]).await;
    let client =
        reqwest_middleware::ClientBuilder::new(http()).with(RetryMiddleware::new(retry())).build();
    let error =
        client.post(server.url("/")).timeout(Duration::from_secs(5)).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    let error: &CallError = error.downcast_ref().unwrap();
    assert!(error.is_unknown());
    assert_eq!(error.report().attempts.len(), 3);
}

/// Takes one request, and is gone when it has answered with a redirect.
async fn redirecting_once() -> std::net::SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(listener);
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            assert!(stream.read_buf(&mut request).await.unwrap() > 0);
        }
        let answer = b"HTTP/1.1 307 Moved\r\nlocation: /new\r\nconnection: close\r\n\
                       content-length: 0\r\n\r\n";
        stream.write_all(answer).await.unwrap();
    });
    address
}

#[tokio::test]
async fn a_connect_that_fails_after_a_redirect_is_not_one_of_the_write() {
    let url = format!("http://{}/?api_key=hidden", redirecting_once().await);
    let request = http().post(url).body("{}");
    let error = request.send_with(&retry().without_keys()).await.unwrap_err();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(error.report().attempts[0].class, Class::Ambiguous);
    assert_eq!(error.report().attempts.len(), 1);
    assert!(!error.to_string().contains("hidden"), "{error}");
}

/// Tells somebody else of each request, who is not there.
#[derive(Clone)]
struct Audited(reqwest::Client, String);

impl Middleware for Audited {
    fn handle<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        request: reqwest::Request,
        extensions: &'life1 mut Extensions,
        next: Next<'life2>,
    ) -> std::pin::Pin<
        Box<
            dyn Future<Output = reqwest_middleware::Result<reqwest::Response>>
                + Send
                + 'async_trait,
        >,
    >
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let response = next.run(request, extensions).await?;
            self.0.post(&self.1).send().await?;
            Ok(response)
        })
    }
}

#[tokio::test]
async fn a_connect_of_somebody_in_between_is_not_one_of_the_write() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::script([Step::status(200)]).await;
    let client = reqwest_middleware::ClientBuilder::new(http())
        .with(RetryMiddleware::new(retry().without_keys()))
        .with(Audited(http(), format!("http://{closed}/")))
        .build();
    let error = client.post(server.url("/")).body("{}").send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error}") };
    let error: &CallError = error.downcast_ref().unwrap();
    assert!(error.is_unknown(), "{error}");
    assert_eq!(server.observation().len(), 1, "it is not sent twice");
}
