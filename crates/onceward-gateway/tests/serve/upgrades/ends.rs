//! How a tunnel ends.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{asking, rest, tunnel, upstream};
use crate::gateway_support::{Gateway, Plan, Signal, TEST_TIMEOUT, read_until, route};

/// A gateway and both ends of a tunnel through it; with these options.
async fn both_ends(options: &str) -> (Gateway, TcpStream, TcpStream) {
    let (address, mut heads) = upstream::heads().await;
    let text = format!("{options}\n{}", route(""));
    let gateway = Plan::new(&format!("http://{address}"), &text).start();
    let mut client = TcpStream::connect(gateway.address).await.unwrap();
    client.write_all(asking("chat/1", "").as_bytes()).await.unwrap();
    let (_, mut server) = heads.recv().await.unwrap();
    server.write_all(upstream::SWITCHED.as_bytes()).await.unwrap();
    let told = read_until(&mut client, "\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 101 "), "{told}");
    (gateway, client, server)
}

#[tokio::test]
async fn a_client_that_goes_away_takes_its_upstream_side_with_it() {
    let (gateway, mut client, mut server) = both_ends("").await;
    client.write_all(b"goodbye").await.unwrap();
    drop(client);
    assert_eq!(rest(&mut server).await, "goodbye");
    // The upstream learns also that its client reads no more.
    let gone = async { while server.write_all(&[b'x'; 4096]).await.is_ok() {} };
    timeout(TEST_TIMEOUT, gone).await.expect("it is written to for ever");
    gateway.assert_well();
}

#[tokio::test]
async fn an_upstream_that_goes_away_takes_its_client_with_it() {
    let (_gateway, mut client, mut server) = both_ends("").await;
    server.write_all(b"goodbye").await.unwrap();
    drop(server);
    assert_eq!(rest(&mut client).await, "goodbye");
}

#[tokio::test]
async fn a_reset_on_one_side_ends_the_other_one() {
    let (_gateway, client, mut server) = both_ends("").await;
    #[expect(deprecated, reason = "no lingering at all is a reset, which blocks nothing")]
    client.set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(rest(&mut server).await, "");
}

/// Some protocols end their questions so, and wait for the rest of the answers.
#[tokio::test]
async fn a_client_that_has_said_everything_may_still_listen() {
    let (_gateway, mut client, mut server) = both_ends("").await;
    client.write_all(b"the last question").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "the last question");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.write_all(b"more ").await.unwrap();
    }
    drop(server);
    assert_eq!(rest(&mut client).await, "more more more ");
}

#[tokio::test]
async fn a_tunnel_that_is_silent_for_too_long_is_closed() {
    let (_gateway, mut client, mut server) = both_ends("upgrade_idle = \"1s\"").await;
    let begun = Instant::now();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        server.write_all(b"tick ").await.unwrap();
    }
    let mut heard = [0; 15];
    timeout(TEST_TIMEOUT, client.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(&heard, b"tick tick tick ");
    assert!(begun.elapsed() > Duration::from_secs(1), "what either side says counts");
    assert_eq!((rest(&mut client).await, rest(&mut server).await), (String::new(), String::new()));
}

/// A gateway that stops waits up to 30 s for requests. Tunnels would never end, so it closes them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_stops_closes_its_tunnels_and_does_not_wait() {
    let chat = upstream::chat().await;
    let gateway = Plan::new(&format!("http://{chat}"), &route("")).start();
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = tunnel(&gateway).await;
        client.write_all(b"hello").await.unwrap();
        assert_eq!(read_until(&mut client, "hello").await, "hello");
        clients.push(client);
    }
    let begun = Instant::now();
    gateway.signal(Signal::TERM);
    for client in &mut clients {
        assert_eq!(rest(client).await, "");
    }
    let ended = gateway.wait_for_end();
    let took = begun.elapsed();
    assert!(ended.success(), "{ended:?}");
    assert!(took < Duration::from_secs(25), "it waited for {took:?}");
    let said = gateway.rest_of_log();
    assert!(!said.contains("did not end in time"), "{said}");
}

/// A client that takes nothing holds a tunnel for `client_timeout`, as it holds any other answer.
#[tokio::test]
async fn a_client_that_takes_nothing_is_left() {
    let (gateway, client, mut server) = both_ends("client_timeout = \"1s\"").await;
    let writing = async { while server.write_all(&[b'x'; 64 << 10]).await.is_ok() {} };
    timeout(TEST_TIMEOUT, writing).await.expect("the upstream is kept for ever");
    drop(client);
    gateway.assert_well();
}
