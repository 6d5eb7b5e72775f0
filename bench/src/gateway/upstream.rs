//! The service behind the proxies: as little as possible, and it counts.

use std::{
    io::Write as _,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use clap::Args;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    Failure,
    gateway::exchange::{self, Extent},
};

/// Answers every request with the same document until it is killed.
#[derive(Args)]
pub(crate) struct UpstreamArguments {}

/// What the child process does.
pub(crate) fn be_the_upstream(_: &UpstreamArguments) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let listener = listen().await?;
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            exchange::ANSWER_BYTES
        );
        let answer: Arc<[u8]> = [head.into_bytes(), exchange::answer()].concat().into();
        let count = Arc::new(AtomicU64::new(0));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (answer, count) = (answer.clone(), count.clone());
            tokio::spawn(async move {
                // A connection that breaks is seen by whoever waits for its answer.
                let _ = serve(stream, &answer, &count).await;
            });
        }
    })
}

/// One thread, like every other subject.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Takes a free port and says so, in a line that the parent waits for.
#[expect(clippy::print_stdout, reason = "the parent waits for this line")]
pub(crate) async fn listen() -> Result<TcpListener, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    Ok(listener)
}

async fn serve(mut stream: TcpStream, answer: &[u8], count: &AtomicU64) -> std::io::Result<()> {
    let mut received = Vec::with_capacity(8 << 10);
    loop {
        let whole = loop {
            match Extent::of(&received) {
                Some(extent) if received.len() >= extent.whole => break extent.whole,
                _ => {}
            }
            if stream.read_buf(&mut received).await? == 0 {
                return Ok(());
            }
        };
        if received.starts_with(b"GET /count ") {
            let count = count.load(Ordering::Relaxed).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", count.len());
            stream.write_all(&[head.as_bytes(), count.as_bytes()].concat()).await?;
        } else {
            count.fetch_add(1, Ordering::Relaxed);
            stream.write_all(answer).await?;
        }
        received.drain(..whole);
    }
}
