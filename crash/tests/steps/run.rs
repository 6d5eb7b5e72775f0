//! One run: a fault at a step, everything that a patient client does about it, and the oracle.

use std::{fmt::Write as _, thread, time::Duration};

use onceward::Engine;
use onceward_crash::{
    checker::{Rules, check},
    history::{Answer, Effect, History, Ledger, Verdict},
    service::Stake,
};

use super::{
    bench::{ANSWER_TIMEOUT, Bench, SIGABRT, signal},
    step::{Fault, Step},
};

/// Until a process that was just asked has certainly come to its stalled step.
const FREEZING: Duration = Duration::from_millis(400);

/// Until a process that has just woken up has certainly finished what it was about.
const WAKING: Duration = Duration::from_millis(300);

/// What came of a run.
pub(crate) struct Outcome {
    pub(crate) verdict: Verdict,
    /// Everything that should not be; empty if all is well.
    pub(crate) complaints: Vec<String>,
    /// Everything that is needed to understand the run.
    pub(crate) story: String,
}

pub(crate) fn run(step: &Step) -> Outcome {
    let bench = Bench::new(step.configuration);
    let mut complaints = Vec::new();
    match step.fault {
        Fault::Abort => die(&bench, step, &mut complaints),
        Fault::Error | Fault::Late => fail(&bench, step, &mut complaints),
        Fault::Stall => stall(&bench, step, &mut complaints),
    }
    let (history, ledger) = (bench.history(), bench.ledger());
    let rules = Rules::new(step.configuration.effect_kind());
    complaints.extend(check(&history, &ledger, &rules).iter().map(ToString::to_string));
    complaints.extend(beyond_the_rules(step, &history, &ledger));
    let verdict = verdict(&history);
    let story = story(step, &history, &ledger, &complaints);
    Outcome { verdict, complaints, story }
}

/// The process dies; another one is asked.
fn die(bench: &Bench, step: &Step, complaints: &mut Vec<String>) {
    let dying = bench.start(Some(step.plan()));
    bench.attempt(&dying);
    let ended = dying.wait_for_end(ANSWER_TIMEOUT);
    if signal(ended) != Some(SIGABRT) {
        complaints.push(format!("never reached: the process ended with {ended:?}"));
    }
    drop(dying);
    bench.recorder.faults_stop();
    let next = bench.start(None);
    bench.retry(&next);
    bench.ask_bystander(&next);
}

/// The step fails; the same process is asked again, and then one that has only the disk.
///
/// What nobody feels is known to be reached from the abort and the stall at the same point.
fn fail(bench: &Bench, step: &Step, complaints: &mut Vec<String>) {
    let failing = bench.start(Some(step.plan()));
    let answer = bench.attempt(&failing);
    if step.is_felt() && matches!(answer, Answer::Ok(_)) {
        complaints.push(format!("never reached: the first client heard {answer}"));
    }
    bench.recorder.faults_stop();
    bench.retry(&failing);
    failing.kill().unwrap();
    let next = bench.start(None);
    bench.retry(&next);
    bench.ask_bystander(&next);
}

/// The process freezes past its lease; another one is asked, and then both.
fn stall(bench: &Bench, step: &Step, complaints: &mut Vec<String>) {
    let frozen = bench.start(Some(step.plan()));
    let asked = bench.recorder.now();
    let other = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            bench.attempt(&frozen);
            bench.recorder.now() - asked
        });
        thread::sleep(FREEZING);
        let other = bench.start(None);
        bench.retry(&other);
        let took = asking.join().unwrap();
        // A client of a settlement that hangs is told so after this.
        if took < Fault::STALL.min(Engine::SETTLE_PATIENCE) {
            complaints.push(format!("never reached: the frozen process answered after {took:?}"));
        }
        other
    });
    let awake = asked + Fault::STALL + WAKING;
    thread::sleep(awake.saturating_sub(bench.recorder.now()));
    bench.recorder.faults_stop();
    bench.retry(&frozen);
    bench.retry(&other);
    bench.ask_bystander(&frozen);
}

fn verdict(history: &History) -> Verdict {
    let ending = history.endings.get(&Bench::name());
    ending.map_or(Verdict::NotEnded, |ending| ending.verdict.clone())
}

/// What these faults must not do, though the rules for all faults allow it.
fn beyond_the_rules(step: &Step, history: &History, ledger: &Ledger) -> Vec<String> {
    let mut complaints = Vec::new();
    let is_of = |name| move |effect: &&Effect| effect.operation == name;
    let effects = ledger.effects.iter().filter(is_of(Bench::name())).count();
    let verdict = verdict(history);
    let is_fine = match (step.configuration.stake, &verdict) {
        (_, Verdict::Ok(_)) => effects == 1,
        (Stake::External, Verdict::Unknown) => effects <= 1,
        _ => false,
    };
    if !is_fine {
        complaints.push(format!("it ended {verdict} with {effects} effects"));
    }
    let bystander = history.endings.get(&Bench::bystander()).map(|ending| &ending.verdict);
    if !matches!(bystander, Some(Verdict::Ok(_))) {
        complaints.push(format!("what was asked for when all was over ended {bystander:?}"));
    }
    complaints
}

fn story(step: &Step, history: &History, ledger: &Ledger, complaints: &[String]) -> String {
    let mut text = format!("ONCEWARD_STEP='{step}' cargo test -p onceward-crash --test steps\n");
    let mut attempts: Vec<_> = history.attempts.iter().collect();
    attempts.sort_by_key(|attempt| attempt.started);
    for attempt in attempts {
        let (started, ended) = (attempt.started.as_secs_f64(), attempt.ended.as_secs_f64());
        let _ = writeln!(
            text,
            "  {started:.3} s – {ended:.3} s {}: {}",
            attempt.operation, attempt.answer
        );
    }
    let _ = writeln!(text, "  {:.3} s faults stop", history.faults_stopped_at.as_secs_f64());
    for effect in &ledger.effects {
        let _ = writeln!(text, "  {:.3} s effect of {}", effect.at.as_secs_f64(), effect.operation);
    }
    for complaint in complaints {
        let _ = writeln!(text, "  NOT WELL: {complaint}");
    }
    text
}
