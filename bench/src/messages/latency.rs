//! From the commit to the sink, at a low rate.

use std::{collections::HashMap, time::Duration};

use onceward::outbox::{NewMessage, Outbox, Waker};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    Failure,
    measure::quantile,
    messages::{
        monotonic_nanos,
        own::{Own, connect},
        peers::{Peer, PeerName},
    },
    postgres::{
        script::{CENTS, CUSTOMER, INSERT_CHARGE},
        site::Site,
    },
};

/// Commits in a second.
pub(crate) const RATE: u32 = 50;

/// How long the last message may take.
const LAST: Duration = Duration::from_secs(1);

/// Who delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Our relay, which looks again and again.
    Own,
    /// Our relay, woken by the process that committed.
    OwnWoken,
    /// graphile-worker, woken by `NOTIFY`.
    Graphile,
}

/// Times from commits to deliveries, all rounds together.
pub(crate) struct Row {
    pub(crate) who: Who,
    times: Vec<Duration>,
}

impl Row {
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        quantile(&self.times, share)
    }

    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }
}

pub(crate) fn run(
    site: &Site,
    peers: &[Peer],
    rounds: u32,
    turn: Duration,
) -> Result<Vec<Row>, Failure> {
    let own = Own::new(site)?;
    let graphile = peers.iter().find(|peer| peer.name == PeerName::GraphileWorker);
    let mut rows: Vec<_> = [Who::Own, Who::OwnWoken]
        .into_iter()
        .chain(graphile.map(|_| Who::Graphile))
        .map(|who| Row { who, times: Vec::new() })
        .collect();
    let number = (turn.as_secs_f64() * f64::from(RATE)).ceil().max(1.0) as u64;
    for _ in 0..rounds {
        for row in &mut rows {
            let times = match (row.who, graphile) {
                (Who::Graphile, Some(peer)) => of_graphile(site, peer, number)?,
                (who, _) => of_own(site, &own, number, who == Who::OwnWoken)?,
            };
            row.times.extend(times);
        }
    }
    for row in &mut rows {
        row.times.sort_unstable();
    }
    Ok(rows)
}

fn of_own(site: &Site, own: &Own, number: u64, is_woken: bool) -> Result<Vec<Duration>, Failure> {
    // The sink has its place before the first commit, however late the relay starts.
    own.pass_all(site)?;
    let listening = own.listen(site)?;
    let waker = is_woken.then(|| listening.waker.clone());
    let committed = site.runtime.block_on(produce(own, number, waker))?;
    listening.wait_for(number as usize);
    between(&committed, &listening.end(site)?)
}

async fn produce(
    own: &Own,
    number: u64,
    waker: Option<Waker>,
) -> Result<HashMap<u64, u64>, Failure> {
    // Until the relay has its lanes.
    sleep(LAST).await;
    let outbox = Outbox::new(own.store.clone());
    let mut client = connect(own.place.url()).await?;
    let insert = client.prepare(INSERT_CHARGE).await?;
    let (mut committed, begun) = (HashMap::new(), Instant::now());
    for n in 0..number {
        sleep_until(begun + due(n)).await;
        let mut transaction = client.transaction().await?;
        transaction.execute(&insert, &[&CUSTOMER, &CENTS]).await?;
        let message = NewMessage::new("charge.made", n.to_string())?;
        outbox.enqueue(&mut transaction, message.aggregate(&format!("order-{n}"))?).await?;
        committed.insert(n, monotonic_nanos());
        transaction.commit().await?;
        if let Some(waker) = &waker {
            waker.wake();
        }
    }
    sleep(LAST).await;
    Ok(committed)
}

fn of_graphile(site: &Site, peer: &Peer, number: u64) -> Result<Vec<Duration>, Failure> {
    peer.listen()?;
    let committed = site.runtime.block_on(async {
        sleep(LAST).await;
        let mut client = connect(peer.place.url()).await?;
        let insert = client.prepare(INSERT_CHARGE).await?;
        let add = client.prepare("SELECT graphile_worker.add_job('bench', $1::text::json)").await?;
        let (mut committed, begun) = (HashMap::new(), Instant::now());
        for n in 0..number {
            sleep_until(begun + due(n)).await;
            let transaction = client.transaction().await?;
            transaction.execute(&insert, &[&CUSTOMER, &CENTS]).await?;
            transaction.execute(&add, &[&format!("{{\"n\":{n}}}")]).await?;
            committed.insert(n, monotonic_nanos());
            transaction.commit().await?;
        }
        sleep(LAST).await;
        Ok::<_, Failure>(committed)
    })?;
    between(&committed, &peer.end()?)
}

/// When a message is committed, a little irregular, so that no poll is in step with it.
fn due(n: u64) -> Duration {
    let every = Duration::from_secs(1) / RATE;
    every.mul_f64(n as f64 + fastrand::f64())
}

fn between(committed: &HashMap<u64, u64>, heard: &[(u64, u64)]) -> Result<Vec<Duration>, Failure> {
    let times: Vec<_> = heard
        .iter()
        .filter_map(|(n, at)| Some(Duration::from_nanos(at.saturating_sub(*committed.get(n)?))))
        .collect();
    match times.len() == committed.len() {
        true => Ok(times),
        false => {
            Err(format!("{} of {} messages were delivered", times.len(), committed.len()).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_does_not_come_is_a_failure() {
        let committed = HashMap::from([(0, 1_000), (1, 2_000)]);
        let times = between(&committed, &[(1, 2_500), (0, 1_001)]).unwrap();
        assert_eq!(times, [Duration::from_nanos(500), Duration::from_nanos(1)]);
        assert!(between(&committed, &[(1, 2_500)]).is_err());
    }
}
