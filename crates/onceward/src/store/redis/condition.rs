//! What the server is and promises, as far as it tells.

use std::collections::HashMap;

use redis::{Cmd, Value};

use super::{
    OpenError,
    address::Kind,
    connect::Wait,
    error::{Trouble, Why},
    link::{Node, Question},
    servers::Servers,
};

/// What the servers say of themselves, as far as it matters for records; what cannot be learnt is `None`.
///
/// With several primaries it is what the weakest of them says.
///
/// ```
/// use onceward::store::redis::Durability;
///
/// fn report(durability: &Durability) {
///     println!("{} {}", durability.kind, durability.version);
///     for loss in durability.losses() {
///         println!("- {loss}");
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durability {
    /// `redis` or `valkey`.
    pub kind: String,
    /// Its version, as `7.2.4`; of Valkey its own.
    pub version: String,
    /// `master` or `slave`, in the words of the server.
    pub role: String,
    /// Whether the server is a node of a cluster.
    pub is_cluster: bool,
    /// How many primaries there are.
    pub primaries: usize,
    /// How many bytes it may use; 0: as many as there are.
    pub max_memory: Option<u64>,
    /// How many bytes it uses, of all primaries together.
    pub used_memory: u64,
    /// What it throws away when it is full; `noeviction`: nothing.
    pub max_memory_policy: Option<String>,
    /// Whether it writes a log of all changes.
    pub appends: Option<bool>,
    /// When it syncs that log: `always`, `everysec` or `no`.
    pub append_fsync: Option<String>,
    /// How many replicas are connected.
    pub replicas: u32,
    /// How many must be, for it to take writes.
    pub min_replicas: Option<u32>,
    /// By which version of Redis's commands it goes.
    commands: (u32, u32),
}

impl Durability {
    pub(super) async fn read(servers: &Servers) -> Result<Self, OpenError> {
        let nodes = servers.primaries().await?;
        let mut all: Option<Self> = None;
        for node in &nodes {
            let one = Self::of(node, servers).await?;
            all = Some(match all {
                None => one,
                Some(all) => all.weaker(one),
            });
        }
        let all =
            all.ok_or_else(|| OpenError::Unreachable("the cluster has no nodes".to_owned()))?;
        Ok(Self { primaries: nodes.len(), ..all })
    }

    async fn of(node: &Node, servers: &Servers) -> Result<Self, OpenError> {
        let how = &servers.how;
        let ask = async |command: &Cmd| {
            let answers = node.ask(how, how.connections, Question::One(command)).await;
            answers.map(|mut answers| answers.pop().unwrap_or_default())
        };
        let info = ask(redis::cmd("INFO").arg("everything")).await?;
        let info = words(&info);
        let mut read = Self::in_info(&info);
        let asked = ["maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write"];
        match ask(redis::cmd("CONFIG").arg("GET").arg(&asked)).await {
            Ok(answer) => read.take_settings(&pairs(answer)),
            // Managed servers forbid it.
            Err(Trouble { why: Why::NotAllowed | Why::Other, .. }) => {}
            Err(trouble) => return Err(trouble.into()),
        }
        Ok(read)
    }

    fn in_info(info: &HashMap<String, String>) -> Self {
        let text = |name: &str| info.get(name).cloned();
        let number = |name: &str| info.get(name).and_then(|text| text.parse().ok());
        let commands = text("redis_version").unwrap_or_default();
        let is_valkey = info.contains_key("valkey_version");
        Self {
            kind: if is_valkey { "valkey" } else { "redis" }.to_owned(),
            version: text("valkey_version").unwrap_or_else(|| commands.clone()),
            role: text("role").unwrap_or_default(),
            is_cluster: number("cluster_enabled") == Some(1),
            primaries: 1,
            max_memory: number("maxmemory"),
            used_memory: number("used_memory").unwrap_or_default(),
            max_memory_policy: text("maxmemory_policy"),
            appends: number("aof_enabled").map(|enabled| enabled == 1),
            append_fsync: None,
            replicas: number("connected_slaves")
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or_default(),
            min_replicas: None,
            commands: version(&commands),
        }
    }

    fn take_settings(&mut self, settings: &HashMap<String, String>) {
        let text = |name: &str| settings.get(name).cloned();
        self.max_memory_policy = text("maxmemory-policy").or(self.max_memory_policy.take());
        self.append_fsync = text("appendfsync");
        self.min_replicas = text("min-replicas-to-write").and_then(|text| text.parse().ok());
        self.appends = text("appendonly").map(|word| word == "yes").or(self.appends);
    }

    /// What holds for both.
    fn weaker(self, other: Self) -> Self {
        let is_fit =
            |policy: &Option<String>| policy.as_deref().is_none_or(|policy| policy == NO_EVICTION);
        let rank = |fsync: &Option<String>| match fsync.as_deref() {
            Some("always") => 2,
            Some("everysec") => 1,
            _ => 0,
        };
        let is_older = other.commands < self.commands;
        Self {
            kind: if is_older { other.kind } else { self.kind },
            version: if is_older { other.version } else { self.version },
            role: if self.role == "master" { other.role } else { self.role },
            is_cluster: self.is_cluster || other.is_cluster,
            primaries: self.primaries,
            max_memory: self
                .max_memory
                .zip(other.max_memory)
                .map(|(one, other)| one.saturating_add(other)),
            used_memory: self.used_memory.saturating_add(other.used_memory),
            max_memory_policy: if is_fit(&self.max_memory_policy) {
                other.max_memory_policy
            } else {
                self.max_memory_policy
            },
            appends: self.appends.zip(other.appends).map(|(one, other)| one && other),
            append_fsync: if rank(&self.append_fsync) < rank(&other.append_fsync) {
                self.append_fsync
            } else {
                other.append_fsync
            },
            replicas: self.replicas.min(other.replicas),
            min_replicas: self.min_replicas.min(other.min_replicas),
            commands: self.commands.min(other.commands),
        }
    }

    /// Refuses what cannot keep records at all.
    pub(super) fn check(&self, named: Kind) -> Result<(), OpenError> {
        let Self { kind, version, role, .. } = self;
        if self.is_cluster && named != Kind::Cluster {
            return Err(OpenError::Unfit(
                "the server is a node of a cluster: write redis+cluster:// in the store's address"
                    .to_owned(),
            ));
        }
        if self.commands < (7, 0) {
            return Err(OpenError::Unfit(format!(
                "the server is {kind} {version}, and scripts that settle when memory is full need Redis 7 or \
                 later, or Valkey: upgrade it"
            )));
        }
        if role != "master" {
            return Err(OpenError::Unfit(format!(
                "the server is a replica (role {role}): name the primary, its sentinels (redis+sentinel://) or \
                 its cluster (redis+cluster://)"
            )));
        }
        match self.max_memory_policy.as_deref() {
            Some(NO_EVICTION) | None => Ok(()),
            Some(policy) => Err(OpenError::Unfit(format!(
                "the server throws records away when it is full (maxmemory-policy {policy}), and a key whose \
                 record is gone runs again: CONFIG SET maxmemory-policy noeviction, also in its configuration \
                 file"
            ))),
        }
    }

    pub(super) fn check_wait(&self, wait: Wait) -> Result<(), OpenError> {
        let Self { kind, version, .. } = self;
        if wait.logs.is_some() && self.commands < (7, 2) {
            return Err(OpenError::Unfit(format!(
                "`wait_aof` needs WAITAOF, which {kind} {version} does not have: Redis 7.2 and Valkey do"
            )));
        }
        if wait.logs.is_some() && self.appends == Some(false) {
            return Err(OpenError::Unfit(
                "`wait_aof` waits for a log that this server does not write: CONFIG SET appendonly yes".to_owned(),
            ));
        }
        Ok(())
    }

    /// What can be lost with what was found, in words.
    #[must_use]
    pub fn losses(&self) -> Vec<String> {
        let mut losses = Vec::new();
        losses.push(match (self.appends, self.append_fsync.as_deref()) {
            (Some(false), _) => {
                "a server that dies loses every record since its last snapshot (appendonly no)".to_owned()
            }
            (None, _) => {
                "whether the server writes a log cannot be learnt: one that dies may lose every record since its \
                 last snapshot"
                    .to_owned()
            }
            (_, Some("always")) => {
                "a server that dies loses nothing that it acknowledged, if its disk keeps what was synced \
                 (appendfsync always)"
                    .to_owned()
            }
            (_, Some("everysec")) => {
                "a machine that dies loses the last second of records, sometimes two; so does a server that is \
                 killed while its disk is slow, because it waits with its log and answers meanwhile (appendfsync \
                 everysec)"
                    .to_owned()
            }
            (_, Some(other)) => {
                format!("a machine that dies loses what the system had not written yet (appendfsync {other})")
            }
            (_, None) => {
                "how often the server syncs its log cannot be learnt: a machine that dies may lose records"
                    .to_owned()
            }
        });
        let replicas = match (self.replicas, self.is_cluster) {
            (0, false) => "no replica is connected; with one, a failover loses what had not reached it: replication \
                           is asynchronous, and WAIT makes such a loss rarer, not impossible"
                .to_owned(),
            (count, _) => format!(
                "a failover loses what had not reached the replica that takes over ({count} connected): replication \
                 is asynchronous, and WAIT makes such a loss rarer, not impossible"
            ),
        };
        losses.push(replicas);
        if self.max_memory_policy.is_none() {
            losses.push(
                "what the server throws away when it is full cannot be learnt (maxmemory-policy must be noeviction)"
                    .to_owned(),
            );
        }
        losses.push(
            "a clock of the server that jumps ahead by more than the hours kept in reserve deletes ended records \
             early; a person may FLUSHALL"
                .to_owned(),
        );
        losses
    }
}

const NO_EVICTION: &str = "noeviction";

fn version(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or_default());
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// The lines `name:value` of an answer to `INFO`.
pub(super) fn words(answer: &Value) -> HashMap<String, String> {
    let text = match answer {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    };
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn pairs(answer: Value) -> HashMap<String, String> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        _ => String::new(),
    };
    match answer {
        Value::Array(values) => {
            values.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
        }
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        _ => HashMap::new(),
    }
}
