//! Others that answer a request with a key once: Restate, and express-idempotency with Redis.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use testbed::{Process, TEST_TIMEOUT, free_address};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    Failure,
    gateway::{
        exchange::{Kind, memo},
        install,
        subjects::{Name, PATH, Subject},
    },
};

const RESTATE: [(&str, &str); 2] =
    [("@restatedev/restate-server", "1.7.12"), ("@restatedev/restate-sdk", "1.17.2")];
const EXPRESS: [(&str, &str); 3] = [
    ("express", "5.3.0"),
    ("express-idempotency", "1.0.6"),
    ("express-idempotency-redis-adapter", "1.0.8"),
];

/// As they are called in a report.
pub(crate) const RESTATE_WORDS: &str = "Restate ingress";
pub(crate) const EXPRESS_WORDS: &str = "express-idempotency + Redis";
pub(crate) const EXPRESS_ALWAYS: &str = "express-idempotency + Redis, always";
pub(crate) const EXPRESS_EVERYSEC: &str = "express-idempotency + Redis, everysec";

/// A service behind Restate's ingress. Restate has as many threads as it likes.
pub(crate) async fn restate(directory: &Path) -> Result<Subject, Failure> {
    let packages = install::from_npm(&RESTATE)?;
    let home = home(directory, "restate")?;
    let service = node("restate-service", &packages, &home, include_str!("peers/restate.mjs"))?;
    let listening = service.stdout.wait_for_word("service on ")?;
    let counter = service.stdout.wait_for_word("count on ")?.parse()?;

    let [ingress, admin, fabric] = [free_address()?, free_address()?, free_address()?];
    let mut command = Command::new(packages.join("node_modules/.bin/restate-server"));
    command
        .env("RESTATE_INGRESS__BIND_PORT", ingress.port().to_string())
        .env("RESTATE_ADMIN__BIND_PORT", admin.port().to_string())
        .env("RESTATE_DISABLE_TELEMETRY", "true")
        .env("DO_NOT_TRACK", "1")
        .args(["--no-logo", "--listen-mode", "tcp", "--bind-ip", "127.0.0.1", "--bind-port"])
        .arg(fabric.port().to_string())
        .args(["--log-filter", "error", "--base-dir"])
        .arg(home.join("data"));
    let server = Process::start(command.current_dir(&home))?;
    server.wait_until_it_accepts(admin)?;
    register(admin, &listening).await?;
    server.wait_until_it_accepts(ingress)?;
    Ok(Subject {
        name: Name::Restate,
        words: RESTATE_WORDS,
        version: Some(versions(&RESTATE)),
        address: ingress,
        path: "/charges/create",
        kinds: &[Kind::First, Kind::Replay],
        counter: Some(counter),
        processes: vec![server],
        beside: vec![service],
    })
}

/// Tells Restate about the service; at first it may not be ready to hear it.
async fn register(admin: SocketAddr, service: &str) -> Result<(), Failure> {
    let started = Instant::now();
    loop {
        let answer = post(admin, "/deployments", &format!(r#"{{"uri": "{service}"}}"#)).await;
        match answer {
            Ok(answer) if answer.starts_with("HTTP/1.1 201") => return Ok(()),
            answer if started.elapsed() > TEST_TIMEOUT => {
                return Err(format!("Restate does not take the service: {answer:?}").into());
            }
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn post(to: SocketAddr, path: &str, document: &str) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(to).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{document}",
        document.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    let reading = stream.read_to_string(&mut answer);
    tokio::time::timeout(TEST_TIMEOUT, reading).await??;
    Ok(answer)
}

/// A service with the middleware in its own process, and a Redis that syncs every write.
pub(crate) fn express(directory: &Path) -> Result<Subject, Failure> {
    express_with(directory, "always", EXPRESS_WORDS)
}

/// The same with a Redis that syncs by another rule.
pub(crate) fn express_with(
    directory: &Path,
    sync: &str,
    words: &'static str,
) -> Result<Subject, Failure> {
    let redis_version = install::from_distribution("redis-server", "redis-server", "--version")?;
    let packages = install::from_npm(&EXPRESS)?;
    let home = home(directory, &format!("express-{sync}"))?;
    let address = free_address()?;
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string(), "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", sync, "--daemonize", "no"])
        // A server that rewrites its log during a turn would spoil that turn.
        .args(["--auto-aof-rewrite-percentage", "0"]);
    let redis = Process::start(command.current_dir(&home))?;
    redis.wait_until_it_accepts(address)?;
    let script = include_str!("peers/express.mjs");
    let script = script.replace("REDIS", &format!("redis://{address}"));
    let service = node("express-service", &packages, &home, &script)?;
    let listening = service.stdout.wait_for_word("service on http://")?.parse()?;
    let counter = service.stdout.wait_for_word("count on ")?.parse()?;
    Ok(Subject {
        name: Name::Express,
        words,
        version: Some(format!("{}, {redis_version}", versions(&EXPRESS))),
        address: listening,
        path: PATH,
        kinds: &[Kind::First, Kind::Replay],
        counter: Some(counter),
        processes: vec![service, redis],
        beside: Vec::new(),
    })
}

fn home(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let home = directory.join(name);
    fs::create_dir_all(&home)?;
    Ok(home)
}

/// Starts a script beside the packages that it needs.
fn node(
    name: &'static str,
    packages: &Path,
    home: &Path,
    script: &str,
) -> Result<Process, Failure> {
    let file = home.join(format!("{name}.mjs"));
    fs::write(&file, script.replace("MEMO", &memo()))?;
    std::os::unix::fs::symlink(packages.join("node_modules"), home.join("node_modules"))?;
    let mut command = Command::new("node");
    command.arg(&file).env("RESTATE_LOGGING", "ERROR").env("NODE_ENV", "production");
    Ok(Process::start(command.current_dir(home))?)
}

fn versions(packages: &[(&str, &str)]) -> String {
    let words: Vec<_> =
        packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
    words.join(", ")
}
