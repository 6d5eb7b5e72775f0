//! Whether what was installed works: it serves, takes a write, and answers the retry from its record.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::Process;

use super::files::output;

/// A service in Python that counts what it executes.
const SERVICE: &str = "crates/onceward-gateway/tests/gateway_support/upstream.py";

/// Starts an installed command in front of a service, sends a write and its retry, and ends both.
///
/// The command gets addresses from the environment: they win over flags' defaults and over a file.
pub(super) fn first_replay(root: &Path, serve: &mut Command) -> Result<(), String> {
    let service = Process::start(Command::new("python3").arg(root.join(SERVICE)).env("PORT", "0"))?;
    let port = service.stdout.next_line()?.ok_or_else(|| service.state())?;
    let service_url = format!("http://127.0.0.1:{port}");
    serve.env("ONCEWARD_LISTEN", "127.0.0.1:0").env("ONCEWARD_UPSTREAM", &service_url);
    let gateway = Process::start(serve)?;
    let url = format!("http://{}/charges", gateway.stderr.wait_for_address()?);
    let [first, second] = [curl(&write(&url))?, curl(&write(&url))?];
    let count = curl(&[format!("{service_url}/count")])?;
    expect_replay(&first, &second, &count)
        .map_err(|what| format!("{what}:\n{first}\n{second}\n{count}\n{}", gateway.state()))
}

fn write(url: &str) -> Vec<String> {
    let headers =
        ["X-API-Key: acme-key", "Idempotency-Key: order-7", "Content-Type: application/json"];
    let headers = headers.into_iter().flat_map(|line| ["--header", line]);
    let words = headers.chain(["--data", r#"{"cents": 500}"#, url]);
    words.map(str::to_owned).collect()
}

/// The head of the answer, and its body.
fn curl(arguments: &[String]) -> Result<String, String> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--include", "--noproxy", "*", "--max-time", "60"]);
    output(curl.args(arguments))
}

fn expect_replay(first: &str, second: &str, count: &str) -> Result<(), &'static str> {
    const MARK: &str = "idempotent-replayed: true";
    let body = |answer: &str| answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    let counted: Option<Value> = body(count).and_then(|text| serde_json::from_str(&text).ok());
    let runs = counted.and_then(|counted| counted["total"].as_u64());
    if !first.starts_with("HTTP/1.1 201") || first.contains(MARK) {
        Err("the first write was not answered as the service answers it")
    } else if !second.contains(MARK) || body(first) != body(second) {
        Err("the retry did not get the stored answer")
    } else if runs != Some(1) {
        Err("the service did not run the write exactly once")
    } else {
        Ok(())
    }
}

/// How often it is started; the median counts.
const STARTS: usize = 11;

/// From the start of the process until it listens, each time with a store that does not exist yet.
pub(super) fn cold_start(binary: &Path) -> Result<Duration, String> {
    let mut times = Vec::new();
    for _ in 0..STARTS {
        times.push(started(binary)?);
    }
    times.sort();
    Ok(times[STARTS / 2])
}

fn started(binary: &Path) -> Result<Duration, String> {
    let trouble = |error: std::io::Error| error.to_string();
    let home = tempfile::tempdir().map_err(trouble)?;
    let mut serve = Command::new(binary);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9"]);
    serve.args(["--scope", "secret:x-api-key", "--authorize", "none"]).current_dir(home.path());
    let before = Instant::now();
    let mut child = serve.stderr(Stdio::piped()).spawn().map_err(trouble)?;
    let (mut said, mut elapsed) = (String::new(), None);
    for line in child.stderr.take().into_iter().flat_map(|stream| BufReader::new(stream).lines()) {
        let line = line.map_err(trouble)?;
        if line.contains("listening on ") {
            elapsed = Some(before.elapsed());
            break;
        }
        said = line;
    }
    let _ = child.kill();
    child.wait().map_err(trouble)?;
    elapsed.ok_or(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "HTTP/1.1 201 Created\r\nonceward-operation: a\r\n\r\nreceipt 1";
    const SECOND: &str = "HTTP/1.1 201 Created\r\nidempotent-replayed: true\r\n\r\nreceipt 1";
    const ONCE: &str = "HTTP/1.1 200 OK\r\n\r\n{\"total\": 1}";

    #[test]
    fn a_replay_has_the_mark_and_the_bytes_and_runs_nothing() {
        assert_eq!(expect_replay(FIRST, SECOND, ONCE), Ok(()));
        assert!(expect_replay(FIRST, FIRST, ONCE).is_err());
        assert!(expect_replay(SECOND, SECOND, ONCE).is_err());
        assert!(expect_replay(FIRST, &SECOND.replace("t 1", "t 2"), ONCE).is_err());
        assert!(expect_replay(FIRST, SECOND, &ONCE.replace('1', "2")).is_err());
    }
}
