//! What the suites run against, found, installed and started while cargo builds.

use std::thread::{self, JoinHandle};

use super::{Length, Selection};
use crate::suites::Against;
use crate::tools;
use crate::workspace::Workspace;

/// The thread that looks for, installs and starts what the selected suites need.
pub(crate) struct Preparation {
    /// How many suites it prepares.
    count: usize,
    thread: JoinHandle<Vec<Against>>,
}

impl Preparation {
    pub(crate) fn start(selection: &Selection, workspace: &Workspace) -> Self {
        let (suites, workspace) = (selection.suites.clone(), workspace.clone());
        let (count, is_long) = (suites.len(), selection.length == Length::Long);
        let thread = thread::spawn(move || {
            if is_long {
                tools::patroni();
            }
            suites.iter().map(|suite| (suite.against)(&workspace)).collect()
        });
        Self { count, thread }
    }

    /// What each selected suite runs against, in their order.
    pub(crate) fn finish(self) -> Vec<Against> {
        let broken =
            || Against::Broken("its preparation panicked; see the message above".to_owned());
        self.thread.join().unwrap_or_else(|_| (0..self.count).map(|_| broken()).collect())
    }
}
