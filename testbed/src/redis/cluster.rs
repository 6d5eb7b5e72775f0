//! A cluster of three primaries with a replica each.

use crate::redis::{RedisInstallation, RedisServer};
use crate::tool::{Trouble, wait_for};

/// Three primaries and a replica of each, on free ports.
///
/// ```no_run
/// let cluster = testbed::RedisCluster::start(&testbed::RedisInstallation::preferred()?)?;
/// println!("{}", cluster.url());
/// cluster.primaries()[0].kill();
/// # Ok::<(), testbed::Trouble>(())
/// ```
#[derive(Debug)]
pub struct RedisCluster {
    primaries: Vec<RedisServer>,
    replicas: Vec<RedisServer>,
}

/// How many slots there are.
const SLOTS: u32 = 16_384;

impl RedisCluster {
    /// Starts all six, and waits until the replicas have everything.
    ///
    /// # Errors
    ///
    /// When one does not start, or they do not find each other.
    pub fn start(installation: &RedisInstallation) -> Result<Self, Trouble> {
        let start = || {
            RedisServer::start(
                installation,
                &[
                    ("cluster-enabled", "yes"),
                    ("cluster-config-file", "nodes.conf"),
                    ("cluster-node-timeout", "2000"),
                ],
            )
        };
        let primaries = (0..3).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        let replicas = (0..3).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
        let cluster = Self { primaries, replicas };
        cluster.join()?;
        Ok(cluster)
    }

    fn join(&self) -> Result<(), Trouble> {
        let third = SLOTS.div_ceil(3);
        for (server, first) in self.primaries.iter().zip((0..SLOTS).step_by(third as usize)) {
            let last = (first + third - 1).min(SLOTS - 1).to_string();
            server.try_command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last])?;
        }
        for (epoch, server) in self.all().enumerate() {
            server.try_command(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()])?;
        }
        let first = self.primaries[0].port().to_string();
        for server in self.all().skip(1) {
            server.try_command(&["CLUSTER", "MEET", "127.0.0.1", &first])?;
        }
        for (replica, primary) in self.replicas.iter().zip(&self.primaries) {
            let id = primary.try_command(&["CLUSTER", "MYID"])?.to_string();
            wait_for("the nodes of the cluster do not find each other", || {
                Ok(replica.try_command(&["CLUSTER", "REPLICATE", &id]).is_ok().then_some(()))
            })?;
        }
        for server in self.all() {
            wait_for("the cluster does not get ready", || {
                let info = server.try_command(&["CLUSTER", "INFO"])?.to_string();
                let nodes = server.try_command(&["CLUSTER", "NODES"])?.to_string();
                let knows = nodes.matches(" slave ").count() + nodes.matches(",slave ").count();
                Ok((info.contains("cluster_state:ok") && knows == 3).then_some(()))
            })?;
        }
        self.replicas.iter().try_for_each(RedisServer::wait_for_primary)
    }

    fn all(&self) -> impl Iterator<Item = &RedisServer> {
        self.primaries.iter().chain(&self.replicas)
    }

    /// Those that began as primaries.
    pub fn primaries(&self) -> &[RedisServer] {
        &self.primaries
    }

    /// Those that began as their replicas, in the same order.
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// The address of the cluster: two of its nodes.
    pub fn url(&self) -> String {
        let [one, other] = [0, 1].map(|index: usize| self.primaries[index].port());
        format!("redis+cluster://127.0.0.1:{one},127.0.0.1:{other}")
    }
}
