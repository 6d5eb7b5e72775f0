//! Clients that want all there is: places at the upstream, and memory.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::{
    SendStream,
    client::{self, ResponseFuture, SendRequest},
};
use http::Request;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::{
    counting_upstream,
    gateway_support::{
        Call, Gateway, Plan, TEST_TIMEOUT, Upstream, Version, eventually, route_for,
    },
    plan,
};

/// As many places as there are for all routes, and some more.
const CONNECTIONS: usize = 6;
const STREAMS: usize = 200;

/// What one client may hold in memory: half of what there is.
const PEER_MEMORY: u64 = 128 << 20;

/// One connection of HTTP/2 from an address of this machine, whose client grants so many bytes.
pub(crate) async fn connect(address: SocketAddr, from: [u8; 4], window: u32) -> SendRequest<Bytes> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(from), 0).into()).unwrap();
    let stream = socket.connect(address).await.unwrap();
    let mut builder = client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(64 << 20);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender.ready().await.unwrap()
}

/// Requests whose bodies begin and do not end.
async fn endless(
    sender: &SendRequest<Bytes>,
    count: usize,
    path: &str,
) -> Vec<(ResponseFuture, SendStream<Bytes>)> {
    let mut begun = Vec::new();
    for _ in 0..count {
        let mut sender = sender.clone().ready().await.unwrap();
        let request = Request::post(format!("http://gateway{path}")).body(()).unwrap();
        let (answer, mut body) = sender.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"x"), false).unwrap();
        begun.push((answer, body));
    }
    begun
}

/// With a listener that tells figures.
fn start(upstream: &str, route: &str) -> Gateway {
    Plan::new(upstream, &format!("admin = \"127.0.0.1:0\"\n{route}")).start()
}

#[test]
fn bodies_that_never_end_leave_places_for_everybody() {
    crate::run(async {
        let (upstream, _) = counting_upstream::start(Duration::ZERO).await;
        let route = route_for("POST /pay", "scope = [\"global\"]\n");
        let gateway = start(&format!("http://{upstream}"), &route);
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            let sender = connect(gateway.address, [127, 0, 0, 1], 65_535).await;
            held.push((endless(&sender, STREAMS, "/nowhere").await, sender));
        }
        // Some are at the upstream, and others were turned away: nothing moves any more.
        let rejected = "onceward_gateway_rejected_total{reason=\"share\"}";
        eventually("all have come", || async {
            gateway.metric("onceward_gateway_upstream_in_flight").await > 0
                && gateway.metric(rejected).await > 0
        })
        .await;
        for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let mut others = connect(gateway.address, from, 65_535).await;
            let pay = Call::post("/pay").key(&format!("from-{}", from[3]));
            for call in [pay, Call::new("GET", "/other"), Call::new("DELETE", "/other")] {
                let request = call.request("http://gateway").map(|_| ());
                let (answer, _) = others.send_request(request, true).unwrap();
                let answer = timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap();
                assert_eq!(answer.status(), 200, "{from:?}: {call:?}");
                others = others.ready().await.unwrap();
            }
        }
        drop(held);
    });
}

/// Asks for so many answers with these headers, as a proxy does; gives them and how many are on their way.
async fn behind_proxy(
    gateway: &Gateway,
    count: u64,
    lines: &[(&str, &str)],
) -> (Vec<ResponseFuture>, u64) {
    let refused = "onceward_gateway_rejected_total{reason=\"share\"}";
    let held = "onceward_gateway_upstream_answers";
    let of = async || (gateway.metric(held).await, gateway.metric(refused).await);
    let (held_before, refused_before) = of().await;
    let sender = connect(gateway.address, [127, 0, 0, 1], 65_535).await;
    let mut asked = Vec::new();
    for _ in 0..count {
        let mut sender = sender.clone().ready().await.unwrap();
        let mut request = Request::get("http://gateway/hold");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        asked.push(sender.send_request(request.body(()).unwrap(), true).unwrap().0);
    }
    eventually("all have come", async || {
        let (held, refused) = of().await;
        held + refused == held_before + refused_before + count
    })
    .await;
    (asked, of().await.0 - held_before)
}

#[test]
fn behind_a_trusted_proxy_each_client_has_its_share_and_the_proxy_none() {
    crate::run(async {
        let (upstream, _) = counting_upstream::start(Duration::from_secs(600)).await;
        let lines = "trusted_proxies = [\"127.0.0.1/32\"]\nmax_answers = 64\n";
        let route = route_for("POST /pay", "scope = [\"global\"]\n");
        let gateway = start(&format!("http://{upstream}"), &format!("{lines}{route}"));
        let of = |client| [("x-forwarded-for", client)];
        let free = async || gateway.metric("onceward_gateway_upstream_answers").await == 0;
        // Without a route one client has a quarter of the answers, all together have a half.
        let (one, held) = behind_proxy(&gateway, 20, &of("203.0.113.1")).await;
        assert_eq!(held, 16, "one client");
        drop(one);
        eventually("all is given back", free).await;
        // Headers that contradict each other, which one client can send, have one share together.
        let unclear = [("x-forwarded-for", "203.0.113.1"), ("forwarded", "for=x")];
        let (more, held) = behind_proxy(&gateway, 20, &unclear).await;
        assert_eq!(held, 16, "what is unclear");
        drop(more);
        eventually("all is given back", free).await;
        let (proxy, held) = behind_proxy(&gateway, 36, &[]).await;
        assert_eq!(held, 32, "the proxy itself has what there is");
        drop(proxy);
    });
}

#[test]
fn a_request_without_a_byte_of_its_body_takes_no_place_for_a_while() {
    crate::run(async {
        let (upstream, _) = counting_upstream::start(Duration::ZERO).await;
        let gateway = start(&format!("http://{upstream}"), &route_for("POST /pay", ""));
        let sender = connect(gateway.address, [127, 0, 0, 1], 65_535).await;
        let begun = Instant::now();
        let mut sender = sender.ready().await.unwrap();
        let request = Request::post("http://gateway/nowhere").body(()).unwrap();
        let (answer, mut body) = sender.send_request(request, false).unwrap();
        let places = || gateway.metric("onceward_gateway_upstream_in_flight");
        eventually("it is taken for a stream", || async { places().await == 1 }).await;
        assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
        body.send_data(Bytes::from_static(b"x"), true).unwrap();
        assert_eq!(timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap().status(), 200);
    });
}

/// What a client gets that sends two bytes of its body each second.
async fn slowly(gateway: SocketAddr, line: &str) -> String {
    let (mut reader, mut writer) = TcpStream::connect(gateway).await.unwrap().into_split();
    let head = format!("POST /pay HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n{line}\r\n");
    writer.write_all(head.as_bytes()).await.unwrap();
    let sending = tokio::spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            sleep(Duration::from_millis(500)).await;
        }
    });
    let mut answer = Vec::new();
    let end = timeout(Duration::from_secs(25), reader.read_to_end(&mut answer)).await;
    sending.abort();
    assert!(end.is_ok(), "it goes on for ever");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_body_that_comes_too_slowly_is_left() {
    crate::run(async {
        let (upstream, ledger) = counting_upstream::start(Duration::ZERO).await;
        let gateway = plan(upstream, "").start();
        let keyed = slowly(gateway.address, "Idempotency-Key: slow\r\n");
        for answer in <[String; 2]>::from(tokio::join!(keyed, slowly(gateway.address, ""))) {
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
        assert_eq!(ledger.effects("slow"), 0);
    });
}

#[test]
fn bodies_of_which_the_scope_is_read_count_as_others_do() {
    crate::run(async {
        let (upstream, _) = counting_upstream::start(Duration::ZERO).await;
        let options = "scope = [\"global\", \"json:/tenant\"]\nmax_request = \"16MiB\"\n";
        let route = route_for("POST /pay", options);
        let gateway = start(&format!("http://{upstream}"), &route);
        let piece = vec![b' '; 15 << 20];
        let head = format!(
            "POST /pay HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\nContent-Length: {}\r\n\r\n",
            piece.len() + 1
        );
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut stream = TcpStream::connect(gateway.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&piece).await.unwrap();
            held.push(stream);
        }
        let buffered = || gateway.metric("onceward_buffered_bytes");
        eventually("all have come", || async { buffered().await >= 8 * (15 << 20) }).await;
        let large = Call::post("/pay").key("over").body(piece);
        let over = gateway.send_by(Version::Http2, &large).await;
        assert_eq!(
            (over.status, over.code().as_deref()),
            (503, Some("overloaded")),
            "one client has its share"
        );
        assert!(buffered().await <= PEER_MEMORY);
        let small = Call::post("/pay").key("small").json(serde_json::json!({"tenant": "t"}));
        assert_eq!(gateway.send(&small).await.status, 200);
        drop(held);
        eventually("all is given back", || async { buffered().await == 0 }).await;
    });
}

#[test]
fn large_heads_count_while_their_bodies_are_awaited() {
    crate::run(async {
        let (upstream, _) = counting_upstream::start(Duration::ZERO).await;
        let route = route_for("POST /pay", "scope = [\"global\"]\n");
        let gateway = start(&format!("http://{upstream}"), &route);
        let mut held = Vec::new();
        for number in 0..20 {
            let mut stream = TcpStream::connect(gateway.address).await.unwrap();
            let head = format!(
                "POST /pay HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k{number}\r\nX-Long: {}\r\n\
                 Content-Length: 2\r\n\r\n{{",
                "x".repeat(30_000)
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            held.push(stream);
        }
        let buffered = || gateway.metric("onceward_buffered_bytes");
        eventually("all count", || async { buffered().await >= 600_000 }).await;
        drop(held);
        eventually("all is given back", || async { buffered().await == 0 }).await;
    });
}

/// What counts is what the process really holds.
#[test]
fn hostile_bodies_and_unread_answers_do_not_take_all_memory() {
    crate::run_alone(async {
        let upstream = Upstream::any();
        let json = "scope = [\"global\", \"json:/tenant\"]\nmax_request = \"4MiB\"\n";
        let large = "scope = [\"global\"]\n";
        let routes = route_for("POST /json", json) + &route_for("POST /large", large);
        let gateway = start(&upstream.url(), &routes);
        // Of eight bytes each; a tree of them would take a hundred times as much.
        let body = format!("[{}{{}}]", "{\"\":0},".repeat(300_000));
        for number in 0..2 {
            let call = Call::post("/json").key(&format!("j{number}")).body(body.clone());
            assert_eq!(gateway.send(&call).await.problem(), (401, "scope-missing".into()));
        }
        let most = gateway.resident_most();
        assert!(most < 150 << 20, "{} MiB for bodies of 4 MiB", most >> 20);
        // Clients of HTTP/1.1 that read nothing of what they asked for.
        let mut unread = Vec::new();
        for number in 0..30 {
            let pay = format!(
                "POST /large HTTP/1.1\r\nHost: h\r\nIdempotency-Key: l{number}\r\n\
                 x-do: {{\"size\": 7000000}}\r\nContent-Length: 0\r\n\r\n"
            );
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket.connect(gateway.address).await.unwrap();
            stream.write_all(pay.as_bytes()).await.unwrap();
            unread.push(stream);
        }
        upstream.arrival(30).await;
        let unsettled = || gateway.metric("onceward_unsettled{kind=\"execution\"}");
        eventually("all have ended", || async { unsettled().await == 0 }).await;
        let most = gateway.resident_most();
        assert!(most < 500 << 20, "{} MiB for answers that nobody reads", most >> 20);
        drop(unread);
        // It has run: also what had no room is kept.
        for number in [0, 29] {
            let again = gateway.send(&Call::post("/large").key(&format!("l{number}"))).await;
            assert_eq!((again.status, again.is_replay()), (201, true), "l{number}");
            assert_eq!(again.body.len(), 7_000_000, "l{number}");
        }
    });
}

#[test]
fn stored_answers_that_are_not_taken_count_until_they_are() {
    crate::run(async {
        let upstream = Upstream::any();
        let route = route_for("POST /{*rest}", "scope = [\"global\"]\n");
        let gateway = start(&upstream.url(), &route);
        let size = 65_000;
        let pay = Call::post("/pay").key("k").told(serde_json::json!({"size": size}));
        assert_eq!(gateway.send(&pay).await.status, 201);
        let (mut held, mut refused) = (Vec::new(), 0);
        for _ in 0..12 {
            let sender = connect(gateway.address, [127, 0, 0, 1], 0).await;
            for _ in 0..STREAMS {
                let mut sender = sender.clone().ready().await.unwrap();
                let request = pay.request("http://gateway").map(|_| ());
                held.push(sender.send_request(request, true).unwrap().0);
            }
        }
        let mut answers = Vec::new();
        for answer in held {
            let answer = timeout(TEST_TIMEOUT, answer).await.expect("no answer").unwrap();
            refused += usize::from(answer.status() == 503);
            answers.push(answer);
        }
        let buffered = || gateway.metric("onceward_buffered_bytes");
        let now = buffered().await;
        assert!((PEER_MEMORY / 2..=PEER_MEMORY).contains(&now), "{now} bytes are counted");
        assert!(refused > 0, "one client has its share");
        let mut other = connect(gateway.address, [127, 0, 0, 2], 65_535).await;
        let (answer, _) =
            other.send_request(pay.request("http://gateway").map(|_| ()), true).unwrap();
        assert_eq!(answer.await.unwrap().status(), 201, "others have theirs");
        drop(answers);
        eventually("all is given back", || async { buffered().await < 100_000 }).await;
    });
}
