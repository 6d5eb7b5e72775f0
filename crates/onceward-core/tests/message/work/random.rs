//! What every page comes to, whatever the sink says and in whichever order.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use onceward_core::message::{Advance, Aggregate, DeadLetters, Fresh, Next, Page, Parking, Token};
use proptest::prelude::*;

use super::{SECOND, begin_with, due, failed, fresh, page, place, settle};

/// A random page, and what the sink says to each message in turn.
#[derive(Clone, Debug)]
struct Case {
    due: Vec<(u8, u32)>,
    fresh: Vec<(u8, bool)>,
    answers: Vec<u8>,
    /// Which of those in flight is answered next.
    picks: Vec<prop::sample::Index>,
    dead_letters: DeadLetters,
    /// After so many answers the page is closed.
    closed_after: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let due = prop::collection::vec((0..3_u8, 0..4_u32), 0..5);
    let fresh = prop::collection::vec((0..4_u8, any::<bool>()), 0..8);
    let answers = prop::collection::vec(0..12_u8, 16);
    let picks = prop::collection::vec(any::<prop::sample::Index>(), 16);
    let dead_letters = prop::sample::select(vec![DeadLetters::Block, DeadLetters::Skip]);
    let closed_after = 0..20_usize;
    (due, fresh, answers, picks, dead_letters, closed_after).prop_map(
        |(due, fresh, answers, picks, dead_letters, closed_after)| Case {
            due,
            fresh,
            answers,
            picks,
            dead_letters,
            closed_after,
        },
    )
}

fn answer(number: u8) -> Next {
    match number {
        0 => failed(SECOND),
        1 => Next::Die { why: "400".into() },
        2 => Next::Hold { why: "410".into() },
        3 => Next::Postpone { wait: SECOND, why: "503".into() },
        4 => Next::Pause { wait: None },
        5 => Next::GiveWay { attempts: 1, wait: SECOND, why: "503".into() },
        _ => Next::Delivered,
    }
}

impl Case {
    /// Aggregate 3 has no due ones, and is blocked if the first of its new ones is.
    fn page(&self) -> Page {
        let name = |aggregate: u8| format!("aggregate-{aggregate}");
        let parked = (1..).zip(&self.due);
        let parked =
            parked.map(|(place, (aggregate, attempts))| due(place, &name(*aggregate), *attempts));
        let is_blocked = |aggregate: u8| {
            aggregate == 3 && self.fresh.iter().find(|one| one.0 == 3).is_some_and(|one| one.1)
        };
        let new = (100..).zip(&self.fresh);
        let new = new.map(|(place, (aggregate, _))| Fresh {
            is_blocked: is_blocked(*aggregate),
            ..fresh(place, &name(*aggregate))
        });
        page(parked.collect(), new.collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Whatever the sink says and in whichever order its answers come: one message of an aggregate is in flight, in
    /// order; none passes one that blocks; every new message up to where the lane moves is delivered or parked,
    /// and none after it is spoken of.
    #[test]
    fn every_page_keeps_the_order_and_loses_nothing(case in cases()) {
        let page = case.page();
        let mut work = begin_with(page.clone(), case.dead_letters);
        let mut in_flight: VecDeque<Token> = VecDeque::new();
        let mut delivered = BTreeSet::new();
        let mut last_of: BTreeMap<Aggregate, i64> = BTreeMap::new();
        let mut stopped: BTreeSet<Aggregate> = BTreeSet::new();
        let (mut answers, mut picks) = (case.answers.iter(), case.picks.iter());
        let mut answered = 0;
        loop {
            while let Some(token) = work.next(Duration::ZERO) {
                let message = work.message(token);
                let aggregate = message.aggregate.clone();
                prop_assert!(!stopped.contains(&aggregate), "it passes one that blocks");
                let busy = in_flight.iter().any(|other| work.message(*other).aggregate == aggregate);
                prop_assert!(!busy, "one of an aggregate at a time");
                let before = last_of.insert(aggregate, place(message));
                prop_assert!(before < Some(place(message)), "in order");
                prop_assert_eq!(work.pause(), None, "a lane that stops gives none");
                in_flight.push_back(token);
            }
            if in_flight.is_empty() {
                break;
            }
            let pick = picks.next().map_or(0, |pick| pick.index(in_flight.len()));
            let token = in_flight.remove(pick).unwrap();
            let next = answer(*answers.next().unwrap_or(&11));
            let message = work.message(token).clone();
            let blocks = match &next {
                Next::Delivered => false,
                Next::Die { .. } => case.dead_letters == DeadLetters::Block,
                _ => true,
            };
            if next == Next::Delivered {
                delivered.insert(message.id);
            }
            if blocks {
                stopped.insert(message.aggregate);
            }
            work.sent(token, next);
            answered += 1;
            if answered == case.closed_after {
                work.close();
                prop_assert_eq!(work.next(Duration::ZERO), None, "a closed page gives none");
                prop_assert!(work.is_full(), "there is more");
            }
        }
        prop_assert!(work.is_over());
        let is_closed = (1..=answered).contains(&case.closed_after);
        let is_paused = work.pause().is_some();
        let Some(settlement) = settle(work) else {
            prop_assert!(delivered.is_empty());
            return Ok(());
        };
        let through = match settlement.advance {
            Advance::Past(_) => i64::MAX,
            Advance::Through { place, .. } => place.0,
            Advance::Stay => i64::MIN,
        };
        let is_whole = !is_paused && !is_closed;
        prop_assert!(!is_whole || through == i64::MAX, "unless it stops, the whole page is passed");
        let changed: BTreeMap<_, _> =
            settlement.changes.iter().map(|change| (change.id, change)).collect();
        prop_assert_eq!(changed.len(), settlement.changes.len(), "one change a message");
        for one in &page.fresh {
            let is_settled = delivered.contains(&one.message.id);
            let change = changed.get(&one.message.id);
            prop_assert!(!(is_settled && change.is_some()), "delivered or parked");
            let is_dealt_with = is_settled || change.is_some();
            prop_assert_eq!(is_dealt_with, one.place.0 <= through, "{:?}", one.place);
            prop_assert!(change.is_none_or(|change| !change.was_parked));
        }
        for one in &page.due {
            let change = changed.get(&one.message.id);
            prop_assert!(change.is_none_or(|change| change.was_parked));
            let is_gone = change.is_some_and(|change| change.to == Parking::Delivered);
            prop_assert_eq!(is_gone, delivered.contains(&one.message.id));
        }
    }
}
