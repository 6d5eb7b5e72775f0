//! What a run found out, as Markdown.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use crate::{
    gateway::Line,
    load,
    machine::Machine,
    postgres::{
        own::Form,
        purge::{Purge, Swept},
        script::Script,
        site::{SETTINGS, Site},
        turns::{How, Row, WARM_UP},
    },
    report::{command, or_dash, print_figures, thousands, two_digits},
    verdict::{Bound, Figure, Unit},
};

/// The conditions of the figures: what was measured under others is not held against them.
const FEW_RECORDS: u64 = 1_000_000;
const MANY_RECORDS: u64 = 5_000_000;
const PURGED_RECORDS: u64 = 200_000;

/// Pairs beside so many records.
pub(crate) struct Size {
    pub(crate) records: u64,
    pub(crate) row: Row,
}

/// Everything that a run found out; what was not measured is not there.
pub(crate) struct Report {
    version: String,
    rounds: u32,
    seconds: u32,
    /// Which share of the cores others used while nobody took a turn.
    pub(crate) others: Option<f64>,
    /// The sizes of a claim and of an ended record.
    pub(crate) body_bytes: Option<(usize, usize)>,
    /// The size of the table and of its indexes for each record, in the end.
    pub(crate) bytes_each: Option<f64>,
    pub(crate) pairs: Vec<Row>,
    pub(crate) own: Vec<Row>,
    pub(crate) sizes: Vec<Size>,
    pub(crate) purge: Option<Purge>,
    pub(crate) gateway: Vec<Line>,
}

impl Report {
    /// A report without results.
    pub(crate) fn new(site: &Site, rounds: u32, seconds: u32) -> Self {
        Self {
            version: site.server.installation().version().to_owned(),
            rounds,
            seconds,
            others: None,
            body_bytes: None,
            bytes_each: None,
            pairs: Vec::new(),
            own: Vec::new(),
            sizes: Vec::new(),
            purge: None,
            gateway: Vec::new(),
        }
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self, machine: &Machine, date: Option<&str>) {
        let Machine { processor, kernel, file_system } = machine;
        let date = date.map(|date| format!(", {date}")).unwrap_or_default();
        println!("- Command: `{}`{date}", command());
        println!("- Machine: {processor}; {kernel}; {file_system}; PostgreSQL {}", self.version);
        let settings = SETTINGS.map(|(name, value)| format!("`{name} = {value}`"));
        println!("- Server: {}; all else as PostgreSQL has it.", settings.join(", "));
        println!(
            "- Turns of {} s after {WARM_UP} s of warm-up, {} for each line, in turn; medians.",
            self.seconds, self.rounds
        );
        if let Some(share) = self.others {
            println!("- Used by others between the turns, of all cores: {:.0} %.", share * 1e2);
        }
        if load::held() > 0 {
            println!(
                "- The store said {} times that somebody holds a record that nobody knew; it was asked \
                 again.",
                thousands(load::held() as f64)
            );
        }
        print_figures(&self.figures());
        self.print_rows(
            "**Pairs**: a claim plus a completion with 500 B, both synced.",
            &self.pairs,
            self.pgbench(Script::Pair, 64),
        );
        if let (Some((claim, ended)), Some(bytes)) = (self.body_bytes, self.bytes_each) {
            println!(
                "\nA claim is stored in {claim} B, an ended record in {ended} B. In the end the table and \
                 its indexes had {} B for each record.",
                thousands(bytes)
            );
        }
        self.print_rows(
            "**The record in the user's own transaction**, beside one row of the business.",
            &self.own,
            self.pgbench(Script::CommitOutcome, 64),
        );
        self.print_sizes();
        if let Some(purge) = &self.purge {
            print_purge(purge);
        }
        self.print_gateway();
    }

    fn pgbench(&self, script: Script, clients: usize) -> Option<&Row> {
        self.row(How::Pgbench(script), clients)
    }

    fn row(&self, how: How, in_flight: usize) -> Option<&Row> {
        let mut rows = self.pairs.iter().chain(&self.own);
        rows.find(|row| (row.who.how, row.who.in_flight) == (how, in_flight))
    }

    /// The row of `pgbench` with the most pairs.
    fn best(&self) -> Option<&Row> {
        let rows = self.pairs.iter().filter(|row| row.who.how == How::Pgbench(Script::Pair));
        rows.max_by(|one, other| one.rate().unwrap_or(0.0).total_cmp(&other.rate().unwrap_or(0.0)))
    }

    fn store(&self, is_single: bool, in_flight: usize) -> Option<&Row> {
        self.pairs.iter().find(|row| match row.who.how {
            How::Store(lanes) => {
                (lanes.batch == Some(1)) == is_single && row.who.in_flight == in_flight
            }
            _ => false,
        })
    }

    fn figures(&self) -> Vec<Figure> {
        let ratio = |what, this: Option<&Row>, other: Option<&Row>, least| Figure {
            what,
            measured: this.zip(other).and_then(|(this, other)| this.to(other)),
            bound: Bound::AtLeast(least),
            goal: None,
            unit: Unit::Ratio,
        };
        let pgbench = |clients| self.pgbench(Script::Pair, clients);
        let together = |clients| self.pgbench(Script::CommitOutcome, clients);
        let own = |form, clients| self.row(How::Own(form), clients);
        let size = |records| {
            let size = self.sizes.iter().find(|size| size.records == records);
            size.map(|size| &size.row)
        };
        let purge = self.purge.as_ref().filter(|purge| purge.records >= PURGED_RECORDS);
        let purged = |what, index: usize| Figure {
            what,
            measured: purge.and_then(|purge| purge.rows.get(index)).map(|swept| swept.rate),
            bound: Bound::AtLeast(200_000.0),
            goal: None,
            unit: Unit::Each("/s"),
        };
        vec![
            ratio("one statement each ÷ pgbench, 16", self.store(true, 16), pgbench(16), 0.85),
            ratio("one statement each ÷ pgbench, 64", self.store(true, 64), pgbench(64), 0.85),
            ratio("batched, 64 in flight ÷ pgbench, 64", self.store(false, 64), pgbench(64), 1.5),
            ratio("batched, 256 in flight ÷ pgbench, 64", self.store(false, 256), pgbench(64), 3.0),
            ratio(
                "batched, 256 in flight ÷ pgbench at its best",
                self.store(false, 256),
                self.best(),
                0.0,
            ),
            ratio("`commit` ÷ pgbench, 16", own(Form::Commit, 16), together(16), 1.0),
            ratio("`commit` ÷ pgbench, 64", own(Form::Commit, 64), together(64), 1.0),
            ratio(
                "one transaction ÷ pgbench, 16",
                own(Form::OneTransaction, 16),
                together(16),
                1.0,
            ),
            ratio(
                "one transaction ÷ pgbench, 64",
                own(Form::OneTransaction, 64),
                together(64),
                1.0,
            ),
            ratio(
                "5 M ÷ 1 M records, batched, 64 in flight",
                size(MANY_RECORDS),
                size(FEW_RECORDS),
                0.75,
            ),
            purged("expired records purged, 1,000 a call", 0),
            purged("expired records purged, 50,000 a call", 1),
        ]
    }

    fn print_rows(&self, title: &str, rows: &[Row], reference: Option<&Row>) {
        if rows.is_empty() {
            return;
        }
        println!("\n{title}\n");
        println!(
            "| who | in flight | connections | /s | ÷ pgbench, 64 | HOT | WAL B each | full pages each | \
             CPU µs each, server + client |\n\
             |---|---|---|---|---|---|---|---|---|"
        );
        for row in rows {
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} + {} |",
                row.who.words,
                row.who.in_flight,
                row.who.connections(),
                or_dash(row.rate(), thousands),
                or_dash(reference.and_then(|reference| row.to(reference)), two_digits),
                or_dash(row.hot_share(), |share| format!("{:.1} %", share * 1e2)),
                or_dash(row.each(|counts| counts.wal_bytes), thousands),
                or_dash(row.each(|counts| counts.full_pages), two_digits),
                or_dash(row.cpu_micros(|cpu| cpu.server), thousands),
                or_dash(row.cpu_micros(|cpu| cpu.client), thousands),
            );
        }
    }

    fn print_sizes(&self) {
        let Some(first) = self.sizes.first() else { return };
        println!(
            "\n**Pairs beside many records**, batched, {} in flight.\n",
            first.row.who.in_flight
        );
        println!("| records at first | /s | ÷ the first | HOT | WAL B each | full pages each |");
        println!("|---|---|---|---|---|---|");
        for Size { records, row } in &self.sizes {
            println!(
                "| {} | {} | {} | {} | {} | {} |",
                thousands(*records as f64),
                or_dash(row.rate(), thousands),
                or_dash(row.to(&first.row), two_digits),
                or_dash(row.hot_share(), |share| format!("{:.1} %", share * 1e2)),
                or_dash(row.each(|counts| counts.wal_bytes), thousands),
                or_dash(row.each(|counts| counts.full_pages), two_digits),
            );
        }
    }

    fn print_gateway(&self) {
        if self.gateway.is_empty() {
            return;
        }
        println!("\n**The gateway on either store**, 64 connections.\n");
        println!(
            "| who | request | /s | p50 ms | p99 ms | CPU µs each |\n|---|---|---|---|---|---|"
        );
        for line in &self.gateway {
            println!("| {} |", line.cells()[..6].join(" | "));
        }
    }
}

fn print_purge(purge: &Purge) {
    println!("\n**Purge** of {} expired records.\n", thousands(purge.records as f64));
    println!("| at most in one call | /s | WAL B each | full pages each |\n|---|---|---|---|");
    for Swept { batch, rate, counts } in &purge.rows {
        let each = |count: f64| count / purge.records.max(1) as f64;
        println!(
            "| {} | {} | {} | {} |",
            thousands((*batch).into()),
            thousands(*rate),
            thousands(each(counts.wal_bytes)),
            two_digits(each(counts.full_pages))
        );
    }
}
