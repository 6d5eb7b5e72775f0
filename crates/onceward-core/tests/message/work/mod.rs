//! What a page of a lane comes to.

mod random;

use std::time::Duration;

use onceward_core::{
    Fence, Timestamp,
    message::{
        Advance, Aggregate, Cursor, DeadLetters, Due, Fresh, Lane, LaneWork, Message, MessageId,
        Next, Page, ParkChange, Parking, Place, Position, RelayId, Settlement, SinkId, Token,
        Topic, TopicRule,
    },
};

const NOW: Timestamp = Timestamp::from_unix_micros(1_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const NOTHING: [i64; 0] = [];

fn message(place: i64, aggregate: &str) -> Message {
    Message {
        id: MessageId::from_bytes(i128::from(place).to_be_bytes()),
        topic: Topic::new("send").unwrap(),
        aggregate: Aggregate::new(aggregate).unwrap(),
        body: Vec::new(),
        headers: Vec::new(),
        at: NOW,
        not_before: None,
        expires_at: None,
        operation: None,
        trace: None,
    }
}

fn fresh(place: i64, aggregate: &str) -> Fresh {
    Fresh { place: Place(place), message: message(place, aggregate), is_blocked: false }
}

fn due(place: i64, aggregate: &str, attempts: u32) -> Due {
    Due { place: Place(place), message: message(place, aggregate), attempts }
}

fn page(due: Vec<Due>, fresh: Vec<Fresh>) -> Page {
    let (opened, end) = (Cursor::new("opened"), Cursor::new("end"));
    Page { read_at: NOW, fresh, due, opened, end, is_full: false }
}

fn position() -> Position {
    Position {
        sink: SinkId(1),
        lane: Lane::of(b"a"),
        relay: RelayId::from_random([1; 16]),
        step: 7,
        fence: Fence::from_random([7; 16]),
        cursor: Cursor::new("start"),
    }
}

fn begin(page: Page) -> LaneWork {
    begin_with(page, DeadLetters::Block)
}

/// Topics are called as they are treated.
fn begin_with(page: Page, dead_letters: DeadLetters) -> LaneWork {
    LaneWork::new(position(), page, dead_letters, |topic| match topic.as_str() {
        "pass" => TopicRule::Pass,
        "refuse" => TopicRule::Refuse,
        _ => TopicRule::Send,
    })
}

/// The places of everything that may be sent beside each other now.
fn ready(work: &mut LaneWork) -> Vec<(Token, i64)> {
    let mut ready = Vec::new();
    while let Some(token) = work.next(Duration::ZERO) {
        ready.push((token, place(work.message(token))));
    }
    ready
}

fn place(message: &Message) -> i64 {
    i64::try_from(i128::from_be_bytes(*message.id.as_bytes())).unwrap()
}

fn places(ready: &[(Token, i64)]) -> Vec<i64> {
    ready.iter().map(|(_, place)| *place).collect()
}

fn settle(work: LaneWork) -> Option<Settlement> {
    work.settlement(Fence::from_random([8; 16]))
}

fn parked(changes: &[ParkChange]) -> Vec<(i64, bool, Parking)> {
    let line = |change: &ParkChange| (change.place.0, change.was_parked, change.to.clone());
    changes.iter().map(line).collect()
}

fn behind() -> Parking {
    Parking::Waiting { attempts: 0, wait: Duration::ZERO, why: String::new() }
}

fn failed(wait: Duration) -> Next {
    Next::Park { wait, why: "503".into() }
}

fn waiting(attempts: u32, wait: Duration) -> Parking {
    Parking::Waiting { attempts, wait, why: "503".into() }
}

#[test]
fn aggregates_go_side_by_side_and_each_in_its_order() {
    let mut work = begin(page(vec![], vec![fresh(1, "a"), fresh(2, "b"), fresh(3, "a")]));
    let first = ready(&mut work);
    assert_eq!(places(&first), [1, 2]);
    assert!(!work.is_over(), "two are in flight");
    work.sent(first[1].0, Next::Delivered);
    assert_eq!(places(&ready(&mut work)), NOTHING, "3 waits for 1");
    work.sent(first[0].0, Next::Delivered);
    assert!(!work.is_over());
    let last = ready(&mut work);
    assert_eq!(places(&last), [3]);
    work.sent(last[0].0, Next::Delivered);
    assert!(work.is_over());
    let settlement = settle(work).unwrap();
    assert_eq!(settlement.from, position());
    assert_eq!(settlement.advance, Advance::Past(Cursor::new("end")));
    assert_eq!(settlement.changes, []);
}

#[test]
fn a_failure_parks_its_aggregate_and_nothing_else() {
    let all = vec![fresh(1, "a"), fresh(2, "b"), fresh(3, "a"), fresh(4, "b"), fresh(5, "a")];
    let mut work = begin(page(vec![], all));
    for (token, place) in ready(&mut work) {
        work.sent(token, if place == 1 { failed(SECOND) } else { Next::Delivered });
    }
    let rest = ready(&mut work);
    assert_eq!(places(&rest), [4]);
    work.sent(rest[0].0, Next::Delivered);
    assert!(work.is_over());
    let settlement = settle(work).unwrap();
    assert_eq!(settlement.advance, Advance::Past(Cursor::new("end")));
    let expected = [(1, false, waiting(1, SECOND)), (3, false, behind()), (5, false, behind())];
    assert_eq!(parked(&settlement.changes), expected);
}

#[test]
fn due_ones_come_first_and_new_ones_of_their_aggregate_behind_them() {
    let all = page(vec![due(1, "a", 2), due(2, "a", 0)], vec![fresh(8, "a"), fresh(9, "b")]);
    let mut work = begin(all);
    let first = ready(&mut work);
    assert_eq!(places(&first), [1, 9]);
    assert_eq!(work.attempts(first[0].0), 2);
    work.sent(first[0].0, Next::Delivered);
    work.sent(first[1].0, Next::Delivered);
    let second = ready(&mut work);
    assert_eq!(places(&second), [2]);
    work.sent(second[0].0, failed(SECOND));
    assert_eq!(places(&ready(&mut work)), NOTHING);
    let settlement = settle(work).unwrap();
    let expected =
        [(1, true, Parking::Delivered), (2, true, waiting(1, SECOND)), (8, false, behind())];
    assert_eq!(parked(&settlement.changes), expected);
}

#[test]
fn a_parked_one_behind_a_failure_keeps_its_entry() {
    let mut work = begin(page(vec![due(1, "a", 2), due(2, "a", 5)], vec![]));
    let first = ready(&mut work);
    work.sent(first[0].0, failed(SECOND));
    assert!(work.is_over());
    let settlement = settle(work).unwrap();
    assert_eq!(parked(&settlement.changes), [(1, true, waiting(3, SECOND))]);
}

#[test]
fn new_ones_that_are_blocked_are_parked_unsent() {
    let blocked = |place, aggregate| Fresh { is_blocked: true, ..fresh(place, aggregate) };
    let mut work = begin(page(vec![], vec![blocked(1, "a"), fresh(2, "b"), blocked(3, "a")]));
    let first = ready(&mut work);
    assert_eq!(places(&first), [2]);
    work.sent(first[0].0, Next::Delivered);
    let settlement = settle(work).unwrap();
    assert_eq!(parked(&settlement.changes), [(1, false, behind()), (3, false, behind())]);
}

#[test]
fn a_dead_letter_blocks_unless_it_is_skipped() {
    for dead_letters in [DeadLetters::Block, DeadLetters::Skip] {
        let mut work = begin_with(page(vec![], vec![fresh(1, "a"), fresh(2, "a")]), dead_letters);
        let first = ready(&mut work);
        work.sent(first[0].0, Next::Die { why: "400".into() });
        let second = ready(&mut work);
        let is_skipped = dead_letters == DeadLetters::Skip;
        assert_eq!(places(&second), if is_skipped { vec![2] } else { vec![] });
        for (token, _) in second {
            work.sent(token, Next::Delivered);
        }
        let dead = (1, false, Parking::Dead { attempts: 1, why: "400".into(), is_skipped });
        let expected = if is_skipped { vec![dead] } else { vec![dead, (2, false, behind())] };
        assert_eq!(parked(&settle(work).unwrap().changes), expected);
    }
}

#[test]
fn a_held_one_blocks_and_counts_its_attempt() {
    let mut work = begin(page(vec![due(1, "a", 3)], vec![fresh(2, "a")]));
    let first = ready(&mut work);
    work.sent(first[0].0, Next::Hold { why: "410".into() });
    assert_eq!(places(&ready(&mut work)), NOTHING);
    let held = Parking::Held { attempts: 4, why: "410".into() };
    let expected = [(1, true, held), (2, false, behind())];
    assert_eq!(parked(&settle(work).unwrap().changes), expected);
}

#[test]
fn a_postponed_one_waits_without_having_failed_again() {
    let mut work = begin(page(vec![due(1, "a", 3)], vec![fresh(2, "a")]));
    let first = ready(&mut work);
    work.sent(first[0].0, Next::Postpone { wait: SECOND, why: "503".into() });
    let expected = [(1, true, waiting(3, SECOND)), (2, false, behind())];
    assert_eq!(parked(&settle(work).unwrap().changes), expected);
}

#[test]
fn topics_decide_what_a_sink_gets() {
    let of_topic = |topic: &str, message| Message { topic: Topic::new(topic).unwrap(), ..message };
    let topic = |topic, fresh: Fresh| Fresh { message: of_topic(topic, fresh.message), ..fresh };
    let passed = due(1, "a", 2);
    let passed = Due { message: of_topic("pass", passed.message), ..passed };
    let new = vec![
        topic("pass", fresh(2, "a")),
        fresh(3, "a"),
        topic("refuse", fresh(4, "a")),
        fresh(5, "a"),
    ];
    let mut work = begin(page(vec![passed], new));
    let first = ready(&mut work);
    assert_eq!(places(&first), [3], "in their order, also with those that no sink takes");
    work.sent(first[0].0, Next::Delivered);
    assert_eq!(places(&ready(&mut work)), NOTHING);
    assert!(work.is_over());
    let changes = settle(work).unwrap().changes;
    let [gone, dead, later] = changes.as_slice() else { panic!("three changes: {changes:?}") };
    assert_eq!((gone.place.0, &gone.to), (1, &Parking::Delivered), "no longer for this sink");
    assert_eq!((later.place.0, &later.to), (5, &behind()));
    let Parking::Dead { attempts: 0, why, is_skipped: false } = &dead.to else {
        panic!("no sink takes it: {dead:?}");
    };
    assert_eq!((dead.place.0, why.as_str()), (4, "no sink takes this topic"));
}

#[test]
fn scheduled_ones_are_parked_and_leave_the_order() {
    let mut scheduled = fresh(1, "a");
    scheduled.message.not_before = Some(NOW.plus(SECOND));
    scheduled.is_blocked = true;
    let mut now = fresh(2, "a");
    now.message.not_before = Some(NOW);
    let mut work = begin(page(vec![], vec![scheduled, now]));
    let first = ready(&mut work);
    assert_eq!(places(&first), [2]);
    work.sent(first[0].0, Next::Delivered);
    assert_eq!(parked(&settle(work).unwrap().changes), [(1, false, Parking::Scheduled)]);
}

#[test]
fn what_expires_before_its_turn_is_not_sent() {
    let until = |time, mut fresh: Fresh| {
        fresh.message.expires_at = Some(time);
        fresh
    };
    let all = vec![
        until(NOW, fresh(1, "a")),
        fresh(2, "a"),
        until(NOW.plus(SECOND), fresh(3, "a")),
        until(NOW.plus(SECOND * 2), fresh(4, "a")),
    ];
    let mut work = begin(page(vec![], all));
    let first = ready(&mut work);
    assert_eq!(places(&first), [2]);
    work.sent(first[0].0, Next::Delivered);
    let token = work.next(SECOND).unwrap();
    assert_eq!(place(work.message(token)), 4, "the third expired meanwhile");
    work.sent(token, Next::Delivered);
    assert!(work.is_over());
    let expected = [(1, false, Parking::Expired), (3, false, Parking::Expired)];
    assert_eq!(parked(&settle(work).unwrap().changes), expected);
}

#[test]
fn a_pause_at_once_changes_nothing() {
    let mut blocked = fresh(3, "c");
    blocked.is_blocked = true;
    let mut work = begin(page(vec![due(1, "a", 1)], vec![fresh(2, "b"), blocked]));
    let first = ready(&mut work);
    assert_eq!(places(&first), [1, 2]);
    work.sent(first[0].0, Next::Pause { wait: None });
    assert_eq!(work.pause(), Some(None));
    assert!(!work.is_over(), "one is in flight");
    work.sent(first[1].0, Next::Pause { wait: Some(SECOND) });
    assert_eq!(work.pause(), Some(Some(SECOND)), "the longest that was said");
    assert!(work.is_over());
    assert_eq!(settle(work), None, "a lane whose sink is down parks no more and more");
}

#[test]
fn after_a_pause_the_lane_moves_to_the_last_that_was_tried() {
    let mut blocked = [fresh(2, "z"), fresh(6, "z")];
    blocked.iter_mut().for_each(|fresh| fresh.is_blocked = true);
    let [early, late] = blocked;
    let all = vec![
        fresh(1, "a"),
        early,
        fresh(3, "b"),
        fresh(4, "a"),
        fresh(5, "c"),
        late,
        fresh(7, "d"),
    ];
    let mut work = begin(page(vec![], all));
    let first = ready(&mut work);
    assert_eq!(places(&first), [1, 3, 5, 7]);
    work.sent(first[2].0, Next::Delivered);
    for index in [0, 1, 3] {
        work.sent(first[index].0, Next::Pause { wait: None });
    }
    assert!(work.is_over());
    let settlement = settle(work).unwrap();
    let through = Advance::Through { opened: Cursor::new("opened"), place: Place(5) };
    assert_eq!(settlement.advance, through, "5 is not sent twice");
    let expected = [1, 2, 3, 4].map(|place| (place, false, behind()));
    assert_eq!(parked(&settlement.changes), expected, "6 and 7 are read again");
}

#[test]
fn a_page_that_is_closed_early_settles_what_was_sent_and_leaves_the_rest() {
    let all = vec![fresh(1, "a"), fresh(2, "b"), fresh(3, "a"), fresh(4, "b"), fresh(5, "c")];
    let mut work = begin(page(vec![], all));
    let (first, second) = (work.next(Duration::ZERO).unwrap(), work.next(Duration::ZERO).unwrap());
    work.sent(first, Next::Delivered);
    let third = work.next(Duration::ZERO).unwrap();
    assert_eq!(place(work.message(third)), 3, "the earliest that may go, not the next aggregate");
    work.close();
    assert!(!work.is_over(), "two are in flight");
    work.sent(third, Next::Delivered);
    work.sent(second, failed(SECOND));
    assert!(work.is_over() && work.is_full() && work.pause().is_none());
    let settlement = settle(work).unwrap();
    let through = Advance::Through { opened: Cursor::new("opened"), place: Place(3) };
    assert_eq!(settlement.advance, through, "4 and 5 are read again");
    assert_eq!(parked(&settlement.changes), [(2, false, waiting(1, SECOND))]);
}

#[test]
fn one_that_gives_way_is_parked_and_its_lane_stops() {
    let all = vec![fresh(1, "a"), fresh(2, "b"), fresh(3, "b"), fresh(4, "a")];
    let mut work = begin(page(vec![], all));
    let first = ready(&mut work);
    assert_eq!(places(&first), [1, 2]);
    let why = || "503".into();
    work.sent(first[0].0, Next::GiveWay { attempts: 1, wait: SECOND, why: why() });
    assert_eq!(work.pause(), Some(None));
    work.sent(first[1].0, Next::Delivered);
    assert_eq!(places(&ready(&mut work)), NOTHING, "3 could go, were the sink not down");
    assert!(work.is_over());
    let settlement = settle(work).unwrap();
    let through = Advance::Through { opened: Cursor::new("opened"), place: Place(2) };
    assert_eq!(settlement.advance, through);
    assert_eq!(parked(&settlement.changes), [(1, false, waiting(1, SECOND))]);
}

#[test]
fn only_parked_ones_change_if_nothing_new_was_tried() {
    let mut work = begin(page(vec![due(1, "a", 1)], vec![fresh(2, "b")]));
    let first = ready(&mut work);
    work.sent(first[0].0, Next::Delivered);
    work.sent(first[1].0, Next::Pause { wait: None });
    let settlement = settle(work).unwrap();
    assert_eq!(settlement.advance, Advance::Stay);
    assert_eq!(parked(&settlement.changes), [(1, true, Parking::Delivered)]);
}

#[test]
fn an_empty_page_settles_nothing_unless_its_end_is_elsewhere() {
    let empty = page(vec![], vec![]);
    let here = Page { end: position().cursor, ..empty.clone() };
    let mut work = begin(here);
    assert_eq!(work.next(Duration::ZERO), None);
    assert!(work.is_over() && !work.is_full());
    assert_eq!(settle(work), None);
    let settlement = settle(begin(empty)).unwrap();
    assert_eq!(settlement.advance, Advance::Past(Cursor::new("end")));
}
