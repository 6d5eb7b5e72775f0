//! What one attempt has shown: what the caller tells the decision.

use core::time::Duration;

use super::{Answer, Class, Rules};

/// What one attempt has shown.
///
/// ```
/// use core::time::Duration;
/// use onceward_core::retry::{Answer, Class, Observation};
///
/// let busy = Answer::of(503).observation(Some(Duration::from_secs(2)));
/// assert_eq!((busy.class, busy.hint), (Class::Overload, Some(Duration::from_secs(2))));
/// let lost = Observation::from(Class::Ambiguous); // there was no answer at all
/// assert!(!lost.alive);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it says about trying again.
    pub class: Class,
    /// After which time the target asks to come back: `Retry-After`, as a duration from now.
    pub hint: Option<Duration>,
    /// It failed, and yet the target is there: a complete 500. One caller's bad requests must not make
    /// the breaker refuse everybody's.
    pub alive: bool,
    /// It may have been carried out, although there was an answer.
    pub doubt: bool,
    /// The target does not keep the key: from now on a repeat is no safer than without one.
    pub unprotected: bool,
    /// It is not to be sent again: the target says so, or the rules do. The target is judged by it all
    /// the same.
    pub last: bool,
}

impl From<Class> for Observation {
    fn from(class: Class) -> Self {
        Self { class, hint: None, alive: false, doubt: false, unprotected: false, last: false }
    }
}

impl Answer<'_> {
    /// Everything that the caller tells the decision of it, by rules that know no statuses of their own.
    #[must_use]
    pub fn observation(&self, hint: Option<Duration>) -> Observation {
        let (class, doubt) = (self.class(), self.leaves_doubt());
        let refused = class.is_failure() && self.retryable == Some(false);
        Observation {
            class,
            hint,
            alive: self.status == 500,
            doubt,
            unprotected: self.unprotected || (refused && doubt),
            last: refused,
        }
    }
}

impl Rules {
    /// Everything that the caller tells the decision of an answer: the statuses that these rules name count
    /// for more than the usual ones.
    ///
    /// What an answer says about its operation (it runs, its outcome is unknown, it is stored under the
    /// key) counts for more than its status.
    ///
    /// ```
    /// use onceward_core::retry::{Answer, Class, Rules};
    ///
    /// let rules = Rules::standard().to_builder().retry_status([404]).no_retry_status([500]).build()?;
    /// assert_eq!(rules.observation(&Answer::of(404), None).class, Class::ServerFault);
    /// assert!(rules.observation(&Answer::of(500), None).last);
    /// # Ok::<(), onceward_core::retry::RulesError>(())
    /// ```
    #[must_use]
    pub fn observation(&self, answer: &Answer<'_>, hint: Option<Duration>) -> Observation {
        let observation = answer.observation(hint);
        match observation.class {
            Class::Conflict | Class::Unauthorised | Class::Final
                if self.names_retry_status(answer.status)
                    && answer.code != Some("result-unavailable") =>
            {
                // The target has looked at it: that is no sign of one that is down.
                Observation { class: Class::ServerFault, alive: true, ..observation }
            }
            class if class.is_failure() && self.no_retry_status.contains(&answer.status) => {
                Observation { last: true, ..observation }
            }
            _ => observation,
        }
    }

    /// Whether this status was [named](super::RulesBuilder::retry_status) as one to try again after.
    #[must_use]
    pub fn names_retry_status(&self, status: u16) -> bool {
        self.retry_status.contains(&status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_status_is_tried_again_unless_the_answer_says_more_than_its_status() {
        let rules = Rules::standard().to_builder().retry_status([401, 404, 409, 501]);
        let rules = rules.build().expect("they are statuses");
        let observation = |answer: Answer<'_>| rules.observation(&answer, None);
        for status in [401, 404, 409, 501] {
            let observation = observation(Answer::of(status));
            assert_eq!(
                (observation.class, observation.alive),
                (Class::ServerFault, true),
                "{status}"
            );
            let bound = Answer { bound: true, ..Answer::of(status) };
            assert_eq!(rules.observation(&bound, None).class, Class::Bound, "{status}");
        }
        for (code, class) in [
            ("in-progress", Class::InProgress),
            ("outcome-unknown", Class::Unknown),
            ("result-unavailable", Class::Final),
        ] {
            assert_eq!(
                observation(Answer { code: Some(code), ..Answer::of(409) }).class,
                class,
                "{code}"
            );
        }
        let theirs = Answer { code: Some("locked"), ..Answer::of(409) };
        assert_eq!(observation(theirs).class, Class::ServerFault);
        assert_eq!(observation(Answer::of(422)).class, Class::Final, "it was not named");
    }

    #[test]
    fn what_the_server_or_the_rules_forbid_is_the_last_and_still_a_failure() {
        let rules = Rules::standard().to_builder().no_retry_status([503]);
        let rules = rules.build().expect("it is a status");
        let named = rules.observation(&Answer::of(503), None);
        assert_eq!((named.class, named.last), (Class::Overload, true));
        assert!(!rules.observation(&Answer::of(500), None).last);
        let refused = Answer { retryable: Some(false), ..Answer::of(500) }.observation(None);
        assert_eq!((refused.class, refused.last), (Class::ServerFault, true));
        assert!(!Answer { retryable: Some(true), ..Answer::of(500) }.observation(None).last);
    }

    #[test]
    fn a_server_that_may_have_run_it_and_forbids_a_repeat_does_not_keep_the_key() {
        let failed = Answer { code: Some("upstream-failed"), ..Answer::of(502) };
        assert!(!failed.observation(None).unprotected);
        assert!(Answer { retryable: Some(false), ..failed }.observation(None).unprotected);
        let unprotected = Answer { unprotected: true, retryable: Some(true), ..failed };
        assert!(unprotected.observation(None).unprotected, "whatever it says about a repeat");
    }
}
