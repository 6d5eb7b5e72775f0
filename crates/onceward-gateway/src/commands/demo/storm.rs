//! Some seconds of bad network, a gateway that dies, and the picture of it.

use std::{
    future::pending,
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::{
    sync::mpsc::unbounded_channel,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    BoxError, Options,
    clients::{Clients, Receipt},
    gateways::Gateways,
    kill::{self, Kill, News},
    ledger::Ledger,
    screen::{Progress, Screen, Unwritable},
    service::Service,
    tally::Tally,
};

const TICK: Duration = Duration::from_millis(80);

pub(super) struct Storm {
    clients: Clients,
    number: u16,
    started: Instant,
    lasts: Duration,
    ledger: Ledger,
}

pub(super) struct StormEnd {
    pub(super) receipts: Vec<Receipt>,
    pub(super) kill: Option<Kill>,
}

impl Storm {
    pub(super) fn new(options: &Options, seed: u64, service: &Service) -> Self {
        let (started, lasts) = (Instant::now(), Duration::from_secs(options.seconds.into()));
        let clients = Clients {
            doors: service.doors(),
            tally: Arc::default(),
            seed,
            until: started + lasts,
            tap_numbers: Arc::new(AtomicU64::new(0)),
        };
        let ledger = service.ledger().clone();
        Self { clients, number: options.clients, started, lasts, ledger }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.clients.tally
    }

    /// Lets the clients tap until the time is over and every tap has an answer. Half-way a gateway
    /// is killed.
    pub(super) async fn weather(
        &self,
        gateways: Option<&mut Gateways>,
        screen: &mut Screen,
    ) -> Result<StormEnd, BoxError> {
        let mut clients = self.clients.start(self.number);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (sender, mut news) = unbounded_channel();
        let (mut receipts, mut kill, mut down) = (Vec::new(), None, None);
        let is_to_be_killed = gateways.is_some();
        let mut killing = pin!(async {
            match gateways {
                Some(gateways) => {
                    kill::kill(gateways, self.started, self.started + self.lasts / 2, sender).await
                }
                None => pending().await,
            }
        });
        while !clients.is_empty() || (is_to_be_killed && kill.is_none()) {
            tokio::select! {
                Some(ended) = clients.join_next() => receipts.extend(ended?),
                killed = &mut killing, if kill.is_none() => kill = Some(killed?),
                Some(news) = news.recv() => {
                    screen.news(self.started.elapsed(), &news).map_err(Unwritable)?;
                    down = match news {
                        News::Killed { gateway, .. } => Some(gateway),
                        News::Back { .. } => None,
                    };
                }
                _ = ticks.tick() => screen.progress(self.progress(down)).map_err(Unwritable)?,
            }
        }
        while let Ok(news) = news.try_recv() {
            screen.news(self.started.elapsed(), &news).map_err(Unwritable)?;
        }
        Ok(StormEnd { receipts, kill })
    }

    fn progress(&self, down: Option<&'static str>) -> Progress {
        let tally = self.tally();
        // A refused key is no part of the picture: hardly any comes before the end.
        let numbers = tally.numbers(&self.ledger).lines().into_iter();
        Progress {
            elapsed: self.started.elapsed(),
            whole: self.lasts,
            down,
            numbers: numbers.filter(|(name, _)| *name != "refused").collect(),
            story: tally.latest_story().map(|story| (self.ledger.charges_of(&story.key), story)),
        }
    }
}
