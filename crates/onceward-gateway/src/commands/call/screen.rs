//! What people see while a call runs, and when it has ended. All of it goes to standard error.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anstream::eprintln;
use anstyle::{AnsiColor, Style};
use onceward::{
    Key,
    client::{Attempt, Event},
    retry::Class,
};

use super::{outcome::Outcome, sending::Ended};

const CLEAR: &str = "\r\x1b[2K";

#[derive(Clone, Default)]
pub(super) struct Screen {
    /// The key that was shown last: the screen shows it once.
    key: Arc<Mutex<Option<String>>>,
}

impl Screen {
    pub(super) fn observer(&self) -> impl Fn(&Event<'_>) + Send + Sync + use<> {
        let screen = self.clone();
        move |event| screen.show(event)
    }

    fn show(&self, event: &Event<'_>) {
        match event {
            Event::Began { attempt, hedge, timeout, key } => {
                self.show_key(key.map(Key::as_str));
                let beside = if *hedge { ", beside one that is late" } else { "" };
                let time = shown(*timeout);
                show_for_now(&format!("attempt {attempt}{beside}: sent, waiting up to {time} …"));
            }
            Event::Ended { attempt, .. } => {
                let took = shown(attempt.took);
                let (style, text) = (style(attempt), attempt.to_string());
                show_for_now(CLEAR);
                eprintln!("attempt {}  {style}{text}{style:#}  after {took}", attempt.number);
            }
            Event::Waiting { wait, budget_left } => {
                let left =
                    budget_left.map_or_else(String::new, |left| format!("; budget left {left}"));
                eprintln!("           again in {}{left}", shown(*wait));
            }
            Event::Following { wait } => {
                eprintln!(
                    "           the server is carrying it out; asking for its end in {}",
                    shown(*wait)
                );
            }
            Event::Refreshing => eprintln!("           asking for new credentials"),
            _ => {}
        }
    }

    fn show_key(&self, key: Option<&str>) {
        let mut shown = self.key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = key.filter(|key| shown.as_deref() != Some(key)) {
            eprintln!("key        {key}");
            *shown = Some(key.to_owned());
        }
    }
}

/// A line that the next one replaces; on a terminal only.
fn show_for_now(text: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
    }
}

fn style(attempt: &Attempt) -> Style {
    let color = match attempt.class {
        Class::Success | Class::Accepted => AnsiColor::Green,
        Class::InProgress | Class::Overload | Class::ServerFault => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    color.on_default()
}

pub(super) fn show_end(outcome: Outcome, ended: &Ended) {
    show_for_now(CLEAR);
    let report = ended.report();
    if let (None, Some(answer)) = (report.attempts.last(), ended.answer()) {
        eprintln!("           {}", answer.status);
    }
    let reason = match (report.stop, ended.moved()) {
        (None, Some(to)) => {
            format!(
                "it points to {to}, and the client does not follow: a key belongs to one server"
            )
        }
        (stop, _) => stop.map(|stop| stop.reason().to_string()).unwrap_or_default(),
    };
    match outcome {
        Outcome::Ok
            if report.attempts.last().map(|attempt| attempt.class) == Some(Class::Accepted) =>
        {
            eprintln!("accepted: the server is carrying it out; --until-done waits for its end");
        }
        Outcome::Ok => {}
        Outcome::Refused => eprintln!("refused: {reason}"),
        Outcome::GaveUp => {
            eprintln!(
                "gave up: {reason}. Nothing says that it happened: every attempt got an answer, or never arrived"
            );
        }
        Outcome::Unknown => {
            eprintln!("unknown: {reason}. It may have happened");
            match report.key() {
                Some(_) if report.unprotected => eprintln!(
                    "The server does not keep the key: look there before you send it again, also with \
                     the same key"
                ),
                Some(key) => eprintln!(
                    "Find out with the same request and --key {key}; a new key may do it twice"
                ),
                None => eprintln!("It had no key: look at the server before you send it again"),
            }
        }
    }
    if let (Some(hint), true) = (report.hint, outcome != Outcome::Ok) {
        eprintln!("the server asks to come back after {}", shown(hint));
    }
}

fn shown(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
