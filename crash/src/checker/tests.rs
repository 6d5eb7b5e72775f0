//! For every violation a history in which it is found, and one that only looks like it.

use std::time::Duration;

use super::{EffectKind, EffectKind::*, Rules, check};
use crate::history::{
    Answer, Attempt, Digest, Effect, Ending, History, Ledger, Operation, OperationName, Reply,
    Verdict,
};

/// A history by hand: one operation, `k1` of alice, beside one that goes well. Faults stop after
/// 100 s, and a lease is 10 s, so that everything must have ended after 115 s.
struct Story {
    history: History,
    ledger: Ledger,
    rules: Rules,
}

fn name() -> OperationName {
    OperationName::new("alice", "k1")
}

fn neighbour() -> OperationName {
    OperationName::new("bob", "k1")
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn reply(status: u16) -> Reply {
    Reply::new(status, Digest::of("headers"), Digest::of("paid 5"))
}

fn replay(status: u16) -> Reply {
    Reply { replayed: true, ..reply(status) }
}

fn refusal(status: u16, code: &str) -> Reply {
    Reply { code: Some(code.to_owned()), ..reply(status) }
}

fn ok() -> Answer {
    Answer::Ok(reply(201))
}

fn ok_again() -> Answer {
    Answer::Ok(replay(201))
}

fn lost() -> Answer {
    Answer::Lost("connection reset".to_owned())
}

fn nothing_happened() -> Answer {
    Answer::NothingHappened(reply(429))
}

impl Story {
    fn new(effect: EffectKind) -> Self {
        let mut history = History::new(seconds(10));
        history.faults_stopped_at = seconds(100);
        history.ask(Operation::new(name(), "5"));
        history.ask(Operation::new(neighbour(), "7"));
        let rules = Rules::new(effect).floor_percent(0);
        let story = Self { history, ledger: Ledger::default(), rules };
        let at = seconds(2);
        story
            .heard_by(neighbour(), 1, 3, ok())
            .with_effect(Effect { operation: neighbour(), payload: "7".to_owned(), at })
            .ended_for(neighbour(), Verdict::Ok(replay(201)), 3)
    }

    fn heard(self, started: u64, ended: u64, answer: Answer) -> Self {
        self.heard_by(name(), started, ended, answer)
    }

    fn heard_by(
        mut self,
        operation: OperationName,
        started: u64,
        ended: u64,
        answer: Answer,
    ) -> Self {
        let (started, ended) = (seconds(started), seconds(ended));
        self.history.attempts.push(Attempt { operation, started, ended, answer });
        self
    }

    fn effect(self, at: u64) -> Self {
        let at = seconds(at);
        self.with_effect(Effect { operation: name(), payload: "5".to_owned(), at })
    }

    fn with_effect(mut self, effect: Effect) -> Self {
        self.ledger.effects.push(effect);
        self
    }

    fn ended(self, verdict: Verdict, at: u64) -> Self {
        self.ended_for(name(), verdict, at)
    }

    fn ended_ok(self) -> Self {
        self.ended(Verdict::Ok(replay(201)), 101)
    }

    fn ended_for(mut self, operation: OperationName, verdict: Verdict, at: u64) -> Self {
        self.history.endings.insert(operation, Ending { verdict, at: seconds(at) });
        self
    }

    fn rules(mut self, change: impl FnOnce(Rules) -> Rules) -> Self {
        self.rules = change(self.rules);
        self
    }

    fn expects_body(mut self, body: &str) -> Self {
        self.history.operations.insert(name(), Operation::new(name(), "5").body(Digest::of(body)));
        self
    }

    #[track_caller]
    fn finds_nothing(self) {
        self.finds(&[]);
    }

    #[track_caller]
    fn finds(self, expected: &[&str]) {
        let violations = check(&self.history, &self.ledger, &self.rules);
        let names: Vec<_> = violations.iter().map(super::Violation::name).collect();
        let texts: Vec<_> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(names, expected, "{}", texts.join("\n"));
    }
}

#[test]
fn a_double_effect() {
    let story = || Story::new(Transactional).heard(1, 2, lost()).heard(3, 5, ok()).ended_ok();
    story().effect(1).effect(4).finds(&["double effect", "untrue verdict"]);
    story().effect(1).finds_nothing();
}

#[test]
fn an_absent_effect() {
    let story = || Story::new(Repeatable).heard(1, 3, ok()).heard(101, 102, ok_again()).ended_ok();
    story().finds(&["absent effect", "untrue verdict"]);
    story().rules(Rules::without_ledger).finds_nothing();
    story().effect(2).finds_nothing();
}

#[test]
fn an_answer_before_the_effect() {
    let story = || Story::new(Transactional).heard(1, 3, ok()).ended_ok();
    story().effect(4).finds(&["late effect"]);
    story().effect(3).finds_nothing();
    story().effect(4).rules(|rules| rules.clock_tolerance(seconds(1))).finds_nothing();
}

#[test]
fn an_effect_of_something_else() {
    let story = || Story::new(External).heard(1, 3, ok()).ended_ok();
    let effect = Effect { operation: name(), payload: "6".to_owned(), at: seconds(2) };
    story().with_effect(effect.clone()).finds(&["foreign effect"]);
    story().with_effect(Effect { payload: "5".to_owned(), ..effect }).finds_nothing();
}

#[test]
fn a_stored_refusal_of_something_that_happened() {
    let story = |status| {
        let story = Story::new(External).heard(1, 3, Answer::BoundFailure(reply(status)));
        story.ended(Verdict::BoundFailure(replay(status)), 101)
    };
    story(422).effect(2).finds(&["denied effect", "untrue verdict"]);
    story(422).finds_nothing();
    story(500).effect(2).finds_nothing();
    story(500).effect(1).effect(2).finds(&["double effect"]);
}

#[test]
fn a_last_word_that_denies_an_effect() {
    let story = || Story::new(External).heard(1, 3, lost()).heard(4, 6, nothing_happened());
    story().effect(2).ended_ok().finds(&["denied effect"]);
    // The lost attempt arrives late.
    story().effect(5).ended_ok().finds_nothing();
    story().effect(5).ended(Verdict::NothingHappened(reply(429)), 6).finds(&["untrue verdict"]);
    // Somebody else was asking at that time and may have come later.
    story().heard(5, 8, lost()).effect(2).ended_ok().finds_nothing();
}

#[test]
fn everybody_was_told_that_nothing_ran() {
    let busy = || Answer::NothingRan(refusal(503, "store-unavailable"));
    let story = || Story::new(External).heard(1, 3, busy()).heard(4, 6, nothing_happened());
    story().effect(5).ended_ok().finds(&["denied effect"]);
    story().heard(7, 9, lost()).effect(8).ended_ok().finds_nothing();
}

#[test]
fn an_effect_that_nobody_asked_for() {
    let story = || Story::new(External).heard(1, 3, ok()).effect(2).ended_ok();
    let stray = Effect {
        operation: OperationName::new("carol", "k1"),
        payload: "5".to_owned(),
        at: seconds(2),
    };
    story().with_effect(stray).finds(&["unasked effect"]);
    story().heard_by(OperationName::new("carol", "k1"), 1, 2, ok()).finds(&["unasked answer"]);
    story().heard_by(OperationName::new("carol", "k1"), 1, 2, lost()).finds_nothing();
}

#[test]
fn a_replay_that_differs() {
    let first = || Story::new(Transactional).heard(1, 3, ok()).effect(2).ended_ok();
    let other = |change: fn(&mut Reply)| {
        let mut reply = replay(201);
        change(&mut reply);
        Answer::Ok(reply)
    };
    let changes: [fn(&mut Reply); 3] = [
        |reply| reply.status = 200,
        |reply| reply.headers = Digest::of("others"),
        |reply| reply.body = Digest::of("paid"),
    ];
    for change in changes {
        first().heard(2, 5, other(change)).finds(&["divergent replay"]);
    }
    first().heard(2, 5, ok_again()).finds_nothing();
    let failed = |reply| Answer::BoundFailure(reply);
    let story = || Story::new(External).heard(1, 3, failed(reply(500)));
    let story = || story().ended(Verdict::BoundFailure(replay(500)), 101);
    story().heard(4, 5, failed(replay(501))).finds(&["divergent replay"]);
    story().heard(4, 5, failed(replay(500))).finds_nothing();
}

#[test]
fn another_answer_that_binds() {
    let story = || Story::new(External).heard(1, 3, ok()).effect(2).ended_ok();
    let failed = Answer::BoundFailure(replay(500));
    story().heard(4, 5, failed.clone()).finds(&["other bound answer"]);
    let found = ["other bound answer", "lost answer"];
    Story::new(External).heard(1, 3, failed).heard(4, 5, ok()).effect(4).ended_ok().finds(&found);
    story().heard(4, 5, Answer::Unclear(refusal(409, "in-progress"))).finds_nothing();
}

#[test]
fn two_first_answers() {
    let story = || Story::new(Transactional).heard(1, 3, ok()).effect(2).ended_ok();
    story().heard(2, 4, ok()).finds(&["second first answer"]);
    story().heard(2, 4, ok_again()).finds_nothing();
}

#[test]
fn an_answer_that_was_forgotten() {
    let story = |started| {
        let story = Story::new(Transactional).heard(1, 3, ok()).effect(2);
        story.heard(started, 5, nothing_happened()).heard(5, 6, ok_again()).ended_ok()
    };
    story(3).finds(&["forgotten answer"]);
    // It may have been told so before the other one was run.
    story(2).finds_nothing();
}

#[test]
fn a_body_that_is_not_whole() {
    let story = || Story::new(Transactional).heard(1, 3, ok()).effect(2).ended_ok();
    story().expects_body("paid 5, thank you").finds(&["wrong body"]);
    story().expects_body("paid 5").finds_nothing();
}

#[test]
fn a_key_without_its_scope() {
    let refused = |code| Answer::NothingRan(refusal(422, code));
    let story = |answer| Story::new(Transactional).heard(1, 3, answer);
    let ended = |story: Story| story.heard(101, 103, ok()).effect(102).ended_ok();
    ended(story(refused("key-reused"))).finds(&["disowned"]);
    ended(story(refused("key-invalid"))).finds_nothing();
    // The answer of bob, who used the same key.
    let found = ["absent effect", "untrue verdict", "wrong body"];
    story(ok_again()).expects_body("alice paid 5").ended_ok().finds(&found);
}

#[test]
fn a_last_word_that_is_not_true() {
    let story = || Story::new(External).heard(1, 3, lost());
    story().ended_ok().finds(&["untrue verdict"]);
    story().effect(2).ended_ok().finds_nothing();
    story().effect(2).ended(Verdict::NothingHappened(reply(429)), 101).finds(&["untrue verdict"]);
    story().ended(Verdict::NothingHappened(reply(429)), 101).finds_nothing();
    story().effect(2).ended(Verdict::BoundFailure(reply(404)), 101).finds(&["untrue verdict"]);
    story().effect(2).ended(Verdict::BoundFailure(reply(500)), 101).finds_nothing();
}

#[test]
fn an_acknowledged_answer_that_is_lost() {
    let story = || Story::new(External).heard(1, 3, ok()).effect(2);
    story().ended(Verdict::Unknown, 101).finds(&["lost answer"]);
    story().ended(Verdict::Ok(replay(200)), 101).finds(&["lost answer"]);
    story().ended(Verdict::BoundFailure(replay(500)), 101).finds(&["lost answer"]);
    story().ended_ok().finds_nothing();
    let story = || Story::new(External).heard(1, 3, Answer::BoundFailure(reply(500)));
    story().effect(2).ended_ok().finds(&["lost answer"]);
    story().ended(Verdict::BoundFailure(replay(500)), 101).finds_nothing();
}

#[test]
fn an_unknown_that_stays() {
    let story = |effect| Story::new(effect).heard(1, 3, lost()).ended(Verdict::Unknown, 101);
    story(Transactional).finds(&["unknown for ever"]);
    story(Repeatable).effect(2).finds(&["unknown for ever"]);
    story(External).finds_nothing();
    story(External).effect(2).finds_nothing();
}

#[test]
fn an_operation_that_does_not_end() {
    let story = || Story::new(External).heard(1, 3, lost()).effect(2);
    story().finds(&["not ended"]);
    story().ended(Verdict::NotEnded, 101).finds(&["not ended"]);
    story().ended(Verdict::Ok(replay(201)), 116).finds(&["ended late"]);
    story().ended(Verdict::Ok(replay(201)), 115).finds_nothing();
    let patient = |rules: Rules| rules.end_margin(seconds(6));
    story().ended(Verdict::Ok(replay(201)), 116).rules(patient).finds_nothing();
}

#[test]
fn a_system_that_is_dead() {
    let mut story = Story::new(External);
    story.history = History::new(seconds(10));
    story.ledger = Ledger::default();
    story.finds(&["nothing ok"]);
    let story = |verdict, at, percent| {
        let story = Story::new(External).heard(1, 3, lost()).ended(verdict, at);
        story.rules(|rules| rules.floor_percent(percent).floor_within(seconds(10)))
    };
    let failed = || Verdict::BoundFailure(reply(500));
    story(failed(), 101, 51).finds(&["unavailable"]);
    story(failed(), 101, 50).finds_nothing();
    story(Verdict::Unknown, 111, 100).finds(&["unavailable"]);
    story(Verdict::Unknown, 110, 100).finds_nothing();
}

#[test]
fn a_violation_is_told_with_its_evidence() {
    let story = Story::new(External).heard(1, 3, ok()).ended_ok();
    let texts: Vec<_> = check(&story.history, &story.ledger, &story.rules)
        .iter()
        .map(ToString::to_string)
        .collect();
    let reply = format!("(headers {}, body {}", Digest::of("headers"), Digest::of("paid 5"));
    let first = format!(
        "absent effect: operation `k1` of `alice`: attempt 1 (1.000000 s to 3.000000 s) heard ok \
         201 {reply}), but the ledger has no line of it."
    );
    let second = format!(
        "untrue verdict: operation `k1` of `alice`: the last word is ok 201 {reply}, replayed), but \
         the ledger has no line of it."
    );
    assert_eq!(texts, [first, second]);
}
