//! What a run found out, as Markdown.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use std::time::Duration;

use crate::{
    gateway::{
        EXPRESS_ALWAYS, EXPRESS_EVERYSEC, Line, ON_POSTGRES, ON_REDIS_ALWAYS, ON_REDIS_EVERYSEC,
        ON_SQLITE, exchange::Kind, ratio,
    },
    load,
    machine::Machine,
    measure::median,
    redis::{
        memory::Memory,
        site::{SETTINGS, Site, Sync},
        trips::{TIMES, Trips},
        turns::{IN_FLIGHT, Pairs, Row, Turn, WARM_UP},
    },
    report::{command, millis, one_digit, or_dash, print_figures, thousands, two_digits},
    verdict::{Bound, Figure, Unit},
};

/// The condition of the figure of memory: sets of fewer records take less.
const RECORDS: u64 = 100_000;

/// Everything that a run found out; what was not measured is not there.
pub(crate) struct Report {
    version: String,
    rounds: u32,
    turn: Duration,
    pub(crate) pairs: Option<Pairs>,
    pub(crate) trips: Option<Trips>,
    pub(crate) memory: Option<Memory>,
    pub(crate) gateway: Vec<Line>,
    /// The versions of the peer's parts.
    pub(crate) peer: Option<String>,
    /// Who was skipped and why.
    pub(crate) skipped: Vec<(&'static str, String)>,
}

impl Report {
    /// A report without results.
    pub(crate) fn new(sites: &[Site; 2], rounds: u32, turn: Duration) -> Self {
        let installation = sites[0].server.installation();
        Self {
            version: installation.version().to_owned(),
            rounds,
            turn,
            pairs: None,
            trips: None,
            memory: None,
            gateway: Vec::new(),
            peer: None,
            skipped: Vec::new(),
        }
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self, machine: &Machine, date: Option<&str>) {
        let Machine { processor, kernel, file_system } = machine;
        let date = date.map(|date| format!(", {date}")).unwrap_or_default();
        println!("- Command: `{}`{date}", command());
        println!("- Machine: {processor}; {kernel}; {file_system}; {}", self.version);
        let settings = SETTINGS.map(|(name, value)| format!("`{name} {value}`")).join(", ");
        println!("- Servers: `appendonly yes`, {settings}; `appendfsync` as said.");
        println!(
            "- Turns of {} s after {} s of warm-up, {} for each line, in turn; medians.",
            self.turn.as_secs_f64(),
            WARM_UP.as_secs_f64(),
            self.rounds
        );
        if let Some(share) = self.pairs.as_ref().and_then(|pairs| pairs.others) {
            println!("- Used by others between the turns, of all cores: {:.0} %.", share * 1e2);
        }
        if let Some(peer) = &self.peer {
            println!("- Peer: {peer}");
        }
        for (who, reason) in &self.skipped {
            println!("- Skipped: {who}, because {reason}");
        }
        if load::held() > 0 {
            println!("- The store said {} times that it was held.", load::held());
        }
        print_figures(&self.figures());
        if let Some(pairs) = &self.pairs {
            print_pairs(pairs);
        }
        if let Some(trips) = &self.trips {
            print_trips(trips);
        }
        if let Some(Memory { records, each }) = &self.memory {
            println!(
                "\n**Memory**: {} records with 500 B took {} B each, keys, sets and the server's own included.",
                thousands(*records as f64),
                thousands(*each)
            );
        }
        self.print_gateway();
    }

    fn row(&self, sync: Sync, in_flight: usize) -> Option<&Row> {
        let rows = &self.pairs.as_ref()?.rows;
        rows.iter().find(|row| (row.sync, row.in_flight) == (sync, in_flight))
    }

    fn figures(&self) -> Vec<Figure> {
        use Bound::{AtLeast, AtMost};
        use Unit::{Each, Ratio};

        let figure =
            |what, measured, bound, unit| Figure { what, measured, bound, goal: None, unit };
        let beside_bare = |what, sync, in_flight| {
            let measured = self.row(sync, in_flight).and_then(Row::ratio);
            figure(what, measured, AtLeast(0.80), Ratio)
        };
        let commands = |what, count: fn(&Trips) -> f64| {
            figure(what, self.trips.as_ref().map(count), AtMost(1.0), Each("commands"))
        };
        let first = |what, above, below, least| {
            let measured = ratio(&self.gateway, (above, Kind::First), (below, Kind::First));
            figure(what, measured, AtLeast(least), Ratio)
        };
        let memory = self.memory.as_ref().filter(|memory| memory.records >= RECORDS);
        let [one, some, many] = IN_FLIGHT;
        vec![
            beside_bare("store ÷ bare loop, always, 1 in flight", Sync::Always, one),
            beside_bare("the same, 16 in flight", Sync::Always, some),
            beside_bare("the same, 128 in flight", Sync::Always, many),
            beside_bare("store ÷ bare loop, everysec, 1 in flight", Sync::EverySecond, one),
            beside_bare("the same, 16 in flight", Sync::EverySecond, some),
            beside_bare("the same, 128 in flight", Sync::EverySecond, many),
            commands("round trips of a first request's claim", |trips| trips.claim),
            commands("of a duplicate, while the first runs", |trips| trips.busy),
            commands("of a duplicate, when it has ended", |trips| trips.replay),
            commands("of a settlement", |trips| trips.settlement),
            figure(
                "memory of a record with 500 B, 100,000 records",
                memory.map(|memory| memory.each),
                AtMost(1300.0),
                Each("B"),
            ),
            first(
                "first requests on Redis ÷ express-idempotency's, always",
                ON_REDIS_ALWAYS,
                EXPRESS_ALWAYS,
                5.0,
            ),
            first("the same, everysec", ON_REDIS_EVERYSEC, EXPRESS_EVERYSEC, 5.0),
            first("on Redis, always ÷ on SQLite", ON_REDIS_ALWAYS, ON_SQLITE, 0.0),
            first("on Redis, everysec ÷ on SQLite", ON_REDIS_EVERYSEC, ON_SQLITE, 0.0),
            first("on Redis, always ÷ on PostgreSQL", ON_REDIS_ALWAYS, ON_POSTGRES, 0.0),
            first("on Redis, everysec ÷ on PostgreSQL", ON_REDIS_EVERYSEC, ON_POSTGRES, 0.0),
        ]
    }

    fn print_gateway(&self) {
        if self.gateway.is_empty() {
            return;
        }
        println!(
            "\n**First requests of the gateway**, 64 connections; SQLite and PostgreSQL sync each.\n"
        );
        println!("| who | /s | p50 ms | p99 ms | answered | executed |\n|---|---|---|---|---|---|");
        for line in &self.gateway {
            let [who, _, rate, p50, p99, _, answered, executed] = line.cells();
            println!("| {who} | {rate} | {p50} | {p99} | {answered} | {executed} |");
        }
    }
}

fn print_pairs(pairs: &Pairs) {
    let [claim, completion] = pairs.bytes;
    println!(
        "\n**Pairs**: a claim ({claim} B) plus a completion with 500 B ({completion} B). Bare loop / store.\n"
    );
    println!(
        "| appendfsync | in flight | pairs/s | store ÷ bare loop | client CPU µs a pair | server CPU µs a pair | \
         p50 ms | p99 ms |\n|---|---|---|---|---|---|---|---|"
    );
    for row in &pairs.rows {
        let both = |figure: fn(&Turn) -> Option<f64>, shown: fn(f64) -> String| {
            let of = |turns: &[Turn]| or_dash(median(turns.iter().filter_map(figure)), shown);
            format!("{} / {}", of(&row.bare), of(&row.store))
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.sync.word(),
            row.in_flight,
            both(|turn| Some(turn.rate), thousands),
            or_dash(row.ratio(), two_digits),
            both(|turn| Some(turn.client_micros), one_digit),
            both(|turn| turn.server_micros, one_digit),
            both(|turn| Some(millis(turn.p50)), two_digits),
            both(|turn| Some(millis(turn.p99)), two_digits),
        );
    }
    println!(
        "\nCPU is user plus system time; the client's is that of the whole process, which in the store's turns also \
         makes the operations, their digests and the encoded records."
    );
}

fn print_trips(trips: &Trips) {
    println!(
        "\n**Round trips**: commands that clients sent, seen by `MONITOR`, for each of {TIMES}: claim {}, duplicate \
         while it runs {}, settlement {}, duplicate when it has ended {}.",
        two_digits(trips.claim),
        two_digits(trips.busy),
        two_digits(trips.settlement),
        two_digits(trips.replay)
    );
}
