//! The least that a client can do: the store's own commands, sent by a loop that thinks of nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ::redis::{AsyncConnectionConfig, RedisConnectionInfo, Value, aio::MultiplexedConnection};
use onceward::store::redis::RedisStoreBuilder;
use testbed::RedisServer;
use tokio::{net::TcpStream, runtime::Runtime, task::JoinSet};

use crate::{
    Failure,
    load::Lap,
    redis::sample::{Names, Sample},
};

/// Loops that send pairs until they are stopped, so many at the same time.
pub(crate) struct Bare {
    stopped: Arc<AtomicBool>,
    tasks: JoinSet<Result<Vec<Lap>, Failure>>,
    drivers: JoinSet<()>,
}

/// As the store opens them.
const PIPELINE: usize = 1024;
const TIMEOUT: Duration = Duration::from_secs(5);

impl Bare {
    /// Starts the loops on as many connections as the store has.
    pub(crate) fn start(
        runtime: &Runtime,
        server: &RedisServer,
        sample: &Sample,
        in_flight: usize,
    ) -> Result<Self, Failure> {
        let (mut connections, mut drivers) = (Vec::new(), JoinSet::new());
        for _ in 0..RedisStoreBuilder::CONNECTIONS {
            connections.push(runtime.block_on(open(server, &mut drivers))?);
        }
        let (stopped, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
        for _ in 0..in_flight {
            let repeating = repeat(connections.clone(), sample.clone(), Arc::clone(&stopped));
            tasks.spawn_on(repeating, runtime.handle());
        }
        Ok(Self { stopped, tasks, drivers })
    }

    /// Lets every loop end what it has begun, and returns all laps, in no order.
    pub(crate) fn stop(self, runtime: &Runtime) -> Result<Vec<Lap>, Failure> {
        self.stopped.store(true, Ordering::Relaxed);
        let mut laps = Vec::new();
        for of_task in runtime.block_on(self.tasks.join_all()) {
            laps.append(&mut of_task?);
        }
        drop(self.drivers);
        Ok(laps)
    }
}

async fn open(
    server: &RedisServer,
    drivers: &mut JoinSet<()>,
) -> Result<MultiplexedConnection, Failure> {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
    stream.set_nodelay(true)?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(TIMEOUT));
    let config = config.set_pipeline_buffer_size(PIPELINE);
    let info = RedisConnectionInfo::default().set_skip_set_lib_name();
    let opening = MultiplexedConnection::new_with_config(&info, stream, config);
    let (connection, driver) = opening.await?;
    drivers.spawn(driver);
    Ok(connection)
}

async fn repeat(
    mut connections: Vec<MultiplexedConnection>,
    mut sample: Sample,
    stopped: Arc<AtomicBool>,
) -> Result<Vec<Lap>, Failure> {
    let mut laps = Vec::new();
    let mut names = Names { digest: [0; 32], claim: [0; 16], end: [0; 16] };
    while !stopped.load(Ordering::Relaxed) {
        fastrand::fill(&mut names.digest);
        fastrand::fill(&mut names.claim);
        fastrand::fill(&mut names.end);
        let line = usize::from(names.digest[0]) % connections.len();
        let started = Instant::now();
        for command in [sample.claim(&names), sample.settlement(&names)] {
            match connections[line].send_packed_command(&command).await? {
                Value::Int(_) => {}
                other => return Err(format!("a change was not made: {other:?}").into()),
            }
        }
        let ended = Instant::now();
        laps.push(Lap { ended, took: ended - started });
    }
    Ok(laps)
}
