//! Conditions that make others slower: an old snapshot, many delivered messages, a long backlog.

use std::time::{Duration, Instant};

use crate::{
    Failure,
    measure::median,
    messages::own::{Own, connect},
    postgres::site::Site,
};

/// A condition and what it is compared with.
pub(crate) struct Compared {
    /// How much of it there was: seconds or messages.
    pub(crate) size: f64,
    /// Messages in a second, by rounds: under the condition, without it.
    pub(crate) turns: Vec<(f64, f64)>,
}

impl Compared {
    /// The median of the rounds' ratios.
    pub(crate) fn ratio(&self) -> Option<f64> {
        median(self.turns.iter().map(|(under, without)| under / without))
    }

    pub(crate) fn under(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.0))
    }

    pub(crate) fn without(&self) -> Option<f64> {
        median(self.turns.iter().map(|turn| turn.1))
    }
}

/// Two databases are filled and drained in turns; in one of them a snapshot is held, so that nothing which
/// changed since can be cleaned up there. The second half of that time counts.
pub(crate) fn old_snapshot(
    site: &Site,
    hold: Duration,
    messages: u64,
) -> Result<Compared, Failure> {
    let (held, free) = (Own::new(site)?, Own::new(site)?);
    for own in [&held, &free] {
        own.fill(site, messages)?;
        own.drain(site, messages)?;
    }
    let holder = site.runtime.block_on(async {
        let client = connect(held.place.url()).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onceward.step";
        client.batch_execute(begin).await?;
        Ok::<_, Failure>(client)
    })?;
    let (begun, mut turns) = (Instant::now(), Vec::new());
    while turns.is_empty() || begun.elapsed() < hold {
        let at = begun.elapsed();
        let turn = (backlog(site, &held, messages)?, backlog(site, &free, messages)?);
        turns.push((at, turn));
    }
    let still_there = site.runtime.block_on(holder.batch_execute("COMMIT"));
    still_there.map_err(|error| format!("the snapshot was not held: {error}"))?;
    let half = begun.elapsed() / 2;
    let counts = |at: Duration| at >= half || turns.len() == 1;
    let late = turns.iter().filter(|(at, _)| counts(*at)).map(|(_, turn)| *turn).collect();
    Ok(Compared { size: begun.elapsed().as_secs_f64(), turns: late })
}

fn backlog(site: &Site, own: &Own, messages: u64) -> Result<f64, Failure> {
    own.fill(site, messages)?;
    Ok(messages as f64 / own.drain(site, messages)?.took.as_secs_f64())
}

/// Two databases; in one of them so many messages were delivered before, in the other none.
pub(crate) fn delivered(
    site: &Site,
    rounds: u32,
    delivered: u64,
    messages: u64,
) -> Result<Compared, Failure> {
    let (full, empty) = (Own::new(site)?, Own::new(site)?);
    full.fill(site, delivered)?;
    for own in [&full, &empty] {
        own.pass_all(site)?;
        own.place.sql("VACUUM ANALYZE onceward.message; CHECKPOINT")?;
    }
    let mut turns = Vec::new();
    for _ in 0..rounds {
        turns.push((backlog(site, &full, messages)?, backlog(site, &empty, messages)?));
        empty.place.sql("TRUNCATE onceward.message")?;
    }
    Ok(Compared { size: delivered as f64, turns })
}

/// A long backlog and short ones of the same aggregates, all in one lane.
///
/// Their rates are those between the first message and the last one, because the start of a relay would make
/// the short ones slower.
pub(crate) fn one_lane(
    site: &Site,
    rounds: u32,
    long: u64,
    short: u64,
) -> Result<Compared, Failure> {
    let own = Own::new(site)?;
    own.name_one_lane()?;
    let rate = |number: u64| {
        own.fill_one_lane(site, number)?;
        own.place.sql("ANALYZE onceward.message")?;
        let flowed = own.drain(site, number)?.flowed;
        Ok::<_, Failure>(number.saturating_sub(1) as f64 / flowed.as_secs_f64())
    };
    let mut around = Vec::new();
    for _ in 0..rounds {
        around.push(rate(short)?);
    }
    let of_long = rate(long)?;
    for _ in 0..rounds {
        around.push(rate(short)?);
    }
    let without = median(around).ok_or("there were no rounds")?;
    Ok(Compared { size: long as f64, turns: vec![(of_long, without)] })
}
