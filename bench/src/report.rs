//! The result as Markdown, ready to paste.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use std::time::Duration;

use onceward::store::sqlite::sqlite_version;

use crate::{
    lookups::Lookups,
    machine::Machine,
    measure::median,
    options::Plan,
    pairs::{Row, Turn},
    reopen::{self, Reopen},
    subject::Grown,
    sweep::{self, Sweep},
    verdict::Figure,
};

/// Everything that a run found out; what was not measured is not there.
pub(crate) struct Report {
    machine: Machine,
    date: Option<String>,
    rounds: u32,
    turn: Duration,
    /// Which share of the cores others used, by parts.
    pub(crate) others: Vec<(&'static str, Option<f64>)>,
    /// Claims and completions.
    pub(crate) pairs: Vec<Row>,
    /// How far the stores grew meanwhile.
    pub(crate) grown: Vec<Grown>,
    /// Look-ups.
    pub(crate) lookups: Option<Lookups>,
    /// Sweeps.
    pub(crate) sweep: Option<Sweep>,
    /// Opening after a kill.
    pub(crate) reopen: Option<Reopen>,
}

impl Report {
    /// A report without results.
    pub(crate) fn new(machine: Machine, date: Option<String>, plan: &Plan) -> Self {
        Self {
            machine,
            date,
            rounds: plan.rounds,
            turn: plan.turn,
            others: Vec::new(),
            pairs: Vec::new(),
            grown: Vec::new(),
            lookups: None,
            sweep: None,
            reopen: None,
        }
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self) {
        self.print_conditions();
        print_figures(&Figure::all(self));
        self.print_pairs();
        if let Some(lookups) = &self.lookups {
            print_lookups(lookups);
        }
        if let Some(sweep) = &self.sweep {
            print_sweep(sweep);
        }
        if let Some(reopen) = &self.reopen {
            print_reopen(reopen);
        }
    }

    fn print_conditions(&self) {
        let Machine { processor, kernel, file_system } = &self.machine;
        let date = self.date.as_ref().map(|date| format!(", {date}")).unwrap_or_default();
        let (rounds, turn) = (self.rounds, self.turn.as_secs_f64());
        println!("- Command: `{}`{date}", command());
        println!("- Machine: {processor}; {kernel}; {file_system}; SQLite {}", sqlite_version());
        println!("- Turns of {turn} s, {rounds} for each store and line, in turn; medians.");
        let others = self.others.iter().filter_map(|(part, share)| Some((part, (*share)?)));
        let others: Vec<_> =
            others.map(|(part, share)| format!("{part} {:.0} %", share * 1e2)).collect();
        if !others.is_empty() {
            println!("- Used by other processes meanwhile, of all cores: {}.", others.join(", "));
        }
    }

    fn print_pairs(&self) {
        if self.pairs.is_empty() {
            return;
        }
        println!("\n**Pairs**: a claim plus a completion with 500 B, both synced. Log / SQLite.\n");
        println!(
            "| records | in flight | pairs/s | SQLite ÷ log | CPU µs a pair | kB written a pair | p50 ms | p99 ms |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for row in &self.pairs {
            let both = |shown: &dyn Fn(&[Turn]) -> String| {
                format!("{} / {}", shown(&row.log), shown(&row.sqlite))
            };
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                thousands(row.records as f64),
                thousands(row.in_flight as f64),
                both(&|turns| or_dash(of(turns, |turn| Some(turn.rate)), thousands)),
                or_dash(row.ratio(), |ratio| format!("{ratio:.2}")),
                both(&|turns| or_dash(of(turns, |turn| Some(turn.cpu_micros)), one_digit)),
                both(&|turns| or_dash(
                    of(turns, |turn| turn.written.map(|bytes| bytes / 1e3)),
                    one_digit
                )),
                both(&|turns| or_dash(of(turns, |turn| Some(millis(turn.p50))), two_digits)),
                both(&|turns| or_dash(of(turns, |turn| Some(millis(turn.p99))), two_digits)),
            );
        }
        self.print_grown();
        println!(
            "\nCPU is user plus system time of the whole process, the load generator included. What a \
             store does after a turn, like a checkpoint, is charged to that turn."
        );
    }

    fn print_grown(&self) {
        for Grown { from, log, sqlite } in &self.grown {
            println!(
                "\nThe stores with {} records grew to {} (log) and {} (SQLite) while they were measured.",
                thousands(*from as f64),
                thousands(*log as f64),
                thousands(*sqlite as f64)
            );
        }
    }
}

/// The table that a reader looks at first.
pub(crate) fn print_figures(figures: &[Figure]) {
    println!("\n| figure | measured | must | goal | verdict |\n|---|---|---|---|---|");
    for figure in figures {
        println!("| {} |", figure.cells().join(" | "));
    }
}

fn print_lookups(lookups: &Lookups) {
    if lookups.rows.is_empty() {
        return;
    }
    let place = match lookups.one_core {
        true => "the whole process on one core",
        false => "one client thread; this system cannot confine a process to one core",
    };
    println!("\n**Look-ups** of random stored records, {place}.\n");
    println!("| records | in flight | log /s | SQLite /s |\n|---|---|---|---|");
    for row in &lookups.rows {
        println!(
            "| {} | {} | {} | {} |",
            thousands(row.records as f64),
            row.in_flight,
            or_dash(row.log(), thousands),
            or_dash(row.sqlite(), thousands)
        );
    }
}

fn print_sweep(sweep: &Sweep) {
    println!(
        "\n**Sweep** of {} expired records in batches of {}; claims: {} in flight without a pause.\n",
        thousands(sweep.records as f64),
        thousands(sweep::BATCH.into()),
        sweep::IN_FLIGHT
    );
    println!(
        "| | swept /s | CPU µs a record | claims /s | claim p99 ms | longest claim ms |\n\
         |---|---|---|---|---|---|"
    );
    println!(
        "| sweep alone | {} | {} | – | – | – |",
        thousands(sweep.alone),
        one_digit(sweep.cpu_micros)
    );
    let rows = [
        ("claims alone", "–".into(), &sweep.undisturbed),
        ("both", thousands(sweep.beside_claims), &sweep.disturbed),
    ];
    for (name, swept, claims) in rows {
        println!(
            "| {name} | {swept} | – | {} | {} | {} |",
            thousands(claims.rate),
            two_digits(millis(claims.p99)),
            two_digits(millis(claims.longest))
        );
    }
}

fn print_reopen(reopen: &Reopen) {
    let took: Vec<_> = reopen.took.iter().map(|&took| two_digits(millis(took))).collect();
    println!(
        "\n**Reopen** of {} records after `kill -9` of a process with {} pairs in flight, until a record \
         is read: {} ms.",
        thousands(reopen.records as f64),
        reopen::IN_FLIGHT,
        took.join(", ")
    );
}

/// How this run can be repeated, without what is of this run only, like its directory.
pub(crate) fn command() -> String {
    let mut words = vec!["cargo xtask bench".to_owned()];
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        match word.as_str() {
            "--dir" | "--date" | "--gateway" => drop(given.next()),
            _ if ["--dir=", "--date=", "--gateway="].iter().any(|own| word.starts_with(own)) => {}
            _ => words.push(word),
        }
    }
    words.join(" ")
}

fn of(turns: &[Turn], figure: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
    median(turns.iter().filter_map(figure))
}

/// A figure, or a dash where nothing was measured.
pub(crate) fn or_dash(figure: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "–".into(), shown)
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub(crate) fn one_digit(figure: f64) -> String {
    format!("{figure:.1}")
}

pub(crate) fn two_digits(figure: f64) -> String {
    format!("{figure:.2}")
}

/// A whole number with commas between thousands.
pub(crate) fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::thousands;

    #[test]
    fn commas_between_thousands() {
        for (figure, shown) in [(0.4, "0"), (999.0, "999"), (1000.0, "1,000"), (5e6, "5,000,000")] {
            assert_eq!(thousands(figure), shown);
        }
    }
}
