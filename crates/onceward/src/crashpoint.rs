//! Places where the crash tests stop, fail or delay this process; nothing without the feature
//! `crashpoints`.
//!
//! A step of the protocol is written as `crashpoint!("name", step, error)`. Without the feature that
//! is `step` and nothing else. With it, `ONCEWARD_CRASHPOINT` in the environment says what happens
//! when a step is reached for the n-th time in this process:
//!
//! | value | what happens |
//! |---|---|
//! | `record=<file>` | each step that is reached is appended to the file as `name#n` |
//! | `<name>#<n>=abort` | the process dies before the step |
//! | `<name>#<n>=error` | the step is not done, and fails |
//! | `<name>#<n>=late` | the step is done, and then fails: its answer was lost |
//! | `<name>#<n>=stall:<milliseconds>` | the thread sleeps before the step |

/// One step that a crash test may stop: see the module `crashpoint` in the source.
///
/// ```
/// fn write() -> Result<u32, String> {
///     Ok(7)
/// }
///
/// let written = onceward::crashpoint!("shop.write", write(), "the disk is gone".to_owned());
/// assert_eq!(written, Ok(7));
/// ```
#[cfg(feature = "crashpoints")]
#[macro_export]
#[doc(hidden)]
macro_rules! crashpoint {
    ($name:literal, $step:expr, $error:expr) => {
        match $crate::crashpoint::reached($name) {
            None => $step,
            Some($crate::crashpoint::Fault::Error) => Err($error),
            Some($crate::crashpoint::Fault::Late) => match $step {
                Ok(_) => Err($error),
                failed => failed,
            },
        }
    };
}

/// One step that a crash test may stop: nothing but the step, without the feature `crashpoints`.
///
/// ```
/// fn write() -> Result<u32, String> {
///     Ok(7)
/// }
///
/// let written = onceward::crashpoint!("shop.write", write(), "the disk is gone".to_owned());
/// assert_eq!(written, Ok(7));
/// ```
#[cfg(not(feature = "crashpoints"))]
#[macro_export]
#[doc(hidden)]
macro_rules! crashpoint {
    ($name:literal, $step:expr, $error:expr) => {
        // The error is only looked at by the compiler.
        if false { Err($error) } else { $step }
    };
}

#[cfg(feature = "crashpoints")]
pub use armed::{Fault, reached};

#[cfg(feature = "crashpoints")]
mod armed {
    use std::{
        collections::HashMap,
        fs::{File, OpenOptions},
        io::Write as _,
        sync::{LazyLock, Mutex, PoisonError},
        thread,
        time::Duration,
    };

    /// What the step itself must do; dying and sleeping have happened by then.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// Not be done, and fail.
        Error,
        /// Be done, and then fail.
        Late,
    }

    /// What the environment asks for.
    enum Plan {
        Nothing,
        Record(File),
        Inject { point: String, action: Action },
    }

    #[derive(Clone, Copy)]
    enum Action {
        Abort,
        Stall(Duration),
        Fail(Fault),
    }

    static PLAN: LazyLock<Plan> = LazyLock::new(|| match std::env::var("ONCEWARD_CRASHPOINT") {
        Ok(text) => {
            Plan::parse(&text).unwrap_or_else(|| panic!("ONCEWARD_CRASHPOINT={text} means nothing"))
        }
        Err(_) => Plan::Nothing,
    });

    /// How often each step was reached.
    static HITS: LazyLock<Mutex<HashMap<&'static str, u32>>> = LazyLock::new(Mutex::default);

    impl Plan {
        fn parse(text: &str) -> Option<Self> {
            let (point, action) = text.split_once('=')?;
            if point == "record" {
                let file = OpenOptions::new().create(true).append(true).open(action);
                return Some(Self::Record(file.expect("the file of the record pass opens")));
            }
            point.split_once('#')?.1.parse::<u32>().ok()?;
            let action = match action.split_once(':') {
                None if action == "abort" => Action::Abort,
                None if action == "error" => Action::Fail(Fault::Error),
                None if action == "late" => Action::Fail(Fault::Late),
                Some(("stall", pause)) => Action::Stall(Duration::from_millis(pause.parse().ok()?)),
                _ => return None,
            };
            Some(Self::Inject { point: point.to_owned(), action })
        }
    }

    /// Says that a step is about to be done, and what shall become of it.
    pub fn reached(name: &'static str) -> Option<Fault> {
        if matches!(*PLAN, Plan::Nothing) {
            return None;
        }
        let hit = {
            let mut hits = HITS.lock().unwrap_or_else(PoisonError::into_inner);
            let hit = hits.entry(name).or_default();
            *hit += 1;
            format!("{name}#{hit}")
        };
        match &*PLAN {
            Plan::Record(file) => {
                let mut file = file;
                let written = file.write_all(format!("{hit}\n").as_bytes());
                written.expect("the file of the record pass can be written");
                None
            }
            Plan::Inject { point, action } if *point == hit => match action {
                Action::Abort => std::process::abort(),
                Action::Stall(pause) => {
                    thread::sleep(*pause);
                    None
                }
                Action::Fail(fault) => Some(*fault),
            },
            _ => None,
        }
    }
}
