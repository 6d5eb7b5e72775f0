//! Clients that connect and then do nothing, or next to nothing.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    client::{self, Connection},
    counting_upstream, plan,
};

/// What a gateway may take up in memory, whoever is connected.
const MOST_MEMORY: u64 = 256 << 20;

const MINUTE: Duration = Duration::from_secs(60);

/// How long goodput is measured.
const MEASURED: Duration = Duration::from_millis(1500);

#[test]
fn five_thousand_who_do_nothing_harm_nobody() {
    // The machine may be shared, so little is asked.
    crate::run_alone(crowd(5_000, 0.5));
}

#[test]
#[ignore = "long: the machine must be free"]
fn five_thousand_who_do_nothing_leave_others_nine_tenths() {
    crate::run_alone(crowd(5_000, 0.9));
}

#[test]
#[ignore = "long: a minute of silence"]
fn nobody_may_be_silent_for_ever() {
    crate::run(async {
        let (address, ledger) = counting_upstream::start(Duration::ZERO).await;
        let gateway = plan(address, "").start();
        let length = "Content-Length: 9\r\n";
        let keyed = format!("POST /pay HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n{length}\r\nx");
        let unkeyed = format!("POST /pay HTTP/1.1\r\nHost: h\r\n{length}\r\nx");
        let uncovered = format!("PUT /pay HTTP/1.1\r\nHost: h\r\n{length}\r\nx");
        let answered = String::from_utf8(client::get("/x")).unwrap();
        let silent =
            ["", "PRI", "POST", &keyed, &unkeyed, &uncovered, &answered].map(str::to_owned);
        let mut waiting = JoinSet::new();
        for begun in silent {
            let mut stream = TcpStream::connect(gateway.address).await.unwrap();
            waiting.spawn(async move {
                stream.write_all(begun.as_bytes()).await.unwrap();
                let (started, mut answer) = (Instant::now(), Vec::new());
                let end = stream.read_to_end(&mut answer);
                assert!(timeout(2 * MINUTE, end).await.is_ok(), "it never ends: {begun:?}");
                eprintln!("{:?} after {begun:?}", started.elapsed());
            });
        }
        waiting.join_all().await;
        assert_eq!(ledger.effects("k"), 0);
    });
}

async fn crowd(count: usize, share: f64) {
    let count = allowed(count);
    let (address, _ledger) = counting_upstream::start(Duration::ZERO).await;
    let gateway = plan(address, "").start();
    let address = gateway.address;
    goodput(address, "warm").await;
    let mut crowd = JoinSet::new();
    // Whoever else uses the machine may slow one measurement: then it is made again.
    let mut best: f64 = 0.0;
    for attempt in 0..8 {
        let before = goodput(address, &format!("before-{attempt}")).await;
        for number in 0..count {
            crowd.spawn(dawdle(address, number));
        }
        sleep(Duration::from_millis(300)).await;
        let during = goodput(address, &format!("during-{attempt}")).await;
        let memory = gateway.resident();
        assert!(memory < MOST_MEMORY, "{} MiB", memory >> 20);
        eprintln!("{count} dawdle: {before:.0}/s before, {during:.0}/s, {} MiB", memory >> 20);
        crowd.abort_all();
        while crowd.join_next().await.is_some() {}
        best = best.max(during / before);
        if best >= share {
            break;
        }
        sleep(Duration::from_millis(500)).await;
    }
    assert!(best >= share, "only {best:.2} of the goodput is left");
    gateway.assert_well();
}

/// Fewer, loudly, where this process may not open so many files.
fn allowed(count: usize) -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    let most = soft.saturating_sub(200);
    if most < count {
        eprintln!("SKIPPED: only {most} of {count} connections; raise `ulimit -n`");
    }
    count.min(most)
}

/// Some say nothing, some a byte of a head now and then, some a byte of a body.
async fn dawdle(address: SocketAddr, number: usize) {
    let request = client::keyed("/pay", &format!("slow-{number}"), &"x".repeat(1000));
    let begun = match number % 3 {
        0 => 0,
        1 => 10,
        _ => request.len() - 1000,
    };
    let Ok(mut stream) = TcpStream::connect(address).await else { return };
    let (now, later) = request.split_at(begun);
    let _ = stream.write_all(now).await;
    for byte in later {
        sleep(Duration::from_millis(500 + (number % 500) as u64)).await;
        if !number.is_multiple_of(3) && stream.write_all(&[*byte]).await.is_err() {
            return;
        }
    }
}

/// Answers per second to eight clients, half of them to requests with a key.
async fn goodput(address: SocketAddr, name: &str) -> f64 {
    let (started, mut clients) = (Instant::now(), JoinSet::new());
    for client in 0..8 {
        let name = name.to_owned();
        clients.spawn(async move {
            let mut connection = Connection::open(address).await.unwrap();
            let mut count = 0;
            while started.elapsed() < MEASURED {
                let request = match client % 2 {
                    0 => client::get("/x"),
                    _ => client::keyed("/pay", &format!("{name}-{client}-{count}"), "{}"),
                };
                assert_eq!(connection.ask(&request).await.unwrap().status, 200);
                count += 1;
            }
            count
        });
    }
    let total: usize = clients.join_all().await.into_iter().sum();
    total as f64 / started.elapsed().as_secs_f64()
}
