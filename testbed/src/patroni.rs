//! Three PostgreSQL servers under Patroni, which promotes one when the primary is lost.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::account;
use crate::client::Client;
use crate::home::{Home, inhabitants, signal};
use crate::installation::Installation;
use crate::port::free_port;
use crate::tool::{Trouble, wait_for};

/// A private cluster of three servers in synchronous mode, with an etcd that knows who leads.
///
/// ```no_run
/// let cluster = testbed::Patroni::start(&testbed::Installation::preferred()?)?;
/// let leader = cluster.leader();
/// cluster.kill(leader);
/// assert_ne!(cluster.leader(), leader);
/// cluster.restart(leader);
/// cluster.wait_until_synchronous();
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct Patroni {
    installation: Installation,
    program: PathBuf,
    home: Home,
    nodes: [Node; 3],
}

#[derive(Debug)]
struct Node {
    name: &'static str,
    port: u16,
    /// Where Patroni answers whether this node leads.
    answers: u16,
}

impl Patroni {
    /// Starts the cluster, and waits until it has a leader that a standby follows synchronously.
    ///
    /// # Errors
    ///
    /// When Patroni or etcd is not installed, or they do not come so far.
    pub fn start(installation: &Installation) -> Result<Self, Trouble> {
        let missing = || {
            Trouble::new(
                "Patroni or etcd is not installed; install them with \
                 `sudo apt-get install patroni etcd-server`",
            )
        };
        let [program, etcd] = ["patroni", "etcd"].map(find);
        let (program, etcd) = (program.ok_or_else(missing)?, etcd.ok_or_else(missing)?);
        let node = |name| Ok(Node { name, port: free_port()?, answers: free_port()? });
        let cluster = Self {
            installation: installation.clone(),
            program,
            home: Home::new()?,
            nodes: [node("n1")?, node("n2")?, node("n3")?],
        };
        let etcd_port = cluster.start_etcd(&etcd)?;
        for node in &cluster.nodes {
            let directory = cluster.make_directory(node.name)?;
            let text = cluster.configuration(node, etcd_port);
            fs::write(directory.join("patroni.yml"), text)
                .map_err(|error| Trouble::new(format!("{}: {error}", directory.display())))?;
            cluster.start_node(node)?;
        }
        cluster.find_leader()?;
        cluster.find_synchronous()?;
        Ok(cluster)
    }

    /// Whether this machine has what it takes.
    ///
    /// ```
    /// println!("{}", testbed::Patroni::is_installed());
    /// ```
    pub fn is_installed() -> bool {
        ["patroni", "etcd"].map(find).iter().all(Option::is_some)
    }

    /// The address of a database on whichever server leads.
    pub fn url(&self, database: &str) -> String {
        let hosts = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        format!("postgres://postgres@{hosts}/{database}?target_session_attrs=read-write")
    }

    /// Which node leads now, from 0; waits until one does.
    ///
    /// # Panics
    ///
    /// When none does for a minute.
    #[track_caller]
    pub fn leader(&self) -> usize {
        self.find_leader().unwrap_or_else(|trouble| panic!("{trouble}"))
    }

    /// Waits until both standbys follow, one of them synchronously: the next leader will have everything, and
    /// somebody who follows it.
    ///
    /// # Panics
    ///
    /// When they do not for a minute.
    #[track_caller]
    pub fn wait_until_synchronous(&self) {
        self.find_synchronous().unwrap_or_else(|trouble| panic!("{trouble}"));
    }

    /// Kills everything of a node at once: Patroni, and its server.
    pub fn kill(&self, node: usize) {
        let place = self.home.path().join(self.nodes[node].name);
        let _ = wait_for("the programs of a node do not end", || {
            let rest = inhabitants(&place);
            signal(&rest, Signal::KILL);
            Ok(rest.is_empty().then_some(()))
        });
    }

    /// Stops everything of a node where it stands, as a machine that hangs.
    pub fn pause(&self, node: usize) {
        let place = self.home.path().join(self.nodes[node].name);
        // Twice, for a program that was started while the others were stopped.
        for _ in 0..2 {
            signal(&inhabitants(&place), Signal::STOP);
        }
    }

    /// Lets a paused node go on.
    pub fn resume(&self, node: usize) {
        signal(&inhabitants(&self.home.path().join(self.nodes[node].name)), Signal::CONT);
    }

    /// Starts Patroni of a killed node again; it lets its server follow the leader.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[track_caller]
    pub fn restart(&self, node: usize) {
        self.start_node(&self.nodes[node]).unwrap_or_else(|trouble| panic!("{trouble}"));
    }

    /// Runs statements on the leader.
    ///
    /// # Errors
    ///
    /// With the server's words, or those of `psql` when none leads.
    pub fn try_sql(&self, text: &str) -> Result<String, Trouble> {
        let client = Client { psql: self.installation.program("psql"), url: self.url("postgres") };
        client.sql_at(&client.url, text)
    }

    fn find_leader(&self) -> Result<usize, Trouble> {
        wait_for("no server of the cluster leads", || {
            Ok(self.nodes.iter().position(|node| answers_ok(node.answers, "/leader")))
        })
        .map_err(|trouble| Trouble::new(format!("{trouble}\n{}", self.logs())))
    }

    fn find_synchronous(&self) -> Result<(), Trouble> {
        wait_for("the standbys of the cluster do not follow, or none of them synchronously", || {
            // While any standby will do for a commit, Patroni may promote another one that lacks it.
            let states = "SELECT count(*) = 2 AND count(*) FILTER (WHERE sync_state = 'sync') > 0
                AND current_setting('synchronous_standby_names') <> '*'
                FROM pg_stat_replication WHERE state = 'streaming'";
            let is_chosen = self.nodes.iter().any(|node| answers_ok(node.answers, "/synchronous"));
            // There may be no leader for a moment.
            Ok((is_chosen && self.try_sql(states).is_ok_and(|answer| answer == "t")).then_some(()))
        })
        .map_err(|trouble| Trouble::new(format!("{trouble}\n{}", self.logs())))
    }

    fn start_etcd(&self, program: &Path) -> Result<u16, Trouble> {
        let directory = self.make_directory("etcd")?;
        let (port, peers) = (free_port()?, free_port()?);
        let [client, peer] = [port, peers].map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = Command::new(program);
        command.args(["--name", "e", "--data-dir", "data", "--initial-cluster"]);
        command.arg(format!("e={peer}"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        spawn(command, &directory)?;
        let connected = || Ok(TcpStream::connect(("127.0.0.1", port)).ok());
        wait_for("etcd takes no connections", connected).map(|_| port)
    }

    fn start_node(&self, node: &Node) -> Result<(), Trouble> {
        let mut command = Command::new(&self.program);
        command.arg("patroni.yml");
        spawn(command, &self.home.path().join(node.name))
    }

    fn make_directory(&self, name: &str) -> Result<PathBuf, Trouble> {
        let directory = self.home.path().join(name);
        fs::create_dir(&directory)
            .and_then(|()| account::give(&directory))
            .map_err(|error| Trouble::new(format!("{}: {error}", directory.display())))?;
        Ok(directory)
    }

    fn configuration(&self, node: &Node, etcd: u16) -> String {
        let Node { name, port, answers } = node;
        let directory = self.home.path().join(name).display().to_string();
        let programs = self.installation.directory().display();
        format!(
            "scope: onceward
name: {name}
restapi: {{listen: '127.0.0.1:{answers}', connect_address: '127.0.0.1:{answers}'}}
etcd3: {{hosts: '127.0.0.1:{etcd}'}}
bootstrap:
  dcs:
    ttl: 10
    loop_wait: 2
    retry_timeout: 3
    synchronous_mode: true
    synchronous_mode_strict: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {{max_connections: 100, synchronous_commit: remote_apply}}
  initdb: [encoding: UTF8, no-locale, no-sync, auth: trust]
postgresql:
  listen: 127.0.0.1:{port}
  connect_address: 127.0.0.1:{port}
  data_dir: {directory}/data
  bin_dir: {programs}
  pgpass: {directory}/pgpass
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: postgres}}
  parameters: {{unix_socket_directories: '{directory}'}}
  pg_hba: [host all all 127.0.0.1/32 trust, host replication all 127.0.0.1/32 trust, local all all trust]
"
        )
    }

    /// What the nodes said last.
    fn logs(&self) -> String {
        let tail = |node: &Node| {
            let log = fs::read_to_string(self.home.path().join(node.name).join("log"));
            let log = log.unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            format!("{}:\n{}", node.name, lines[lines.len().saturating_sub(8)..].join("\n"))
        };
        self.nodes.iter().map(tail).collect::<Vec<_>>().join("\n")
    }
}

/// Starts a program that works in this directory, so that it is found there, and ends with the home.
fn spawn(mut command: Command, directory: &Path) -> Result<(), Trouble> {
    let failed = |error| Trouble::new(format!("{:?}: {error}", command.get_program()));
    let log = File::options().create(true).append(true).open(directory.join("log"));
    let log = log.map_err(failed)?;
    let copy = log.try_clone().map_err(failed)?;
    let mut child = account::as_server(&mut command)
        .current_dir(directory)
        .env("HOME", directory)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(copy)
        .process_group(0)
        .spawn()
        .map_err(|error| Trouble::new(format!("{:?}: {error}", command.get_program())))?;
    // It ends when it is killed; somebody has to take notice.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Whether a request gets the status 200.
fn answers_ok(port: u16, path: &str) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head.ends_with(b" 200"))
    };
    ask().unwrap_or(false)
}

fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}
