//! Connections that break off at every byte, on both sides: one effect, and one answer.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use crate::{
    client, counting_upstream,
    cutting_upstream::{self, Framing},
    gateway_support::{Reply, TEST_TIMEOUT, free_address},
    plan,
};

/// A crashed owner would be noticed soon.
const OPTIONS: &str = "lease = \"300ms\"\nmax_run = \"20s\"";

/// The same in front of an upstream that does nothing but fail, and must not be left alone for it.
const FAILING: &str = "lease = \"300ms\"\nmax_run = \"20s\"\nbreaker = false";

/// How many connections are cut at once.
const AT_ONCE: usize = 24;

const BODY: &str = "{\"cents\": 500}";

#[test]
fn a_client_may_leave_at_every_byte_of_its_request() {
    crate::run(async {
        let (address, ledger) = counting_upstream::start(Duration::from_millis(10)).await;
        let gateway = plan(address, OPTIONS).start();
        let (address, length) = (gateway.address, request("r-0000").len());
        each(length + 1, move |cut| async move {
            let request = request(&format!("r-{cut:04}"));
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&request[..cut]).await.unwrap();
            leave(stream, cut);
            assert_once(&retried(address, &request).await, cut);
        })
        .await;
        let counts: Vec<usize> =
            (0..=length).map(|cut| ledger.effects(&format!("r-{cut:04}"))).collect();
        assert_eq!(counts, vec![1; length + 1]);
        gateway.assert_well();
    });
}

#[test]
fn a_client_may_leave_at_every_byte_of_its_answer() {
    crate::run(async {
        let (address, ledger) = counting_upstream::start(Duration::from_millis(1)).await;
        let gateway = plan(address, OPTIONS).start();
        let address = gateway.address;
        let length = answer_length(address).await;
        assert!(length <= 1024, "{length}");
        each(length + 1, move |cut| async move {
            let request = request(&format!("a-{cut:04}"));
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&request).await.unwrap();
            let mut part = vec![0; cut];
            timeout(TEST_TIMEOUT, stream.read_exact(&mut part)).await.expect("it hangs").unwrap();
            leave(stream, cut);
            let answer = retried(address, &request).await;
            assert_once(&answer, cut);
            let body = part.windows(4).position(|window| window == b"\r\n\r\n");
            let body = body.map_or(&[][..], |end| &part[end + 4..]);
            assert!(answer.body.starts_with(body), "another answer after {cut} bytes");
        })
        .await;
        let counts: Vec<usize> =
            (0..=length).map(|cut| ledger.effects(&format!("a-{cut:04}"))).collect();
        assert_eq!(counts, vec![1; length + 1]);
        gateway.assert_well();
    });
}

#[test]
fn an_upstream_may_break_off_at_every_byte_of_its_answer() {
    crate::run(async {
        for framing in [Framing::Length, Framing::Chunked] {
            let (address, ledger) = cutting_upstream::start(framing).await;
            let gateway = plan(address, FAILING).start();
            let (address, length) = (gateway.address, framing.answer(1).len());
            each(length + 1, move |cut| async move {
                let request = request(&format!("u-{cut:04}"));
                let first = client::ask(address, &request).await.unwrap();
                if cut == length {
                    assert_eq!((first.status, &first.body[..]), (201, &b"{\"effects\":1}"[..]));
                    let again = client::ask(address, &request).await.unwrap();
                    assert_eq!((again.status, again.body), (first.status, first.body));
                    return;
                }
                // It has acted, and nobody can tell: that is said, and nothing runs again.
                assert_eq!((first.status, code(&first)), (504, "outcome-unknown".into()), "{cut}");
                let again = client::ask_until_final(address, &request).await;
                assert_eq!((again.status, code(&again)), (409, "outcome-unknown".into()), "{cut}");
                assert_eq!(client::state(address, &again).await, "unknown", "{cut}");
            })
            .await;
            let counts: Vec<usize> =
                (0..=length).map(|cut| ledger.effects(&format!("u-{cut:04}"))).collect();
            assert_eq!(counts, vec![1; length + 1], "{framing:?}");
            gateway.assert_well();
        }
    });
}

#[test]
fn an_upstream_that_is_not_there_leaves_the_key_free() {
    crate::run(async {
        let address = free_address().unwrap();
        let gateway = plan(address, OPTIONS).start();
        let request = request("n-0000");
        let first = client::ask(gateway.address, &request).await.unwrap();
        assert_eq!(first.code().as_deref(), Some("upstream-unreachable"));
        let ledger = counting_upstream::start_at(address, Duration::ZERO).await;
        assert_once(&retried(gateway.address, &request).await, 0);
        assert_eq!(ledger.effects("n-0000"), 1);
    });
}

fn request(key: &str) -> Vec<u8> {
    client::keyed("/pay", key, BODY)
}

/// How many bytes an answer has that is not a replay.
async fn answer_length(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&request("a-9999")).await.unwrap();
    let mut bytes = Vec::new();
    loop {
        let read =
            timeout(TEST_TIMEOUT, stream.read_buf(&mut bytes)).await.expect("it hangs").unwrap();
        assert!(read > 0, "there is no answer");
        if let Some((_, length)) = Reply::parse(&bytes) {
            return length;
        }
    }
}

/// Every second client leaves with a reset.
fn leave(stream: TcpStream, cut: usize) {
    if cut % 2 == 1 {
        stream.set_zero_linger().unwrap();
    }
    drop(stream);
}

/// The final answer, which stays what it is.
async fn retried(address: SocketAddr, request: &[u8]) -> Reply {
    let answer = client::ask_until_final(address, request).await;
    let again = client::ask_until_final(address, request).await;
    assert_eq!((answer.status, &answer.body), (again.status, &again.body));
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again:?}");
    answer
}

fn assert_once(answer: &Reply, cut: usize) {
    assert_eq!((answer.status, &answer.json()["effects"]), (200, &1.into()), "{cut}: {answer:?}");
}

fn code(answer: &Reply) -> String {
    answer.code().unwrap_or_default()
}

/// Does it for each number below, some at a time.
async fn each<F: Future<Output = ()> + Send + 'static>(count: usize, act: impl Fn(usize) -> F) {
    let (mut acts, room) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    for number in 0..count {
        let (acting, room) = (act(number), room.clone());
        acts.spawn(async move {
            let _place = room.acquire().await.unwrap();
            acting.await;
        });
    }
    while let Some(acted) = acts.join_next().await {
        acted.unwrap();
    }
}
