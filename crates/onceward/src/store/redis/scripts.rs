//! The scripts that run on the server: sent once to each, and called by their names.

use std::sync::OnceLock;

use onceward_core::StoreError;
use redis::{Cmd, Pipeline, Value};

use super::{
    connect::Wait,
    error::{Trouble, Why},
    link::Question,
    servers::{Line, Servers},
};

/// What the server is asked to run.
pub(super) struct Script {
    text: String,
    /// The server's name for it: the same on all of them.
    sha: OnceLock<String>,
}

/// All scripts of a store.
pub(super) struct Scripts {
    /// Claims: refused when there is no memory.
    pub(super) claim: Script,
    /// Every other change.
    pub(super) change: Script,
    pub(super) purge: Script,
    pub(super) sweep: Script,
    pub(super) put_chunk: Script,
    pub(super) keep_route: Script,
    pub(super) rights: Script,
}

/// What ends, renews or deletes works also when there is no memory left for claims.
const ALLOW_OOM: &str = "#!lua flags=allow-oom\n";
const DENY_OOM: &str = "#!lua\n";

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            claim: Script::new(DENY_OOM, include_str!("swap.lua")),
            change: Script::new(ALLOW_OOM, include_str!("swap.lua")),
            purge: Script::new(ALLOW_OOM, include_str!("purge.lua")),
            sweep: Script::new(ALLOW_OOM, include_str!("sweep.lua")),
            put_chunk: Script::new(DENY_OOM, include_str!("put_chunk.lua")),
            keep_route: Script::new(DENY_OOM, include_str!("keep_route.lua")),
            rights: Script::new(ALLOW_OOM, include_str!("rights.lua")),
        }
    }
}

impl Script {
    fn new(flags: &str, text: &str) -> Self {
        let text = format!("{flags}{text}");
        Self { text, sha: OnceLock::new() }
    }

    fn load(&self) -> Cmd {
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(&self.text);
        command
    }

    /// Its name on the servers; the first call asks one.
    async fn sha(&self, servers: &Servers, partition: u8, line: Line) -> Result<&str, Trouble> {
        if let Some(sha) = self.sha.get() {
            return Ok(sha);
        }
        let loaded = servers.ask(partition, line, Question::One(&self.load())).await?;
        let sha = match loaded.into_iter().next() {
            Some(Value::BulkString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Value::SimpleString(text)) => text,
            _ => {
                return Err(Trouble::new(
                    Why::Other,
                    "the server does not tell the name of a script",
                ));
            }
        };
        Ok(self.sha.get_or_init(|| sha))
    }

    /// Runs it for a partition. `fill` adds the number of keys, the keys and the arguments.
    pub(super) async fn run(
        &self,
        servers: &Servers,
        (partition, line): (u8, Line),
        size: usize,
        fill: impl FnOnce(&mut Cmd),
    ) -> Result<Value, StoreError> {
        let sha = self.sha(servers, partition, line).await?;
        let mut command = Cmd::with_capacity(20, size + 128);
        command.arg("EVALSHA").arg(sha);
        fill(&mut command);
        let wait = servers.how.wait;
        let mut answers = match wait.is_asked() && line == Line::Requests {
            false => self.ask(servers, (partition, line), Question::One(&command)).await?,
            true => {
                let waiting = waiting(command, wait);
                self.ask(servers, (partition, line), Question::Several(&waiting)).await?
            }
        };
        check_copies(&answers[1..], wait)?;
        Ok(answers.swap_remove(0))
    }

    /// Runs it for a partition, and tells what kept it from running.
    pub(super) async fn ask_whole(
        &self,
        servers: &Servers,
        (partition, line): (u8, Line),
        fill: impl FnOnce(&mut Cmd),
    ) -> Result<Value, Trouble> {
        let sha = self.sha(servers, partition, line).await?;
        let mut command = redis::cmd("EVALSHA");
        command.arg(sha);
        fill(&mut command);
        let mut answers = self.ask(servers, (partition, line), Question::One(&command)).await?;
        Ok(answers.swap_remove(0))
    }

    /// A server that was started anew has forgotten all scripts.
    async fn ask(
        &self,
        servers: &Servers,
        (partition, line): (u8, Line),
        question: Question<'_>,
    ) -> Result<Vec<Value>, Trouble> {
        let asked = servers.ask(partition, line, question).await;
        let Err(Trouble { why: Why::NoScript, .. }) = asked else { return asked };
        let mut pipeline = Pipeline::new();
        pipeline.add_command(self.load());
        match question {
            Question::One(command) => _ = pipeline.add_command(command.clone()),
            Question::Several(commands) => {
                for command in commands.cmd_iter() {
                    pipeline.add_command(command.clone());
                }
            }
        }
        let mut answers = servers.ask(partition, line, Question::Several(&pipeline)).await?;
        answers.remove(0);
        Ok(answers)
    }
}

/// A change waits for its copies on the connection on which it was written.
pub(super) fn waiting(command: Cmd, wait: Wait) -> Pipeline {
    let mut pipeline = Pipeline::new();
    pipeline.add_command(command);
    add_waiting(&mut pipeline, wait);
    pipeline
}

pub(super) fn add_waiting(pipeline: &mut Pipeline, wait: Wait) {
    let millis = u64::try_from(wait.timeout.as_millis()).unwrap_or(u64::MAX);
    if wait.replicas > 0 {
        pipeline.cmd("WAIT").arg(wait.replicas).arg(millis);
    }
    if let Some((own, replicas)) = wait.logs {
        pipeline.cmd("WAITAOF").arg(own).arg(replicas).arg(millis);
    }
}

/// What was not copied in time is not called made: it may be there, and may be lost.
pub(super) fn check_copies(answers: &[Value], wait: Wait) -> Result<(), StoreError> {
    let mut answers = answers.iter();
    let late = |what: String| {
        Err(StoreError::Unavailable(format!(
            "{what} within {:?}: the change was made, and a failover now may lose it",
            wait.timeout
        )))
    };
    if wait.replicas > 0
        && let Some(answer) = answers.next()
    {
        let copies = super::rows::number(answer)?;
        if copies < i64::from(wait.replicas) {
            return late(format!("{copies} of {} replicas have it", wait.replicas));
        }
    }
    if let Some((own, replicas)) = wait.logs
        && let Some(Value::Array(answer)) = answers.next()
    {
        let counts: Vec<i64> = answer.iter().map(super::rows::number).collect::<Result<_, _>>()?;
        let is_there =
            counts.len() == 2 && counts[0] >= i64::from(own) && counts[1] >= i64::from(replicas);
        if !is_there {
            return late("the logs on disk do not have it".to_owned());
        }
    }
    Ok(())
}
