//! Sinks that come and go, what is deleted, and a database that is a restored copy.

use std::{collections::BTreeMap, time::Duration};

use onceward_core::{
    Timestamp,
    message::{Lane, SinkId, SinkName, StartFrom, Sweep},
};

use super::{LaneState, Mark, Mistake, Outbox, Row, Sink, Snapshot, Step, lanes::own_fence};

const HOUR: Duration = Duration::from_secs(3600);

impl Outbox {
    /// Gives a sink, made if there is none, with these lanes.
    pub(crate) fn open_sink(
        &mut self,
        name: &SinkName,
        from: StartFrom,
        lanes: impl IntoIterator<Item = Lane>,
    ) -> SinkId {
        let known = self.sinks.iter().find(|(_, sink)| sink.name == *name);
        if let Some((number, _)) = known.filter(|_| !self.makes(Mistake::SinkStartsAnew)) {
            return SinkId(*number);
        }
        if self.makes(Mistake::SinkStartsAnew) {
            self.sinks.retain(|_, sink| sink.name != *name);
        }
        let mut now = self.snapshot();
        if self.makes(Mistake::NowSkipsOpenTransactions) {
            now.open.clear();
        }
        let mark = Mark::at(match from {
            StartFrom::Now => now,
            StartFrom::Oldest if self.makes(Mistake::OldestIsNow) => now,
            StartFrom::Oldest => Snapshot::nothing(),
        });
        let step = Step { fence: own_fence(0, 0), mark, at: self.now };
        let lane = LaneState {
            owner: None,
            until: Timestamp::from_unix_micros(0),
            steps: BTreeMap::from([(0, step)]),
            parked: BTreeMap::new(),
        };
        let lanes = lanes.into_iter().map(|number| (number, lane.clone())).collect();
        let sink = Sink { name: name.clone(), lanes, relays: BTreeMap::new() };
        let number = self.next_sink;
        self.next_sink += 1;
        self.sinks.insert(number, sink);
        SinkId(number)
    }

    pub(crate) fn remove_sink(&mut self, name: &SinkName) -> bool {
        let before = self.sinks.len();
        if self.makes(Mistake::RemovedSinkStays) {
            return self.sinks.values().any(|sink| sink.name == *name);
        }
        self.sinks.retain(|_, sink| sink.name != *name);
        self.sinks.len() < before
    }

    pub(crate) fn sweep(&mut self, retain: Duration, limit: u32) -> Sweep {
        let may_go = |row: &&Row| {
            let is_old = self.now.since(row.message.at) >= retain;
            let is_open = self.is_open(row);
            let is_due = is_old || self.makes(Mistake::SweepOfYoung);
            is_due && !is_open && self.is_over(row)
        };
        let limit = if self.makes(Mistake::SweepWithoutLimit) { u32::MAX } else { limit };
        let gone = self.rows.values().filter(may_go).map(|row| (row.seq, row.lane));
        let gone: Vec<_> = gone.take(limit as usize).collect();
        for (seq, lane) in &gone {
            self.rows.remove(seq);
            for sink in self.sinks.values_mut() {
                if let Some(lane) = sink.lanes.get_mut(lane) {
                    lane.parked.remove(seq);
                }
            }
        }
        let mut steps = 0;
        let now = self.now;
        for lane in self.sinks.values_mut().flat_map(|sink| sink.lanes.values_mut()) {
            let newest = lane.newest().0;
            let before = lane.steps.len();
            lane.steps.retain(|number, step| {
                let is_old = now.since(step.at) >= HOUR;
                *number == newest || !is_old
            });
            steps += u32::try_from(before - lane.steps.len()).unwrap_or(u32::MAX);
        }
        Sweep { messages: u32::try_from(gone.len()).unwrap_or(u32::MAX), steps }
    }

    /// No sink will send it any more.
    fn is_over(&self, row: &Row) -> bool {
        if self.sinks.is_empty() {
            return self.makes(Mistake::SweepWithoutSinks);
        }
        let mut sinks = self.sinks.values();
        let is_over_at = |sink: &Sink| {
            let lane = &sink.lanes[&row.lane];
            let entry = lane.parked.get(&row.seq).filter(|_| !self.makes(Mistake::ParkedSwept));
            let is_passed = self.has_passed(&lane.newest().1.mark, row);
            is_passed && entry.is_none_or(|entry| !entry.is_open())
        };
        match self.mistake {
            Some(Mistake::SweepByOneSink) => sinks.any(is_over_at),
            _ => sinks.all(is_over_at),
        }
    }

    /// Why relays must not go on.
    pub(crate) fn alarm(&self) -> Option<String> {
        if self.makes(Mistake::NoAlarm) {
            return None;
        }
        let is_ahead = |snapshot: &Snapshot| snapshot.xmax > self.next_xid;
        let lanes = self.sinks.values().flat_map(|sink| sink.lanes.values());
        let mut marks = lanes.map(|lane| &lane.newest().1.mark);
        let is_moved = (self.cluster != self.home && !self.makes(Mistake::AlarmByNumbersOnly))
            || self.rows.values().any(|row| row.xid >= self.next_xid)
            || marks.any(|mark| is_ahead(&mark.base) || mark.target.as_ref().is_some_and(is_ahead));
        is_moved.then(|| "the database is a restored copy: rebase the outbox".to_owned())
    }

    /// The database is restored into another cluster, whose numbers of transactions are lower.
    pub(crate) fn restore(&mut self) {
        for xid in self.open.keys().copied().collect::<Vec<_>>() {
            self.roll_back(xid);
        }
        self.cluster += 1;
        self.next_xid = 1;
    }

    /// Gives what is undelivered a number of this cluster, and begins every lane before it, in one transaction with
    /// the producers locked out. What this cluster has written since the restore counts as undelivered, although the old
    /// cursors seem to have passed it.
    pub(crate) fn rebase(&mut self) {
        self.home = self.cluster;
        let own = self.next_xid;
        self.next_xid += 1;
        let is_dealt_with = |row: &Row| {
            self.sinks.values().all(|sink| {
                let lane = &sink.lanes[&row.lane];
                let mark = &lane.newest().1.mark;
                let is_known = row.seq <= mark.base.floor.max(mark.done);
                (is_known && self.has_passed(mark, row)) || lane.parked.contains_key(&row.seq)
            })
        };
        let old = self.rows.values().filter(|row| is_dealt_with(row)).map(|row| row.seq);
        let old: Vec<_> = old.collect();
        for row in self.rows.values_mut() {
            row.xid = if old.contains(&row.seq) { 0 } else { own };
        }
        let base = Snapshot { xmax: own, ..self.snapshot() };
        for lane in self.sinks.values_mut().flat_map(|sink| sink.lanes.values_mut()) {
            let number = lane.newest().0;
            lane.append(Mark::at(base.clone()), own_fence(4, number), self.now);
        }
    }
}
