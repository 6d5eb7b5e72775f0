//! What a run found out, as Markdown.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use std::time::Duration;

use crate::{
    Failure,
    gateway::{
        client::{CONNECTIONS, KNOWN_KEYS},
        exchange::{ANSWER_BYTES, Kind},
        peers::{EXPRESS_WORDS, RESTATE_WORDS},
        subjects::{
            BARE_PROXY, LOGGED, NGINX_FILE, NGINX_PROXY, ONCEWARD, Subject, TRACED, UNCOUNTED,
        },
    },
    machine::Machine,
    measure::median,
    report::{command, millis, one_digit, or_dash, print_figures, thousands, two_digits},
    verdict::{Bound, Figure, Unit},
};

/// Everything that a run found out.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) rounds: u32,
    pub(crate) turn: Duration,
    pub(crate) lines: Vec<Line>,
    /// Programs of others and their versions.
    pub(crate) versions: Vec<String>,
    /// Who was skipped and why.
    pub(crate) skipped: Vec<(&'static str, String)>,
    /// Which share of the cores others used.
    pub(crate) others: Option<f64>,
}

/// One subject and one kind of request.
pub(crate) struct Line {
    /// Which of the subjects.
    pub(crate) subject: usize,
    /// As it is called.
    pub(crate) words: &'static str,
    pub(crate) kind: Kind,
    /// How many requests were answered, those of the warm-up included.
    pub(crate) answered: u64,
    /// How often the service ran for them, where somebody counts.
    pub(crate) executed: Option<u64>,
    pub(crate) turns: Vec<Turn>,
}

/// What one turn gave.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Requests a second.
    pub(crate) rate: f64,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    /// User and system time of the subject for each request.
    pub(crate) cpu_micros: Option<f64>,
}

impl Line {
    /// A line without turns.
    pub(crate) fn new(subject: usize, words: &'static str, kind: Kind) -> Self {
        Self { subject, words, kind, answered: 0, executed: None, turns: Vec::new() }
    }

    fn of(&self, figure: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
        median(self.turns.iter().filter_map(figure))
    }

    /// The cells of its line: who, what, rate, p50, p99, CPU, answered, executed.
    pub(crate) fn cells(&self) -> [String; 8] {
        [
            self.words.into(),
            self.kind.words().into(),
            or_dash(self.of(|turn| Some(turn.rate)), thousands),
            or_dash(self.of(|turn| Some(millis(turn.p50))), two_digits),
            or_dash(self.of(|turn| Some(millis(turn.p99))), two_digits),
            or_dash(self.of(|turn| turn.cpu_micros), one_digit),
            thousands(self.answered as f64),
            or_dash(self.executed.map(|count| count as f64), thousands),
        ]
    }
}

impl Report {
    /// Those that were started; if none, notes why.
    pub(crate) fn or_skipped<const COUNT: usize>(
        &mut self,
        who: &'static str,
        started: Result<[Subject; COUNT], Failure>,
    ) -> Vec<Subject> {
        match started {
            Ok(subjects) => subjects.into(),
            Err(reason) => {
                eprintln!("{who} is skipped: {reason}");
                self.skipped.push((who, reason.to_string()));
                Vec::new()
            }
        }
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self, machine: &Machine, date: Option<&str>) {
        let Machine { processor, kernel, file_system } = machine;
        let date = date.map(|date| format!(", {date}")).unwrap_or_default();
        println!("- Command: `{}`{date}", command());
        println!("- Machine: {processor}; {kernel}; {file_system}");
        if !self.versions.is_empty() {
            println!("- Others: {}", self.versions.join("; "));
        }
        println!(
            "- Turns of {} s, {} for each line, in turn; medians.",
            self.turn.as_secs_f64(),
            self.rounds
        );
        if let Some(share) = self.others {
            println!("- Used by other processes meanwhile, of all cores: {:.0} %.", share * 1e2);
        }
        for (who, reason) in &self.skipped {
            println!("- Skipped: {who}, because {reason}");
        }
        print_figures(&self.figures());
        self.print_lines();
    }

    fn print_lines(&self) {
        println!(
            "\n**Requests** over {CONNECTIONS} connections, each with one under way; answers of \
             {ANSWER_BYTES} B; {KNOWN_KEYS} known keys.\n"
        );
        println!(
            "| subject | request | requests/s | p50 ms | p99 ms | CPU µs a request | answered | executed |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for line in &self.lines {
            println!("| {} |", line.cells().join(" | "));
        }
        println!(
            "\nCPU is user plus system time of the subject's own processes. Answered and executed are \
             those of all turns, the warm-ups included."
        );
    }

    fn figures(&self) -> Vec<Figure> {
        match self.lines.iter().any(|line| line.words == UNCOUNTED) {
            true => self.telemetry_figures(),
            false => self.gateway_figures(),
        }
    }

    /// What metrics and the log of warnings cost has a bound; what is asked for has none.
    fn telemetry_figures(&self) -> Vec<Figure> {
        let figure = |what, words, kind, must| Figure {
            what,
            measured: self.ratio((words, kind), (UNCOUNTED, kind)),
            bound: Bound::AtLeast(must),
            goal: None,
            unit: Unit::Ratio,
        };
        vec![
            figure(
                "metrics and the usual log ÷ nothing counted: no key",
                ONCEWARD,
                Kind::Get,
                0.97,
            ),
            figure("the same: first requests", ONCEWARD, Kind::First, 0.97),
            figure("the same: replays", ONCEWARD, Kind::Replay, 0.97),
            figure(
                "a line for each request ÷ nothing counted: first requests",
                LOGGED,
                Kind::First,
                0.0,
            ),
            figure("the same: replays", LOGGED, Kind::Replay, 0.0),
            figure("traces ÷ nothing counted: no key", TRACED, Kind::Get, 0.0),
            figure("the same: first requests", TRACED, Kind::First, 0.0),
            figure("the same: replays", TRACED, Kind::Replay, 0.0),
        ]
    }

    fn gateway_figures(&self) -> Vec<Figure> {
        let figure = |what, above, below, must, goal| Figure {
            what,
            measured: self.ratio(above, below),
            bound: Bound::AtLeast(must),
            goal: Some(goal),
            unit: Unit::Ratio,
        };
        let (hyper, hyper_post) = ((BARE_PROXY, Kind::Get), (BARE_PROXY, Kind::Post));
        let (unkeyed, first) = ((ONCEWARD, Kind::Get), (ONCEWARD, Kind::First));
        let (nginx, file) = ((NGINX_PROXY, Kind::Get), (NGINX_FILE, Kind::Get));
        let replay = (ONCEWARD, Kind::Replay);
        let (restate, express) = ((RESTATE_WORDS, Kind::First), (EXPRESS_WORDS, Kind::First));
        vec![
            figure("no key ÷ bare hyper proxy", unkeyed, hyper, 0.90, 0.97),
            figure("no key ÷ nginx proxy", unkeyed, nginx, 0.65, 0.85),
            figure("first requests (SQLite) ÷ bare hyper proxy", first, hyper_post, 0.30, 0.45),
            figure("replays ÷ nginx with a file", replay, file, 0.50, 0.75),
            figure("first requests ÷ Restate's", first, restate, 10.0, 25.0),
            figure("first requests ÷ express-idempotency's with Redis", first, express, 3.0, 6.0),
        ]
    }

    fn ratio(&self, above: (&str, Kind), below: (&str, Kind)) -> Option<f64> {
        ratio(&self.lines, above, below)
    }
}

/// The median of the rounds' ratios.
pub(crate) fn ratio(lines: &[Line], above: (&str, Kind), below: (&str, Kind)) -> Option<f64> {
    let line = |(words, kind)| lines.iter().find(|line| (line.words, line.kind) == (words, kind));
    let rounds = line(above)?.turns.iter().zip(&line(below)?.turns);
    median(rounds.map(|(above, below)| above.rate / below.rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_the_rounds() {
        let line = |words, kind, rates: [f64; 3]| Line {
            turns: rates
                .map(|rate| Turn {
                    rate,
                    p50: Duration::ZERO,
                    p99: Duration::ZERO,
                    cpu_micros: None,
                })
                .into(),
            ..Line::new(0, words, kind)
        };
        let lines = vec![
            line(ONCEWARD, Kind::Get, [50.0, 10.0, 90.0]),
            line(BARE_PROXY, Kind::Get, [100.0, 10.0, 100.0]),
        ];
        let report = Report { lines, ..Report::default() };
        assert_eq!(report.ratio((ONCEWARD, Kind::Get), (BARE_PROXY, Kind::Get)), Some(0.9));
        assert_eq!(report.ratio((ONCEWARD, Kind::First), (BARE_PROXY, Kind::Get)), None);
        let figures = report.figures();
        assert!(figures[1..].iter().all(|figure| figure.measured.is_none()));
    }
}
