//! The worst moment of the demo: a gateway is killed with everything that it was doing.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use serde::Serialize;
use tokio::{
    sync::mpsc::UnboundedSender,
    time::{Instant, sleep, sleep_until},
};

use super::{
    BoxError,
    gateways::{Gateways, NAMES},
};
use crate::commands::terminal::millis;

const VICTIM: usize = 1;
/// How long it stays away: a little longer than its lease and its longest run, so that the upstream may
/// answer "never" when it asks what became of its charges.
const AWAY: Duration = Duration::from_millis(1200);

#[derive(Clone, Debug, Serialize)]
pub(super) struct Kill {
    pub(super) gateway: &'static str,
    pub(super) process: u32,
    pub(super) next_process: u32,
    pub(super) after_ms: u64,
    pub(super) away_ms: u64,
    #[serde(skip)]
    pub(super) at: SystemTime,
    #[serde(skip)]
    pub(super) address: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    Killed { gateway: &'static str, process: u32 },
    Back { gateway: &'static str, process: u32, away: Duration },
}

impl fmt::Display for News {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { gateway, process } => {
                write!(formatter, "gateway {gateway} killed (process {process}, SIGKILL)")
            }
            Self::Back { gateway, process, away } => {
                let away = away.as_secs_f64();
                write!(formatter, "gateway {gateway} back after {away:.1} s (process {process})")
            }
        }
    }
}

pub(super) async fn kill(
    gateways: &mut Gateways,
    started: Instant,
    at: Instant,
    news: UnboundedSender<News>,
) -> Result<Kill, BoxError> {
    sleep_until(at).await;
    let gateway = NAMES[VICTIM];
    let address = gateways.address(VICTIM).to_string();
    let process = gateways.process(VICTIM).ok_or("gateway B has ended by itself")?;
    let (killed_at, clock) = (Instant::now(), SystemTime::now());
    gateways.kill(VICTIM).await?;
    let _ = news.send(News::Killed { gateway, process });
    sleep(AWAY).await;
    gateways.start_again(VICTIM).await?;
    let next_process = gateways.process(VICTIM).ok_or("gateway B does not stay")?;
    let away = killed_at.elapsed();
    let _ = news.send(News::Back { gateway, process: next_process, away });
    Ok(Kill {
        gateway,
        process,
        next_process,
        after_ms: millis(killed_at - started),
        away_ms: millis(away),
        at: clock,
        address,
    })
}

#[cfg(test)]
impl Kill {
    /// Of the gateway that listens on 127.0.0.1:2.
    pub(super) fn example(at: SystemTime) -> Self {
        let (process, next_process, address) = (11, 12, "127.0.0.1:2".into());
        Self { gateway: "B", process, next_process, after_ms: 2500, away_ms: 1260, at, address }
    }
}
