//! How many commands go to the server for a request: each is a round trip that the client waits for.

use onceward::{Ending, Engine, Verdict, protocol::Claim};
use testbed::{RedisServer, RedisWatch};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    load::{Work, answer},
    redis::site,
};

/// How often each is done.
pub(crate) const TIMES: u64 = 100;

/// Commands of clients for each, all connections together.
pub(crate) struct Trips {
    pub(crate) claim: f64,
    pub(crate) busy: f64,
    pub(crate) settlement: f64,
    pub(crate) replay: f64,
}

/// Counts them with an engine, after one pair that makes the connections and brings the scripts.
pub(crate) fn count(runtime: &Runtime, server: &RedisServer) -> Result<Trips, Failure> {
    let (store, work) = (site::open(runtime, server)?, Work::default());
    let engine = Engine::new(store);
    // A settlement runs on by itself, on this runtime.
    let _inside = runtime.enter();
    // Numbers that no other part has; enough to use all connections.
    let first = 1 << 62;
    for number in first..first + 20 {
        let claim = runtime.block_on(claim(&engine, &work, number))?;
        runtime.block_on(engine.settle(claim, Ending::Succeeded(answer())))?;
    }
    let numbers = first + 20..first + 20 + TIMES;
    let mut watch = server.watch()?;
    let mut claims = Vec::new();
    for number in numbers.clone() {
        claims.push(runtime.block_on(claim(&engine, &work, number))?);
    }
    let claim = each(&mut watch)?;
    for number in numbers.clone() {
        let verdict = runtime.block_on(engine.admit(work.request_again(number)))?;
        if !matches!(verdict, Verdict::Busy { .. }) {
            return Err(format!("a duplicate of what runs is told {verdict:?}").into());
        }
    }
    let busy = each(&mut watch)?;
    for claim in claims {
        runtime.block_on(engine.settle(claim, Ending::Succeeded(answer())))?;
    }
    let settlement = each(&mut watch)?;
    for number in numbers {
        let verdict = runtime.block_on(engine.admit(work.request_again(number)))?;
        if !matches!(verdict, Verdict::Replay(_)) {
            return Err(format!("a duplicate of what has ended is told {verdict:?}").into());
        }
    }
    Ok(Trips { claim, busy, settlement, replay: each(&mut watch)? })
}

async fn claim(engine: &Engine, work: &Work, number: u64) -> Result<Claim, Failure> {
    match engine.admit(work.request_again(number)).await? {
        Verdict::Run(claim) => Ok(claim),
        other => Err(format!("a fresh key was not given a claim: {other:?}").into()),
    }
}

fn each(watch: &mut RedisWatch) -> Result<f64, Failure> {
    // Those of the connection that only listens are no trips of a request.
    let is_asked = |name: &[u8]| ![&b"PING"[..], b"SUBSCRIBE"].contains(&name);
    let commands = watch.commands()?;
    let asked = commands.iter().filter(|words| is_asked(&words[0])).count();
    Ok(asked as f64 / TIMES as f64)
}
