//! Which server has a partition: the one that the address names, the one that sentinels name, or a node of a cluster.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use redis::{Cmd, Pipeline, Value};
use tokio::time::sleep;

use super::{
    address::{Kind, read_host},
    connect::{self, ConnectOptions},
    error::{Trouble, Why},
    keys::{PARTITIONS, slot},
    link::{Link, Node, Question},
};

/// How often a question is asked again that was certainly not carried out, and after which pauses.
const PAUSES: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(20),
    Duration::from_millis(60),
    Duration::from_millis(150),
    Duration::from_millis(300),
];

/// How many commands go into one pipeline: others wait behind it.
const PIPELINE: usize = 256;

/// On which connection something is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Requests wait for it.
    Requests,
    /// Only operators, sweeps and metrics do.
    Operators,
}

/// All servers of a store.
pub(super) struct Servers {
    pub(super) how: Arc<ConnectOptions>,
    map: RwLock<Arc<Map>>,
    /// When the map was made last, and how that ended.
    reading: tokio::sync::Mutex<Option<(Instant, Result<(), Trouble>)>>,
}

/// Who has which partition.
struct Map {
    nodes: Vec<Arc<Node>>,
    /// A place in `nodes` for each partition; behind their end: no node is known.
    of: [u16; PARTITIONS],
}

impl Servers {
    pub(super) fn new(how: Arc<ConnectOptions>) -> Self {
        let nodes = match how.address.kind {
            Kind::Server => {
                let (host, port) = &how.address.hosts[0];
                vec![Arc::new(Node::new(&how, host, *port))]
            }
            Kind::Cluster | Kind::Sentinels => Vec::new(),
        };
        let map = Arc::new(Map { nodes, of: [0; PARTITIONS] });
        Self { how, map: RwLock::new(map), reading: tokio::sync::Mutex::default() }
    }

    /// The servers that take writes now, as far as they are known.
    pub(super) async fn primaries(&self) -> Result<Vec<Arc<Node>>, Trouble> {
        self.node(0).await?;
        Ok(self.map().nodes.clone())
    }

    /// Asks the server of a partition, again while it is certain that nothing was done.
    pub(super) async fn ask(
        &self,
        partition: u8,
        line: Line,
        question: Question<'_>,
    ) -> Result<Vec<Value>, Trouble> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let asked = self.ask_once(partition, line, question).await;
            let Err(trouble) = asked else { return asked };
            if !self.may_pass(&trouble) {
                return Err(trouble);
            }
            let Some(pause) = pauses.next() else { return Err(trouble) };
            sleep(pause).await;
            let began = Instant::now();
            // What goes wrong here goes wrong again with the question itself.
            let _ = self.read_map(began, trouble.place.as_deref()).await;
        }
    }

    async fn ask_once(
        &self,
        partition: u8,
        line: Line,
        question: Question<'_>,
    ) -> Result<Vec<Value>, Trouble> {
        let node = self.node(partition).await?;
        let line = self.line(partition, line);
        let asked = node.ask(&self.how, line, question).await;
        if let Err(Trouble { why: Why::Asked, place: Some(place), .. }) = &asked
            && self.how.address.kind == Kind::Cluster
            && let Ok((host, port)) = read_host(place, 6379)
        {
            let node = self.known(&host, port);
            return ask_for_once(&node, &self.how, line, question).await;
        }
        if let Err(Trouble { why: Why::Broken | Why::Unreachable, .. }) = &asked
            && self.how.address.kind != Kind::Server
        {
            // Another server may have taken its place; who comes next finds it.
            let _ = self.read_map(Instant::now(), None).await;
        }
        asked
    }

    /// Whether it was certainly not carried out, and may be soon.
    fn may_pass(&self, trouble: &Trouble) -> bool {
        match trouble.why {
            Why::Passing => ["TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN"]
                .iter()
                .any(|code| trouble.words.starts_with(code)),
            Why::ReadOnly => true,
            Why::Moved => self.how.address.kind == Kind::Cluster,
            Why::Unreachable => self.how.address.kind != Kind::Server,
            _ => false,
        }
    }

    fn line(&self, partition: u8, line: Line) -> usize {
        match line {
            Line::Requests => usize::from(partition) % self.how.connections,
            Line::Operators => self.how.connections,
        }
    }

    /// Asks something of many partitions, each of its server; the answers are in the same order.
    pub(super) async fn ask_each(&self, questions: &[(u8, Cmd)]) -> Result<Vec<Value>, Trouble> {
        let mut answers: Vec<Option<Value>> = vec![None; questions.len()];
        let map = {
            self.node(0).await?;
            self.map()
        };
        let mut of_node: Vec<Vec<usize>> = vec![Vec::new(); map.nodes.len() + 1];
        for (index, (partition, _)) in questions.iter().enumerate() {
            let node = usize::from(map.of[usize::from(*partition)]).min(map.nodes.len());
            of_node[node].push(index);
        }
        for (node, indexes) in map.nodes.iter().zip(&of_node) {
            for part in indexes.chunks(PIPELINE) {
                let mut pipeline = Pipeline::with_capacity(part.len());
                for index in part {
                    pipeline.add_command(questions[*index].1.clone());
                }
                let line = self.how.connections;
                let Ok(link) = node.link(&self.how, line).await else { continue };
                match link.ask_each(Question::Several(&pipeline)).await {
                    Ok(answered) => {
                        for (index, answer) in part.iter().zip(answered) {
                            let is_answer = !matches!(answer, Value::ServerError(_));
                            answers[*index] = is_answer.then_some(answer);
                        }
                    }
                    Err(_) => node.leave(line, &link),
                }
            }
        }
        let mut all = Vec::with_capacity(answers.len());
        for (answer, (partition, command)) in answers.into_iter().zip(questions) {
            all.push(match answer {
                Some(answer) => answer,
                // Its slot has moved, or the connection broke: alone it is asked until it passes.
                None => {
                    let asked = self.ask(*partition, Line::Operators, Question::One(command));
                    asked.await?.pop().unwrap_or(Value::Nil)
                }
            });
        }
        Ok(all)
    }

    fn map(&self) -> Arc<Map> {
        Arc::clone(&self.map.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn node(&self, partition: u8) -> Result<Arc<Node>, Trouble> {
        for is_fresh in [false, true] {
            let map = self.map();
            if let Some(node) = map.nodes.get(usize::from(map.of[usize::from(partition)])) {
                return Ok(Arc::clone(node));
            }
            if !is_fresh {
                self.read_map(Instant::now(), None).await?;
            }
        }
        Err(Trouble::new(
            Why::Passing,
            format!("CLUSTERDOWN no node of the cluster has slot {} now", slot(partition)),
        ))
    }

    /// The node at this place, with the connections that it has already.
    fn known(&self, host: &str, port: u16) -> Arc<Node> {
        let map = self.map();
        let found = map.nodes.iter().find(|node| node.is_at(host, port));
        found.map_or_else(|| Arc::new(Node::new(&self.how, host, port)), Arc::clone)
    }

    /// Finds out anew which node has what, unless another caller has done so meanwhile.
    async fn read_map(&self, began: Instant, first: Option<&str>) -> Result<(), Trouble> {
        if self.how.address.kind == Kind::Server {
            return Ok(());
        }
        let mut reading = self.reading.lock().await;
        if let Some((at, ended)) = reading.as_ref()
            && *at >= began
        {
            return ended.clone();
        }
        let read = match self.how.address.kind {
            Kind::Sentinels => self.ask_sentinels().await,
            _ => self.ask_cluster(first).await,
        };
        let ended = read.map(|map| {
            *self.map.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
        });
        *reading = Some((Instant::now(), ended.clone()));
        ended
    }

    /// The first sentinel that answers tells who is primary.
    async fn ask_sentinels(&self) -> Result<Map, Trouble> {
        let address = &self.how.address;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&address.service);
        let mut troubles = Vec::new();
        for (host, port) in &address.hosts {
            let asked = ask_alone(&self.how, (host, *port), &command).await;
            match asked.map(primary_in) {
                Ok(Some((host, port))) => {
                    return Ok(Map { nodes: vec![self.known(&host, port)], of: [0; PARTITIONS] });
                }
                Ok(None) => {
                    troubles
                        .push(format!("{host}:{port} watches no service {:?}", address.service));
                }
                Err(trouble) => troubles.push(trouble.words),
            }
        }
        Err(Trouble::new(
            Why::Unreachable,
            format!("no sentinel names a primary: {}", troubles.join("; ")),
        ))
    }

    /// The first node that answers tells who has which slots.
    async fn ask_cluster(&self, first: Option<&str>) -> Result<Map, Trouble> {
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let mut places: Vec<(String, u16)> = Vec::new();
        places.extend(first.and_then(|place| read_host(place, 6379).ok()));
        places.extend(self.map().nodes.iter().map(|node| (node.host.clone(), node.port)));
        places.extend(self.how.address.hosts.iter().cloned());
        let mut troubles: Vec<Trouble> = Vec::new();
        for (index, (host, port)) in places.iter().enumerate() {
            if places[..index].contains(&(host.clone(), *port)) {
                continue;
            }
            let node = self.known(host, *port);
            let asked = node.ask(&self.how, self.how.connections, Question::One(&command)).await;
            let answer = asked.map(|mut answers| answers.pop().unwrap_or_default());
            match answer {
                Ok(answer) => match self.map_in(host, answer) {
                    Some(map) => return Ok(map),
                    None => troubles.push(Trouble::new(
                        Why::Passing,
                        format!("CLUSTERDOWN {host}:{port} knows of no slots"),
                    )),
                },
                Err(trouble) => troubles.push(trouble),
            }
        }
        let words: Vec<_> = troubles.iter().map(|trouble| trouble.words.as_str()).collect();
        let why = troubles.first().map_or(Why::Unreachable, |trouble| trouble.why);
        Err(Trouble::new(why, words.join("; ")))
    }

    /// Reads `[[first, last, [host, port, …], …], …]`; an empty host is the one that was asked.
    fn map_in(&self, asked: &str, answer: Value) -> Option<Map> {
        let mut ranges = Vec::new();
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for range in list(answer)? {
            let mut range = list(range)?.into_iter();
            let (first, last) = (whole(&range.next()?)?, whole(&range.next()?)?);
            let mut primary = list(range.next()?)?.into_iter();
            let host = text(&primary.next()?).filter(|host| !["", "?"].contains(&host.as_str()));
            let (host, port) = (host.unwrap_or_else(|| asked.to_owned()), whole(&primary.next()?)?);
            let port = u16::try_from(port).ok()?;
            let place =
                nodes.iter().position(|node| node.is_at(&host, port)).unwrap_or_else(|| {
                    nodes.push(self.known(&host, port));
                    nodes.len() - 1
                });
            ranges.push((first..=last, u16::try_from(place).ok()?));
        }
        let mut of = [u16::MAX; PARTITIONS];
        for (partition, place) in (0..=u8::MAX).zip(&mut of) {
            let slot = i64::from(slot(partition));
            if let Some((_, node)) = ranges.iter().find(|(range, _)| range.contains(&slot)) {
                *place = *node;
            }
        }
        (!nodes.is_empty()).then_some(Map { nodes, of })
    }
}

/// Asks a sentinel, on a connection for this alone.
async fn ask_alone(
    how: &ConnectOptions,
    place: (&str, u16),
    command: &Cmd,
) -> Result<Value, Trouble> {
    let opened = connect::open(how, place, &how.address.sentinel_login, 0).await?;
    let link = Link::of(opened);
    let mut answers = link.ask(Question::One(command)).await?;
    Ok(answers.pop().unwrap_or_default())
}

/// Asks a node for a slot that is on its way there.
async fn ask_for_once(
    node: &Node,
    how: &ConnectOptions,
    line: usize,
    question: Question<'_>,
) -> Result<Vec<Value>, Trouble> {
    let mut pipeline = Pipeline::new();
    match question {
        Question::One(command) => {
            pipeline.cmd("ASKING").add_command(command.clone());
        }
        Question::Several(commands) => {
            for command in commands.cmd_iter() {
                pipeline.cmd("ASKING").add_command(command.clone());
            }
        }
    }
    let answers = node.ask(how, line, Question::Several(&pipeline)).await?;
    Ok(answers.into_iter().skip(1).step_by(2).collect())
}

fn primary_in(answer: Value) -> Option<(String, u16)> {
    let parts = list(answer)?;
    let [host, port] = parts.as_slice() else { return None };
    Some((text(host)?, u16::try_from(whole(port)?).ok()?))
}

fn list(value: Value) -> Option<Vec<Value>> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Nil => Some(String::new()),
        _ => None,
    }
}

fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        value => text(value)?.parse().ok(),
    }
}
