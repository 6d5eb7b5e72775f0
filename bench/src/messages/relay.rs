//! A backlog of committed messages, delivered to a sink that does nothing.

use std::time::Duration;

use crate::{
    Failure,
    measure::median,
    messages::{
        own::Own,
        peers::{Peer, PeerName},
    },
    postgres::site::{BenchDatabase, Cpu, Site},
    progress::Progress,
};

/// What a run found out.
pub(crate) struct Relayed {
    pub(crate) messages: u64,
    pub(crate) own: Row,
    pub(crate) peers: Vec<(PeerName, Row)>,
}

/// All turns of one queue.
#[derive(Default)]
pub(crate) struct Row {
    turns: Vec<Turn>,
}

/// One backlog.
#[derive(Clone, Copy)]
struct Turn {
    /// Messages in a second.
    rate: f64,
    /// For each message.
    cpu: Option<Cpu>,
}

impl Row {
    pub(crate) fn rate(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.rate))
    }

    /// This one ÷ another: the median of the rounds' ratios.
    pub(crate) fn to(&self, other: &Self) -> Option<f64> {
        median(self.turns.iter().zip(&other.turns).map(|(this, other)| this.rate / other.rate))
    }

    /// User and system time of the server or of the client for each message, in microseconds.
    pub(crate) fn cpu_micros(&self, whose: impl Fn(&Cpu) -> Duration) -> Option<f64> {
        median(self.turns.iter().filter_map(|turn| Some(whose(&turn.cpu?).as_secs_f64() * 1e6)))
    }

    /// Measures one backlog, which is there.
    fn turn(
        &mut self,
        site: &Site,
        place: &BenchDatabase,
        messages: u64,
        drain: impl FnOnce() -> Result<Duration, Failure>,
    ) -> Result<(), Failure> {
        // What filling left to do is done now.
        place.sql("ANALYZE; CHECKPOINT")?;
        let before = site.cpu();
        let took = drain()?;
        let cpu = site.cpu().zip(before).map(|(now, before)| now.since(before));
        let each = |time: Duration| time.div_f64(messages as f64);
        let cpu = cpu.map(|cpu| Cpu { server: each(cpu.server), client: each(cpu.client) });
        self.turns.push(Turn { rate: messages as f64 / took.as_secs_f64(), cpu });
        Ok(())
    }
}

pub(crate) fn run(
    site: &Site,
    peers: &[Peer],
    rounds: u32,
    messages: u64,
) -> Result<Relayed, Failure> {
    let own = Own::new(site)?;
    let (mut ours, mut theirs) = (Row::default(), Vec::new());
    theirs.resize_with(peers.len(), Row::default);
    // Once before it counts: connections, plans, compiled code.
    own.fill(site, messages)?;
    own.drain(site, messages)?;
    for peer in peers {
        peer.fill(messages)?;
        peer.drain(messages)?;
    }
    let mut progress = Progress::new("relay", rounds.into());
    for round in 1..=rounds {
        own.fill(site, messages)?;
        ours.turn(site, &own.place, messages, || Ok(own.drain(site, messages)?.took))?;
        for (peer, row) in peers.iter().zip(&mut theirs) {
            peer.fill(messages)?;
            row.turn(site, &peer.place, messages, || peer.drain(messages))?;
        }
        progress.at(round.into());
    }
    progress.end();
    let peers = peers.iter().map(|peer| peer.name).zip(theirs).collect();
    Ok(Relayed { messages, own: ours, peers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_and_not_of_medians() {
        let row =
            |rates: [f64; 3]| Row { turns: rates.map(|rate| Turn { rate, cpu: None }).into() };
        let (this, other) = (row([10.0, 40.0, 90.0]), row([10.0, 20.0, 10.0]));
        assert_eq!(
            (this.to(&other), this.rate(), this.cpu_micros(|cpu| cpu.server)),
            (Some(2.0), Some(40.0), None)
        );
    }
}
