//! Some seconds of bad network, and the picture of it.

use std::{
    error::Error,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{
    Options,
    clients::{Clients, Receipt},
    payments::Payments,
    screen::{Progress, Screen, Unwritable},
    service::Service,
    tally::Tally,
};

/// How often the picture is drawn.
const TICK: Duration = Duration::from_millis(80);

pub(super) struct Storm {
    clients: Clients,
    number: u16,
    started: Instant,
    lasts: Duration,
    payments: Arc<Payments>,
}

impl Storm {
    pub(super) fn new(options: &Options, seed: u64, service: &Service) -> Self {
        let (started, lasts) = (Instant::now(), Duration::from_secs(options.seconds.into()));
        let clients = Clients {
            server: service.address,
            tally: Arc::default(),
            seed,
            until: started + lasts,
            tap_numbers: Arc::new(AtomicU64::new(0)),
        };
        let payments = service.payments.clone();
        Self { clients, number: options.clients, started, lasts, payments }
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.clients.tally
    }

    /// Lets the clients tap until the time is over and every tap has an answer.
    pub(super) async fn weather(
        &self,
        screen: &mut Screen,
    ) -> Result<Vec<Receipt>, Box<dyn Error>> {
        let mut clients = self.clients.start(self.number);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut receipts = Vec::new();
        loop {
            tokio::select! {
                ended = clients.join_next() => match ended {
                    Some(ended) => receipts.extend(ended?),
                    None => return Ok(receipts),
                },
                _ = ticks.tick() => screen.progress(self.progress()).map_err(Unwritable)?,
            }
        }
    }

    fn progress(&self) -> Progress {
        let tally = self.tally();
        Progress {
            elapsed: self.started.elapsed(),
            whole: self.lasts,
            numbers: [
                ("taps", tally.taps.get()),
                ("requests", tally.requests.get()),
                ("lost", tally.lost.get()),
                ("conflicts", tally.conflicts.get()),
                ("replays", tally.replays.get()),
                ("executions", self.payments.executions()),
                ("charges", self.payments.charges()),
            ],
            story: tally.latest_story().map(|story| (self.payments.charges_of(&story.key), story)),
        }
    }
}
