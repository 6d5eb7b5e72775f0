//! Who is asked: the processes of a run, each on a port of its own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use clap::ValueEnum;
use testbed::{Process, free_address};

use crate::{
    Failure,
    gateway::{
        client::Question,
        exchange::{self, Kind},
        install,
    },
};

/// Where the service is.
pub(crate) const PATH: &str = "/v1/charges";

/// As they are called in a report.
pub(crate) const BARE_PROXY: &str = "bare hyper proxy";
pub(crate) const NGINX_PROXY: &str = "nginx proxy";
pub(crate) const NGINX_FILE: &str = "nginx, a file";
pub(crate) const ONCEWARD: &str = "**onceward serve**";
pub(crate) const ON_SQLITE: &str = "onceward on SQLite";
pub(crate) const ON_POSTGRES: &str = "onceward on PostgreSQL";
pub(crate) const ON_REDIS_ALWAYS: &str = "onceward on Redis, always";
pub(crate) const ON_REDIS_EVERYSEC: &str = "onceward on Redis, everysec";
pub(crate) const UNCOUNTED: &str = "onceward, nothing counted";
pub(crate) const LOGGED: &str = "onceward, requests logged";
pub(crate) const TRACED: &str = "onceward, traced";

/// Who can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// The upstream itself, without a proxy.
    Upstream,
    /// The least that a proxy with hyper can do.
    Hyper,
    /// nginx, as a proxy and with a file.
    Nginx,
    /// `onceward serve`.
    Onceward,
    /// `onceward serve` without metrics, with a line for each request, and with traces.
    Telemetry,
    /// The ingress of Restate.
    Restate,
    /// express-idempotency with Redis.
    Express,
}

impl Name {
    /// Who is measured if nobody is named: telemetry has a run of its own.
    pub(crate) const DEFAULT: [Self; 6] =
        [Self::Upstream, Self::Hyper, Self::Nginx, Self::Onceward, Self::Restate, Self::Express];
}

/// One who is asked.
pub(crate) struct Subject {
    pub(crate) name: Name,
    /// As it is called in a report.
    pub(crate) words: &'static str,
    pub(crate) version: Option<String>,
    pub(crate) address: SocketAddr,
    pub(crate) path: &'static str,
    /// What is asked of it.
    pub(crate) kinds: &'static [Kind],
    /// Who knows how often the service ran; nobody where none does.
    pub(crate) counter: Option<SocketAddr>,
    /// What counts as its own time.
    pub(crate) processes: Vec<Process>,
    /// What it needs besides.
    pub(crate) beside: Vec<Process>,
}

impl Subject {
    pub(crate) fn question(&self, kind: Kind) -> Question {
        Question { kind, address: self.address, path: self.path }
    }

    /// User and system time of its processes; `None` where the system does not tell.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        self.processes.iter().map(Process::cpu_time).sum()
    }

    /// What went wrong, with the state of its processes.
    pub(crate) fn blamed(&self, kind: Kind, wrong: &Failure) -> Failure {
        let states: Vec<_> =
            self.processes.iter().chain(&self.beside).map(Process::state).collect();
        format!("{}, {}: {wrong}\n{}", self.words, kind.words(), states.join("\n")).into()
    }

    /// User and system time of these and of what it needs besides.
    pub(crate) fn cpu_with_beside(&self) -> Option<Duration> {
        self.processes.iter().chain(&self.beside).map(Process::cpu_time).sum()
    }
}

/// The service behind the proxies, without any.
pub(crate) fn upstream(directory: &Path) -> Result<Subject, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let process = Process::start(command.arg("gateway-upstream").current_dir(directory))?;
    let address = process.stdout.wait_for_address()?;
    Ok(Subject {
        name: Name::Upstream,
        words: "upstream, no proxy",
        version: None,
        address,
        path: PATH,
        kinds: &[Kind::Get, Kind::Post],
        counter: Some(address),
        processes: vec![process],
        beside: Vec::new(),
    })
}

/// A bare proxy with hyper.
pub(crate) fn hyper(directory: &Path, upstream: SocketAddr) -> Result<Subject, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["gateway-bare", &upstream.to_string()]);
    let process = Process::start(command.current_dir(directory))?;
    let address = process.stdout.wait_for_address()?;
    Ok(Subject {
        name: Name::Hyper,
        words: BARE_PROXY,
        version: None,
        address,
        path: PATH,
        kinds: &[Kind::Get, Kind::Post],
        counter: Some(upstream),
        processes: vec![process],
        beside: Vec::new(),
    })
}

/// The gateway, with its records in a new file.
pub(crate) fn onceward(
    directory: &Path,
    program: &Path,
    upstream: SocketAddr,
) -> Result<Subject, Failure> {
    let how = Gateway { name: Name::Onceward, words: ONCEWARD, file: "onceward" };
    how.start(directory, upstream, Command::new(program).arg("serve"))
}

/// The gateway, with its records in a database.
pub(crate) fn onceward_on_postgres(
    directory: &Path,
    program: &Path,
    upstream: SocketAddr,
    url: &str,
) -> Result<Subject, Failure> {
    let how = Gateway { name: Name::Onceward, words: ON_POSTGRES, file: "on-postgres" };
    how.start_on(url, directory, upstream, Command::new(program).arg("serve"))
}

/// The gateway, with its records in a Redis: it may lose some, and the configuration says that this is acceptable.
pub(crate) fn onceward_on_redis(
    directory: &Path,
    program: &Path,
    upstream: SocketAddr,
    words: &'static str,
    url: &str,
) -> Result<Subject, Failure> {
    let how = Gateway { name: Name::Onceward, words, file: "on-redis" };
    let mut command = Command::new(program);
    command.arg("serve").env("ONCEWARD_GUARANTEE", "relaxed");
    how.start_on(url, directory, upstream, &mut command)
}

/// The gateway with less and with more telemetry than it has by itself.
pub(crate) fn telemetry(
    directory: &Path,
    program: &Path,
    upstream: SocketAddr,
) -> Result<[Subject; 3], Failure> {
    let how = |words, file| Gateway { name: Name::Telemetry, words, file };
    let mut command = Command::new(program);
    command.args(["serve", "--no-metrics"]);
    let uncounted = how(UNCOUNTED, "uncounted").start(directory, upstream, &mut command)?;
    let mut command = Command::new(program);
    command.arg("serve").env("ONCEWARD_LOG", "warn,onceward::request=info");
    let logged = how(LOGGED, "logged").start(directory, upstream, &mut command)?;
    // Whoever takes anything takes spans, too.
    let mut sink = Command::new(std::env::current_exe()?);
    let sink = Process::start(sink.arg("gateway-upstream").current_dir(directory))?;
    let mut command = Command::new(program);
    let sink_url = format!("http://{}", sink.stdout.wait_for_address()?);
    command.arg("serve").env("OTEL_EXPORTER_OTLP_ENDPOINT", sink_url);
    let mut traced = how(TRACED, "traced").start(directory, upstream, &mut command)?;
    traced.beside.push(sink);
    Ok([uncounted, logged, traced])
}

/// How a gateway is called in the report, and where its files are.
struct Gateway {
    name: Name,
    words: &'static str,
    file: &'static str,
}

impl Gateway {
    /// With its records in a new file.
    fn start(
        self,
        directory: &Path,
        upstream: SocketAddr,
        command: &mut Command,
    ) -> Result<Subject, Failure> {
        let store = format!("sqlite://{}.db", self.file);
        self.start_on(&store, directory, upstream, command)
    }

    fn start_on(
        self,
        store: &str,
        directory: &Path,
        upstream: SocketAddr,
        command: &mut Command,
    ) -> Result<Subject, Failure> {
        let said: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
        for (name, _) in std::env::vars_os().filter(|(name, _)| !said.contains(name)) {
            let is_for_gateway =
                |name: &str| name.starts_with("ONCEWARD_") || name.starts_with("OTEL_");
            if name.to_str().is_some_and(is_for_gateway) {
                command.env_remove(name);
            }
        }
        command
            .env("TOKIO_WORKER_THREADS", "1")
            .args(["--listen", "127.0.0.1:0"])
            .args(["--store", store])
            .args(["--scope", "secret:x-api-key", "--authorize", "none"])
            .args(["--upstream", &format!("http://{upstream}")]);
        let process = Process::start(command.current_dir(directory))?;
        let address = process.stderr.wait_for_address()?;
        Ok(self.subject(upstream, address, process))
    }

    fn subject(self, upstream: SocketAddr, address: SocketAddr, process: Process) -> Subject {
        Subject {
            name: self.name,
            words: self.words,
            version: None,
            address,
            path: PATH,
            kinds: &[Kind::Get, Kind::Post, Kind::First, Kind::Replay],
            counter: Some(upstream),
            processes: vec![process],
            beside: Vec::new(),
        }
    }
}

/// The program of the gateway: what was said, or the one beside this program.
pub(crate) fn gateway_program(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let program = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe()?.with_file_name("onceward"),
    };
    match fs::canonicalize(&program) {
        Ok(program) => Ok(program),
        Err(error) => Err(format!(
            "there is no gateway at {} ({error}); build it with `cargo build --release -p \
             onceward-gateway`, or say where it is with --gateway",
            program.display()
        )
        .into()),
    }
}

/// nginx twice: as a proxy, and with the answer in a file.
pub(crate) fn nginx(directory: &Path, upstream: SocketAddr) -> Result<[Subject; 2], Failure> {
    let version = install::from_distribution("nginx", "nginx-light", "-v")?;
    let proxy = nginx_process("nginx-proxy", directory, |address| {
        format!(
            "upstream behind {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://behind; \
             proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}"
        )
    });
    let (proxy_process, proxy_address) = proxy?;
    let file = nginx_process("nginx-file", directory, |address| {
        format!(
            "sendfile on; tcp_nopush on; open_file_cache max=100 inactive=600s;\n\
             default_type application/json; server {{ listen {address}; root files; }}"
        )
    });
    let (file_process, file_address) = file?;
    let subject = |words, address, process| Subject {
        name: Name::Nginx,
        words,
        version: Some(version.clone()),
        address,
        path: PATH,
        kinds: &[Kind::Get],
        counter: None,
        processes: vec![process],
        beside: Vec::new(),
    };
    let file = subject(NGINX_FILE, file_address, file_process);
    let proxy = subject(NGINX_PROXY, proxy_address, proxy_process);
    Ok([Subject { kinds: &[Kind::Get, Kind::Post], counter: Some(upstream), ..proxy }, file])
}

fn nginx_process(
    name: &'static str,
    directory: &Path,
    servers: impl Fn(SocketAddr) -> String,
) -> Result<(Process, SocketAddr), Failure> {
    let home = directory.join(name);
    let file = home.join("files").join(PATH.trim_start_matches('/'));
    fs::create_dir_all(file.parent().unwrap_or(&home))?;
    fs::write(&file, exchange::answer())?;
    let address = free_address()?;
    // Its workers would be nobody otherwise, and nobody may not read this directory.
    let user = if rustix::process::geteuid().is_root() { "user root root;\n" } else { "" };
    let configuration = format!(
        "{user}daemon off; worker_processes 1; pid nginx.pid; error_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path body; \
         proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; \
         scgi_temp_path scgi;\n{} }}\n",
        servers(address)
    );
    fs::write(home.join("nginx.conf"), configuration)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&home).args(["-c", "nginx.conf", "-e", "stderr"]);
    let process = Process::start(command.current_dir(&home))?;
    process.wait_until_it_accepts(address)?;
    Ok((process, address))
}
