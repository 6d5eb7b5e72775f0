//! One server, and the connections to it: opened when they are needed, and anew when they break.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use redis::{Cmd, Pipeline, RedisResult, Value, aio::MultiplexedConnection};

use super::{
    connect::{self, ConnectOptions, Opened},
    error::{Trouble, Why},
};

/// What is asked in one go.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    One(&'a Cmd),
    /// Behind each other on one connection, without waiting.
    Several(&'a Pipeline),
}

/// An open connection.
pub(super) struct Link(Opened);

impl Drop for Link {
    fn drop(&mut self) {
        self.0.driver.abort();
    }
}

impl Link {
    pub(super) fn of(opened: Opened) -> Self {
        Self(opened)
    }

    /// The answers; the first one that is an error stands for all.
    pub(super) async fn ask(&self, question: Question<'_>) -> Result<Vec<Value>, Trouble> {
        let answers = self.ask_each(question).await?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                return Err(Trouble::answered(error));
            }
        }
        Ok(answers)
    }

    /// The answers, errors among them.
    pub(super) async fn ask_each(&self, question: Question<'_>) -> Result<Vec<Value>, Trouble> {
        let mut connection: MultiplexedConnection = self.0.connection.clone();
        let answered: RedisResult<Vec<Value>> = match question {
            Question::One(command) => {
                connection.send_packed_command(command).await.map(|answer| vec![answer])
            }
            Question::Several(commands) => {
                connection.send_packed_commands(commands, 0, commands.len()).await
            }
        };
        answered.map_err(|error| Trouble::of(&error))
    }
}

/// One server.
pub(super) struct Node {
    pub(super) host: String,
    pub(super) port: u16,
    lines: Box<[ConnectionPlace]>,
}

/// A place for a connection.
#[derive(Default)]
struct ConnectionPlace {
    link: Mutex<Option<Arc<Link>>>,
    /// Held while it is opened, with what went wrong last: those who waited meanwhile need not try again.
    opening: tokio::sync::Mutex<Option<(Instant, Trouble)>>,
}

impl Node {
    /// Nothing is opened yet. There is one connection more than requests have, for operators.
    pub(super) fn new(how: &ConnectOptions, host: &str, port: u16) -> Self {
        let lines = (0..=how.connections).map(|_| ConnectionPlace::default()).collect();
        Self { host: host.to_owned(), port, lines }
    }

    pub(super) fn is_at(&self, host: &str, port: u16) -> bool {
        (self.host.as_str(), self.port) == (host, port)
    }

    /// Asks on one of its connections. A connection that broke is left.
    pub(super) async fn ask(
        &self,
        how: &ConnectOptions,
        line: usize,
        question: Question<'_>,
    ) -> Result<Vec<Value>, Trouble> {
        let link = self.link(how, line).await?;
        let answered = link.ask(question).await;
        if let Err(trouble) = &answered
            && matches!(trouble.why, Why::Broken | Why::ReadOnly)
        {
            self.leave(line, &link);
        }
        answered
    }

    pub(super) async fn link(
        &self,
        how: &ConnectOptions,
        line: usize,
    ) -> Result<Arc<Link>, Trouble> {
        let line = &self.lines[line % self.lines.len()];
        if let Some(link) = line.open_one() {
            return Ok(link);
        }
        let began = Instant::now();
        let mut opening = line.opening.lock().await;
        if let Some(link) = line.open_one() {
            return Ok(link);
        }
        if let Some((_, trouble)) = opening.as_ref().filter(|(at, _)| *at >= began) {
            return Err(trouble.clone());
        }
        let address = &how.address;
        let opened = connect::open(how, (&self.host, self.port), &address.login, address.database);
        match opened.await {
            Ok(opened) => {
                let link = Arc::new(Link(opened));
                *line.current() = Some(Arc::clone(&link));
                Ok(link)
            }
            Err(trouble) => {
                *opening = Some((Instant::now(), trouble.clone()));
                Err(trouble)
            }
        }
    }

    /// The next caller opens another one; those who still wait on this one get their answers or their errors.
    pub(super) fn leave(&self, line: usize, link: &Arc<Link>) {
        let mut current = self.lines[line % self.lines.len()].current();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            *current = None;
        }
    }
}

impl ConnectionPlace {
    /// The connection, unless it has ended: nothing is asked on one of which that is known.
    fn open_one(&self) -> Option<Arc<Link>> {
        self.current().as_ref().filter(|link| !link.0.driver.is_finished()).map(Arc::clone)
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
