//! `onceward relay` as a process, and what operators do with messages: on the store itself and through the listener of a
//! relay.

mod deliver;
mod doctor;
mod mistakes;
mod page;
mod repair;
mod roles;
mod scheduled;

use std::{fs, net::SocketAddr, path::Path, process::Command, sync::Arc};

use serde_json::Value;
use tempfile::TempDir;
use testbed::{Process, Signal};
use uuid::Uuid;

use crate::gateway_support::{Call, Finished, Link, Reply, Version, command, eventually};

/// A relay that runs; it is killed when this is dropped.
struct Relay {
    process: Process,
    admin: Option<SocketAddr>,
}

/// Directories of stores, and what is said of the relays on them.
struct Shop {
    directory: Arc<TempDir>,
    environment: Vec<(&'static str, &'static str)>,
}

impl Shop {
    /// With a store in which nothing is.
    fn new() -> Self {
        Self::beside(Arc::new(tempfile::tempdir().unwrap()))
    }

    /// With the store of a gateway.
    fn beside(directory: Arc<TempDir>) -> Self {
        let shop = Self { directory, environment: Vec::new() };
        shop.run(&["migrate", "--store", "sqlite://onceward.db"]);
        shop
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a relay with this configuration, which names the store, and waits until it delivers.
    fn relay(&self, file: &str, text: &str) -> Relay {
        fs::write(self.path().join(file), format!("store = \"sqlite://onceward.db\"\n{text}"))
            .unwrap();
        self.relay_by(&["--config", file])
    }

    fn relay_by(&self, arguments: &[&str]) -> Relay {
        let process = Process::start(self.command("relay").args(arguments)).unwrap();
        let said = process.stderr.wait_for("delivering messages of");
        assert!(said.is_ok(), "{}", process.stderr.text());
        let said = process.stderr.heard();
        let admin = said.split_once("operators on http://").map(|(_, rest)| {
            rest[..rest.find(char::is_whitespace).unwrap_or(rest.len())].parse().unwrap()
        });
        Relay { process, admin }
    }

    /// `onceward` with this command, in the directory.
    fn command(&self, name: &str) -> Command {
        let mut command = command(&[name]);
        command.current_dir(self.path()).env("USER", "ada").env_remove("SUDO_USER");
        command.envs(self.environment.iter().copied());
        command
    }

    fn finished(&self, arguments: &[&str]) -> Finished {
        Finished::of(self.command(arguments[0]).args(&arguments[1..]))
    }

    /// What it says, and that it went well.
    fn run(&self, arguments: &[&str]) -> String {
        let finished = self.finished(arguments);
        assert!(finished.is_success(), "{arguments:?}: {finished}");
        finished.stdout
    }

    /// Of `onceward messages` on the store itself.
    fn document(&self, arguments: &[&str]) -> Value {
        let place = ["--store", "sqlite://onceward.db", "--json"];
        let out = self.run(&[&["messages"], arguments, &place].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }

    /// Commits a message, as a producer in any language does; `headers` go with it.
    fn enqueue(&self, aggregate: &str, headers: &str) -> Uuid {
        let id = Uuid::now_v7();
        let file = rusqlite::Connection::open(self.path().join("onceward.db")).unwrap();
        file.execute_batch("PRAGMA busy_timeout = 10000; PRAGMA synchronous = FULL").unwrap();
        let text = "INSERT INTO onceward_message (id, topic, aggregate, body, headers)
                    VALUES (?1, 'order.placed', ?2, ?3, ?4)";
        let body: &[u8] = b"{\"order\": 7}";
        file.execute(text, (id.as_bytes(), aggregate, body, headers)).unwrap();
        id
    }

    /// Waits until the message is so at the sink `billing`.
    async fn becomes(&self, id: Uuid, state: &str) {
        let id = id.to_string();
        eventually(&format!("the message becomes {state}"), || async {
            let shown = self.document(&["show", "--message", &id]);
            shown["sinks"].as_array().unwrap().iter().any(|at| at["state"] == state)
        })
        .await;
    }
}

impl Relay {
    async fn ask(&self, call: &Call) -> Reply {
        let admin = self.admin.expect("this relay has no listener for operators");
        Link::open(admin, Version::Http1).await.send(call).await
    }

    /// Asks it to end, and takes that it did so in order.
    fn end(self) {
        self.process.signal(Signal::TERM);
        let ended = self.process.wait_for_end().unwrap();
        assert!(ended.success(), "{}", self.process.stderr.text());
    }
}

/// No headers.
const PLAIN: &str = "[]";

/// `[[sink]]` called billing, there.
fn billing(url: &str) -> String {
    format!(
        "[relay]\nlease = \"1s\"\n[[sink]]\nname = \"billing\"\nurl = \"{url}\"\nfrom = \"oldest\"\n"
    )
}
