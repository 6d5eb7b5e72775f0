//! Processes and those that descend from them, as Linux lists them.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

/// User and system time of a process, of those that descend from it, and of its children that have ended;
/// `None` where the system does not tell.
pub fn cpu_time_with_ended(ancestor: u32) -> Option<Duration> {
    Some(time(family(ancestor)?.iter().map(|member| member.ticks + member.of_ended).sum()))
}

/// The same without those that have ended.
pub(super) fn cpu_time(ancestor: u32) -> Option<Duration> {
    Some(time(family(ancestor)?.iter().map(|member| member.ticks).sum()))
}

/// Whether a process can still do something; one that nobody waited for cannot.
pub(super) fn lives(id: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
}

pub(super) struct Member {
    pub(super) id: u32,
    parent: u32,
    ticks: u64,
    /// Those of its children that have ended.
    of_ended: u64,
}

/// A process and those that descend from it; `None` where there is no list.
pub(super) fn family(ancestor: u32) -> Option<Vec<Member>> {
    let members = fs::read_dir("/proc").ok()?.filter_map(|entry| {
        let id = entry.ok()?.file_name().to_str()?.parse().ok()?;
        member(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    });
    let (mut family, mut others): (Vec<_>, Vec<_>) = members.partition(|one| one.id == ancestor);
    let mut grown = true;
    while grown {
        let (children, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|one| family.iter().any(|member| member.id == one.parent));
        grown = !children.is_empty();
        family.extend(children);
        others = rest;
    }
    Some(family)
}

fn member(id: u32, stat: &str) -> Option<Member> {
    // The name, in parentheses, may contain anything; user and system time are fields 14 and 15.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let parent = u32::try_from(number(1)?).ok()?;
    // The two behind them are of children that have ended.
    let (ticks, of_ended) = (number(11)? + number(12)?, number(13)? + number(14)?);
    Some(Member { id, parent, ticks, of_ended })
}

fn time(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "77 (a) b) S 12 77 77 0 -1 4194560 1 0 0 0 30 4 5 1 20 0 1 0 5 6 7";
        let member = member(77, stat).unwrap();
        assert_eq!((member.id, member.parent), (77, 12));
        assert_eq!((member.ticks, member.of_ended), (34, 6));
    }
}
