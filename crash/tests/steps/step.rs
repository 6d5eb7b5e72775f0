//! One thing that goes wrong at one point of one configuration.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

use super::configuration::{CONFIGURATIONS, Configuration, LEASE};

/// What happens at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before the step.
    Abort,
    /// The step is not done, and fails.
    Error,
    /// The step is done, and then fails.
    Late,
    /// The step is done only when the lease is over.
    Stall,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::Abort, Self::Error, Self::Late, Self::Stall];

    /// How long a stalled step sleeps.
    pub(crate) const STALL: Duration = LEASE.saturating_add(Duration::from_millis(700));

    fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Error => "error",
            Self::Late => "late",
            Self::Stall => "stall",
        }
    }
}

/// A configuration, a point with the number of its hit, and a fault.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) configuration: &'static Configuration,
    pub(crate) point: String,
    pub(crate) fault: Fault,
}

impl Step {
    /// Reads `<configuration>/<point>#<hit>=<fault>`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (configuration, plan) = text.split_once('/')?;
        let (point, fault) = plan.split_once('=')?;
        Some(Self {
            configuration: CONFIGURATIONS.iter().find(|one| one.name == configuration)?,
            point: point.to_owned(),
            fault: Fault::ALL.into_iter().find(|one| one.name() == fault)?,
        })
    }

    /// Whether the first client must hear of it. What the engine does again by itself, and a commit
    /// that was done, are not heard of.
    pub(crate) fn is_felt(&self) -> bool {
        let name = self.point.split('#').next().unwrap_or_default();
        match self.fault {
            Fault::Abort | Fault::Stall => true,
            Fault::Error => {
                ["own.begin", "effect", "own.swap", "own.commit", "reply"].contains(&name)
            }
            Fault::Late => ["own.begin", "effect", "own.swap", "reply"].contains(&name),
        }
    }

    /// What `ONCEWARD_CRASHPOINT` says.
    pub(crate) fn plan(&self) -> String {
        match self.fault {
            Fault::Stall => format!("{}=stall:{}", self.point, Fault::STALL.as_millis()),
            fault => format!("{}={}", self.point, fault.name()),
        }
    }
}

impl Display for Step {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}={}", self.configuration.name, self.point, self.fault.name())
    }
}
