//! The peers: how each is installed and started with the same small service.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testbed::{Process, TEST_TIMEOUT, free_address};

use super::install::{self, Installed};

/// Where the peers are installed and run.
pub(crate) struct Directories<'a> {
    /// The root of the repository.
    pub(crate) root: &'a Path,
    /// What is installed stays here.
    pub(crate) kept: &'a Path,
    /// The program.
    pub(crate) onceward: &'a Path,
}

/// A peer that serves; it ends with this value.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) count_url: String,
    /// Lines that say who calls, of two callers; none if it does not know callers.
    pub(crate) credentials: Vec<String>,
    _processes: Vec<Process>,
}

pub(crate) struct Peer {
    /// For `--only`.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// How it is set up, in full sentences.
    pub(crate) about: &'static str,
    /// Its source, below `xtask/compare`.
    pub(crate) service: &'static str,
    pub(crate) install: fn(&Directories<'_>) -> Result<Installed, String>,
    pub(crate) start: fn(&Directories<'_>, &Installed, &Path) -> Result<Running, String>,
}

pub(crate) const PEERS: [Peer; 8] = [
    Peer {
        name: "plain",
        title: "no protection",
        about: "The service alone, for reference. It ignores the key.",
        service: "plain/service.mjs",
        install: |directories| install::node(directories, "plain"),
        start: plain,
    },
    Peer {
        name: "onceward",
        title: "Onceward gateway",
        about: "`onceward serve --scope secret:x-api-key --authorize none` before the service above, \
                with the embedded store on disk.",
        service: "plain/service.mjs",
        install: |directories| with_onceward(directories, install::node(directories, "plain")?),
        start: onceward,
    },
    Peer {
        name: "express-idempotency",
        title: "express-idempotency",
        about: "Middleware for Express with its adapter for Redis and the default intent validator. \
                Authentication comes before it.",
        service: "express-idempotency/service.mjs",
        install: |directories| with_redis(install::npm(directories, "express-idempotency")?),
        start: express,
    },
    Peer {
        name: "restate",
        title: "Restate ingress",
        about: "The service is a Restate handler, called through the ingress at `/charges/create`. The \
                charge is a step (`ctx.run`). The ingress knows no callers, so the probe is given no \
                credentials. Handlers return a value, so there is no status 201 and no header of its own.",
        service: "restate/service.mjs",
        install: |directories| install::npm(directories, "restate"),
        start: restate,
    },
    Peer {
        name: "asgi-idempotency-header",
        title: "asgi-idempotency-header",
        about: "Middleware in FastAPI with its backend for Redis and default options. Authentication \
                comes before it.",
        service: "asgi-idempotency-header/service.py",
        install: |directories| with_redis(install::pip(directories, "asgi-idempotency-header")?),
        start: asgi,
    },
    Peer {
        name: "django-idempotency-key",
        title: "django-idempotency-key",
        about: "Middleware in Django with its storage and lock in memory; `CONFLICT_STATUS_CODE` is `None`, \
                so that retries get the first status. Served by waitress with 16 threads. It tells callers \
                by `Authorization`, so the credentials are two of these. Authentication comes before it. A \
                response of Django has one line for each header, so the two links are in one.",
        service: "django-idempotency-key/service.py",
        install: |directories| install::pip(directories, "django-idempotency-key"),
        start: django,
    },
    Peer {
        name: "axum-idempotent",
        title: "axum-idempotent",
        about: "Layer with `use_idempotency_key_header` and a required key, in a session of `ruts` with \
                its store in memory; `replay_header_name` is `Idempotent-Replayed`. Callers are sessions: \
                the credentials are two session cookies.",
        service: "axum-idempotent/src/main.rs",
        install: |directories| {
            let shown = ["axum-idempotent", "ruts", "axum"];
            install::cargo(directories, "axum-idempotent", &shown)
        },
        start: axum,
    },
    Peer {
        name: "fiber",
        title: "Fiber",
        about: "Its idempotency middleware with store and lock in memory. `KeyHeader` is \
                `Idempotency-Key`; `KeyHeaderValidate` takes up to 255 characters, because the default \
                takes only 36. Authentication comes before it.",
        service: "fiber/main.go",
        install: |directories| install::go(directories, "fiber", &["github.com/gofiber/fiber/v3"]),
        start: fiber,
    },
];

const API_KEYS: [&str; 2] = ["X-Api-Key: acme", "X-Api-Key: umbrella"];

const BEARERS: [&str; 2] = ["Authorization: Bearer acme", "Authorization: Bearer umbrella"];

/// At `/charges` and `/count`, with API keys.
fn running(address: SocketAddr, count: SocketAddr, processes: Vec<Process>) -> Running {
    Running {
        url: format!("http://{address}/charges"),
        count_url: format!("http://{count}/count"),
        credentials: API_KEYS.map(String::from).to_vec(),
        _processes: processes,
    }
}

/// Starts a service on a port of its own.
fn serve(command: &mut Command) -> Result<(Process, SocketAddr), String> {
    let address = free_address()?;
    command.env("PORT", address.port().to_string());
    let process = Process::start(command)?;
    process.wait_until_it_accepts(address)?;
    Ok((process, address))
}

fn script(installed: &Installed) -> Command {
    let mut command = Command::new("node");
    command.arg("service.mjs").current_dir(&installed.directory).env("NODE_ENV", "production");
    command
}

fn python(installed: &Installed) -> Command {
    let mut command = Command::new(installed.directory.join("venv/bin/python"));
    command.arg("service.py").current_dir(&installed.directory);
    command
}

fn plain(_: &Directories<'_>, installed: &Installed, _: &Path) -> Result<Running, String> {
    let (service, address) = serve(&mut script(installed))?;
    Ok(running(address, address, vec![service]))
}

fn onceward(
    directories: &Directories<'_>,
    installed: &Installed,
    home: &Path,
) -> Result<Running, String> {
    let (service, upstream) = serve(&mut script(installed))?;
    let address = free_address()?;
    let mut command = Command::new(directories.onceward);
    command
        .args(["serve", "--scope", "secret:x-api-key", "--authorize", "none"])
        .args(["--upstream", &format!("http://{upstream}"), "--listen", &address.to_string()])
        .current_dir(home);
    let gateway = Process::start(&mut command)?;
    gateway.wait_until_it_accepts(address)?;
    Ok(running(address, upstream, vec![gateway, service]))
}

fn express(_: &Directories<'_>, installed: &Installed, home: &Path) -> Result<Running, String> {
    let (redis, url) = redis(home)?;
    let (service, address) = serve(script(installed).env("REDIS_URL", url))?;
    Ok(running(address, address, vec![service, redis]))
}

fn asgi(_: &Directories<'_>, installed: &Installed, home: &Path) -> Result<Running, String> {
    let (redis, url) = redis(home)?;
    let (service, address) = serve(python(installed).env("REDIS_URL", url))?;
    Ok(running(address, address, vec![service, redis]))
}

fn django(_: &Directories<'_>, installed: &Installed, _: &Path) -> Result<Running, String> {
    let (service, address) = serve(&mut python(installed))?;
    let credentials = BEARERS.map(String::from).to_vec();
    Ok(Running { credentials, ..running(address, address, vec![service]) })
}

fn axum(_: &Directories<'_>, installed: &Installed, _: &Path) -> Result<Running, String> {
    let program = installed.directory.join("target/debug/compare-axum-idempotent");
    let (service, address) = serve(&mut Command::new(program))?;
    let session = || {
        let answer = post(address, "/sessions", "")?;
        session_in(&answer).ok_or(format!("no session was given: {answer}"))
    };
    let credentials = vec![session()?, session()?];
    Ok(Running { credentials, ..running(address, address, vec![service]) })
}

/// The cookie of a new session, as a line of a request.
fn session_in(answer: &str) -> Option<String> {
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "))?;
    Some(format!("Cookie: {}", line.split(';').next()?.trim()))
}

fn fiber(_: &Directories<'_>, installed: &Installed, _: &Path) -> Result<Running, String> {
    let mut command = Command::new(installed.directory.join("service"));
    let (service, address) = serve(&mut command)?;
    Ok(running(address, address, vec![service]))
}

fn restate(_: &Directories<'_>, installed: &Installed, home: &Path) -> Result<Running, String> {
    let count = free_address()?;
    let mut command = script(installed);
    command.env("COUNT_PORT", count.port().to_string()).env("RESTATE_LOGGING", "ERROR");
    let (service, address) = serve(&mut command)?;
    let [ingress, admin, fabric] = [free_address()?, free_address()?, free_address()?];
    let mut command = Command::new(restate_server(&installed.directory)?);
    command
        .env("RESTATE_INGRESS__BIND_PORT", ingress.port().to_string())
        .env("RESTATE_ADMIN__BIND_PORT", admin.port().to_string())
        .env("RESTATE_DISABLE_TELEMETRY", "true")
        .env("DO_NOT_TRACK", "1")
        .args(["--no-logo", "--listen-mode", "tcp", "--bind-ip", "127.0.0.1", "--bind-port"])
        .arg(fabric.port().to_string())
        .args(["--log-filter", "error", "--base-dir"])
        .arg(home.join("data"));
    let server = Process::start(&mut command)?;
    server.wait_until_it_accepts(admin)?;
    register(admin, address)?;
    server.wait_until_it_accepts(ingress)?;
    Ok(Running {
        url: format!("http://{ingress}/charges/create"),
        credentials: Vec::new(),
        ..running(ingress, count, vec![server, service])
    })
}

/// The program itself; the script of the package would start it as a child of its own.
fn restate_server(directory: &Path) -> Result<std::path::PathBuf, String> {
    let scope = directory.join("node_modules/@restatedev");
    let packages = scope.read_dir().map_err(|error| format!("it is not installed: {error}"))?;
    let programs = packages.filter_map(|package| {
        let package = package.ok()?;
        let is_program = package.file_name().to_string_lossy().starts_with("restate-server-");
        is_program.then(|| package.path().join("bin/restate-server"))
    });
    let mut programs = programs.filter(|program| program.is_file());
    programs.next().ok_or("there is no restate-server for this system".to_owned())
}

/// Tells Restate about the service; at first it may not be ready to hear it.
fn register(admin: SocketAddr, service: SocketAddr) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let answer = post(admin, "/deployments", &format!(r#"{{"uri": "http://{service}"}}"#));
        match answer {
            Ok(answer) if answer.starts_with("HTTP/1.1 201") => return Ok(()),
            answer if started.elapsed() > TEST_TIMEOUT => {
                return Err(format!("Restate does not take the service: {answer:?}"));
            }
            _ => sleep(Duration::from_millis(200)),
        }
    }
}

/// The answer to a request, from its status line on.
pub(crate) fn post(to: SocketAddr, path: &str, document: &str) -> Result<String, String> {
    let unanswered = |error| format!("{path} did not answer: {error}");
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{document}",
        document.len()
    );
    let mut stream = TcpStream::connect(to).map_err(unanswered)?;
    stream.set_read_timeout(Some(TEST_TIMEOUT)).map_err(unanswered)?;
    stream.write_all(request.as_bytes()).map_err(unanswered)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(unanswered)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn with_redis(mut installed: Installed) -> Result<Installed, String> {
    let redis = install::from_distribution("redis-server", "redis-server", "--version")?;
    installed.versions.push(redis);
    Ok(installed)
}

fn with_onceward(
    directories: &Directories<'_>,
    mut installed: Installed,
) -> Result<Installed, String> {
    let version = super::said(&directories.onceward.to_string_lossy(), &["--version"]);
    installed.versions.insert(0, version.ok_or("onceward does not say its version")?);
    Ok(installed)
}

/// A Redis that keeps nothing, and its URL.
fn redis(home: &Path) -> Result<(Process, String), String> {
    let address = free_address()?;
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--daemonize", "no", "--dir"])
        .arg(home);
    let redis = Process::start(&mut command)?;
    redis.wait_until_it_accepts(address)?;
    Ok((redis, format!("redis://{address}")))
}

#[cfg(test)]
mod tests {
    use super::session_in;

    #[test]
    fn a_session_is_sent_as_it_was_given() {
        let answer = "HTTP/1.1 201 Created\r\nset-cookie: session=ab%2Bc; Path=/; HttpOnly\r\n\r\n";
        assert_eq!(session_in(answer).as_deref(), Some("Cookie: session=ab%2Bc"));
        assert_eq!(session_in("HTTP/1.1 500 No\r\n\r\n"), None);
    }
}
