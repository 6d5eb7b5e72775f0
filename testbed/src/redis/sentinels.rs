//! A primary with two replicas, and three sentinels that promote one of them when it dies.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::home::Home;
use crate::port::free_port;
use crate::redis::{RedisInstallation, RedisServer, wire};
use crate::tool::{Trouble, wait_for};

/// A primary, two replicas and three sentinels, which watch it under the name `testbed`.
///
/// ```no_run
/// let sentinels = testbed::RedisSentinels::start(&testbed::RedisInstallation::preferred()?)?;
/// println!("{}", sentinels.url());
/// sentinels.servers()[0].kill();
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct RedisSentinels {
    servers: Vec<RedisServer>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    port: u16,
    child: Child,
    _home: Home,
}

const SERVICE: &str = "testbed";

impl RedisSentinels {
    /// Starts all six, and waits until they know each other.
    ///
    /// # Errors
    ///
    /// When one does not start, or they do not find each other.
    pub fn start(installation: &RedisInstallation) -> Result<Self, Trouble> {
        let primary = RedisServer::start(installation, &[])?;
        let replicas = [primary.replica(&[])?, primary.replica(&[])?];
        let sentinels = (0..3).map(|_| Sentinel::start(installation, primary.port()));
        let sentinels = sentinels.collect::<Result<Vec<_>, _>>()?;
        let mut servers = vec![primary];
        servers.extend(replicas);
        for sentinel in &sentinels {
            wait_for("the sentinels do not find each other", || {
                let known = wire::ask(sentinel.port, &["SENTINEL", "MASTER", SERVICE])?.to_string();
                let is = |name: &str, count: &str| known.contains(&format!("{name}\n{count}\n"));
                Ok((is("num-slaves", "2") && is("num-other-sentinels", "2")).then_some(()))
            })?;
        }
        Ok(Self { servers, sentinels })
    }

    /// The one that began as primary, then the replicas.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The address of the sentinels.
    pub fn url(&self) -> String {
        let places: Vec<_> =
            self.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port)).collect();
        format!("redis+sentinel://{}?service={SERVICE}", places.join(","))
    }
}

impl Sentinel {
    fn start(installation: &RedisInstallation, primary: u16) -> Result<Self, Trouble> {
        let (home, port) = (Home::new()?, free_port()?);
        let file = home.path().join("sentinel.conf");
        let failed = |error| Trouble::new(format!("{}: {error}", file.display()));
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor {SERVICE} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 5000\n\
             sentinel parallel-syncs {SERVICE} 1\n"
        );
        fs::write(&file, text).map_err(failed)?;
        let log = File::create(home.path().join("log")).map_err(failed)?;
        let child = Command::new(installation.program())
            .arg(&file)
            .arg("--sentinel")
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| Trouble::new(format!("a sentinel could not be started: {error}")))?;
        wait_for("a sentinel takes no connections", || {
            Ok(wire::ask(port, &["PING"]).is_ok().then_some(()))
        })?;
        Ok(Self { port, child, _home: home })
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
