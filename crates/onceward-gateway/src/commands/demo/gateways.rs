//! The two gateways: children of this process, from this very program, on one store.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use fastrand::Rng;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    task::JoinHandle,
    time::timeout,
};

use super::{BoxError, port::Port, records::DemoRecords};

pub(super) const NAMES: [&str; 2] = ["A", "B"];
pub(super) const OPERATION: &str = "charge.create";
const CONFIGURATION: &str = "onceward.toml";
const START: Duration = Duration::from_secs(15);
/// How long it may take to stop; it has a patience of its own, which is shorter.
const STOP: Duration = Duration::from_secs(45);
const MAX_KEPT_LINES: usize = 20;

/// Where clients may go. A gateway that comes back may have moved.
#[derive(Clone)]
pub(super) struct Doors(Arc<RwLock<Vec<SocketAddr>>>);

impl Doors {
    pub(super) fn new(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(addresses.into_iter().collect())))
    }

    /// Any of them: a client does not know which one is in good health.
    pub(super) fn any(&self, random: &mut Rng) -> SocketAddr {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all[random.usize(..all.len())]
    }

    fn moved(&self, number: usize, to: SocketAddr) {
        self.0.write().unwrap_or_else(PoisonError::into_inner)[number] = to;
    }
}

pub(super) struct Gateways {
    pub(super) doors: Doors,
    pub(super) records: DemoRecords,
    both: [Gateway; 2],
    directory: PathBuf,
}

impl Gateways {
    pub(super) async fn start(
        directory: &Path,
        upstream: SocketAddr,
        records: DemoRecords,
    ) -> Result<Self, BoxError> {
        let file = directory.join(CONFIGURATION);
        fs::write(&file, configuration(upstream, &records))
            .map_err(|error| format!("{} cannot be written: {error}", file.display()))?;
        let both = tokio::join!(Gateway::start(NAMES[0], &file), Gateway::start(NAMES[1], &file));
        let both = match both {
            (Ok(one), Ok(other)) => [one, other],
            (Ok(mut only), Err(error)) | (Err(error), Ok(mut only)) => {
                // Before its directory is removed.
                let _ = only.child.kill().await;
                return Err(error);
            }
            (Err(error), Err(_)) => return Err(error),
        };
        let doors = Doors::new(both.iter().map(|gateway| gateway.address));
        Ok(Self { doors, records, both, directory: directory.to_owned() })
    }

    pub(super) fn configuration(&self) -> PathBuf {
        self.directory.join(CONFIGURATION)
    }

    pub(super) fn address(&self, number: usize) -> SocketAddr {
        self.both[number].address
    }

    pub(super) fn process(&self, number: usize) -> Option<u32> {
        self.both[number].child.id()
    }

    /// `kill -9`: it ends where it stands.
    pub(super) async fn kill(&mut self, number: usize) -> Result<(), BoxError> {
        let Gateway { name, child, .. } = &mut self.both[number];
        child
            .kill()
            .await
            .map_err(|error| format!("gateway {name} cannot be killed: {error}").into())
    }

    /// Starts one again that was killed, on the same port if it can be had.
    pub(super) async fn start_again(&mut self, number: usize) -> Result<(), BoxError> {
        let file = self.configuration();
        self.both[number].start_again(&file).await?;
        self.doors.moved(number, self.both[number].address);
        Ok(())
    }

    /// A gateway that has ended by itself.
    pub(super) fn fallen(&mut self) -> Option<&'static str> {
        let has_ended = |gateway: &mut Gateway| {
            (!matches!(gateway.child.try_wait(), Ok(None))).then_some(gateway.name)
        };
        self.both.iter_mut().find_map(has_ended)
    }

    /// Lets both settle what is under way and end; says which of them did not end well.
    pub(super) async fn stop(self) -> Vec<String> {
        let [one, other] = self.both;
        let (one, other) = tokio::join!(one.stop(), other.stop());
        one.into_iter().chain(other).collect()
    }
}

struct Gateway {
    name: &'static str,
    port: Port,
    address: SocketAddr,
    /// Its standard input is held open by its handle: a gateway ends when that is closed, which
    /// happens also if this process is killed.
    child: Child,
    output: JoinHandle<Vec<String>>,
}

impl Gateway {
    async fn start(name: &'static str, file: &Path) -> Result<Self, BoxError> {
        let port = Port::free().map_err(|error| format!("no port can be had: {error}"))?;
        let (child, address, output) = launch(name, file, port.address).await?;
        Ok(Self { name, port, address, child, output })
    }

    async fn start_again(&mut self, file: &Path) -> Result<(), BoxError> {
        (self.child, self.address, self.output) =
            launch(self.name, file, self.port.address).await?;
        Ok(())
    }

    /// `Some`: it did not end as it should, and this is what it wrote.
    async fn stop(mut self) -> Option<String> {
        drop(self.child.stdin.take());
        let ended = timeout(STOP, self.child.wait()).await;
        let ended_well = matches!(ended, Ok(Ok(status)) if status.success());
        if ended.is_err() {
            let _ = self.child.kill().await;
        }
        let output = self.output.await.unwrap_or_default();
        let is_settled = !output.iter().any(|line| line.contains("not settled in time"));
        let complaint =
            || format!("gateway {} did not stop well: {}", self.name, output.join("; "));
        (!ended_well || !is_settled).then(complaint)
    }
}

type Launched = (Child, SocketAddr, JoinHandle<Vec<String>>);

/// Starts a gateway there, or on any port if another program has taken that one.
async fn launch(
    name: &'static str,
    file: &Path,
    address: SocketAddr,
) -> Result<Launched, BoxError> {
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut reason = String::new();
    for listen in [address, anywhere] {
        let mut child = command(file, listen)
            .and_then(|mut command| command.spawn())
            .map_err(|error| format!("gateway {name} cannot be started: {error}"))?;
        let Some(stderr) = child.stderr.take() else { continue };
        let mut lines = BufReader::new(stderr).lines();
        match timeout(START, until_it_listens(&mut lines)).await {
            Ok(Ok(address)) => return Ok((child, address, tokio::spawn(listen_to(lines)))),
            Ok(Err(output)) => reason = output,
            Err(_) => reason = format!("it does not listen after {START:?}"),
        }
        let _ = child.kill().await;
    }
    Err(format!("gateway {name} does not start: {reason}").into())
}

fn command(file: &Path, listen: SocketAddr) -> std::io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    // Settings that are meant for another gateway would replace those of the file.
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("ONCEWARD_") {
            command.env_remove(name);
        }
    }
    command
        .args(["serve", "--until-input-closes", "--listen", &listen.to_string(), "--config"])
        .arg(file)
        .env("ONCEWARD_LOG", "error")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Ctrl-C is for the demo, which stops its gateways when it has nothing to ask any more.
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

/// The address where it listens, or what it wrote instead.
async fn until_it_listens(lines: &mut Lines<BufReader<ChildStderr>>) -> Result<SocketAddr, String> {
    let mut output = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let listening = line.strip_prefix("listening on http://");
        let address = listening.and_then(|rest| rest.split(',').next()?.parse().ok());
        match address {
            Some(address) => return Ok(address),
            None => output.push(line),
        }
    }
    Err(output.join("; "))
}

/// Reads on, so that the gateway never waits for its reader; keeps the beginning.
async fn listen_to(mut lines: Lines<BufReader<ChildStderr>>) -> Vec<String> {
    let mut output = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        if output.len() < MAX_KEPT_LINES {
            output.push(line);
        }
    }
    output
}

fn configuration(upstream: SocketAddr, records: &DemoRecords) -> String {
    let store = records.options();
    format!(
        r#"# Both gateways of `onceward demo` have this configuration.
upstream = "http://{upstream}"
{store}

[[route]]
match = "POST /charges"
name = "{OPERATION}"
key = "required"
scope = ["secret:x-api-key"]
authorize = "none"
effect = "external"

# The upstream sends 503 only before it does anything.
not_applied = [503]
# Asked what became of a charge whose end no gateway has seen.
reconcile = "http://{upstream}/reconcile"

in_flight = "wait"
wait = "40ms"

# Short, so that the end of a killed gateway's claims can be watched; the defaults are 30s and 10m.
lease = "500ms"
max_run = "500ms"
"#
    )
}
