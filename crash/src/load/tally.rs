//! The figures of a history, for a person.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Display, Formatter},
};

use crate::{
    checker::Violation,
    history::{Answer, Verdict},
};

use super::world::Conclusion;

/// The figures of a history, for a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    operations: usize,
    /// Operations of which one attempt got no complete answer.
    in_doubt: usize,
    attempts: usize,
    ok: usize,
    unknown: usize,
    doubles: usize,
    lost_acknowledgements: usize,
    divergent_replays: usize,
    answers: BTreeMap<String, usize>,
}

impl Tally {
    /// Counts.
    #[must_use]
    pub fn of(conclusion: &Conclusion) -> Self {
        let Conclusion { history, violations, .. } = conclusion;
        let ended = |is: fn(&Verdict) -> bool| {
            history.endings.values().filter(|ending| is(&ending.verdict)).count()
        };
        let broken = |is: fn(&Violation) -> bool| {
            violations.iter().filter(|violation| is(violation)).count()
        };
        let lost = history.attempts.iter();
        let lost = lost.filter(|attempt| matches!(attempt.answer, Answer::Lost(_)));
        let mut answers = BTreeMap::new();
        for attempt in &history.attempts {
            *answers.entry(word(&attempt.answer)).or_default() += 1;
        }
        Self {
            operations: history.operations.len(),
            in_doubt: lost.map(|attempt| &attempt.operation).collect::<BTreeSet<_>>().len(),
            attempts: history.attempts.len(),
            ok: ended(|verdict| matches!(verdict, Verdict::Ok(_))),
            unknown: ended(|verdict| matches!(verdict, Verdict::Unknown)),
            doubles: broken(|it| matches!(it, Violation::DoubleEffect { .. })),
            lost_acknowledgements: broken(|it| {
                use Violation::{AbsentEffect, LateEffect, LostAnswer};
                matches!(it, AbsentEffect { .. } | LateEffect { .. } | LostAnswer { .. })
            }),
            divergent_replays: broken(|it| {
                use Violation::{DivergentReplay, OtherBoundAnswer};
                matches!(it, DivergentReplay { .. } | OtherBoundAnswer { .. })
            }),
            answers,
        }
    }
}

/// The kind of an answer, and its code if it is a refusal.
fn word(answer: &Answer) -> String {
    let (word, reply) = match answer {
        Answer::Ok(reply) if reply.replayed => return "replay".to_owned(),
        Answer::Ok(_) => return "ok".to_owned(),
        Answer::Lost(reason) => return format!("lost ({reason})"),
        Answer::BoundFailure(reply) => ("bound failure", reply),
        Answer::NothingHappened(reply) => ("nothing happened", reply),
        Answer::NothingRan(reply) => ("nothing ran", reply),
        Answer::OutcomeUnknown(reply) => ("outcome unknown", reply),
        Answer::Unclear(reply) => ("unclear", reply),
    };
    let code = reply.code.as_deref().unwrap_or("no code");
    format!("{word} ({} {code})", reply.status)
}

impl Display for Tally {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        write!(to, "{} operations ({} in doubt), ", self.operations, self.in_doubt)?;
        write!(to, "{} attempts, {} ok, ", self.attempts, self.ok)?;
        write!(to, "{} unknown, {} doubles, ", self.unknown, self.doubles)?;
        write!(to, "{} lost acknowledgements, ", self.lost_acknowledgements)?;
        write!(to, "{} divergent replays; answers:", self.divergent_replays)?;
        self.answers.iter().try_for_each(|(word, count)| write!(to, " {count} {word},"))
    }
}
