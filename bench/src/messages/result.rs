//! What a run found out, as Markdown.
#![expect(clippy::print_stdout, reason = "the report is what the program is for")]

use crate::{
    machine::Machine,
    messages::{
        conditions::Compared,
        enqueue,
        enqueue::Form,
        latency,
        latency::Who,
        own::AGGREGATES,
        peers::PeerName,
        relay::{Relayed, Row},
    },
    postgres::site::{SETTINGS, Site},
    report::{command, millis, one_digit, or_dash, print_figures, thousands, two_digits},
    verdict::{Bound, Figure, Unit},
};

/// Everything that a run found out; what was not measured is not there.
pub(crate) struct Report {
    version: String,
    rounds: u32,
    /// Which share of the cores others used while no queue took a turn.
    pub(crate) others: Option<f64>,
    /// Peers that could not be had, and why.
    pub(crate) absent: Vec<(PeerName, String)>,
    pub(crate) relay: Option<Relayed>,
    pub(crate) enqueue: Vec<enqueue::Row>,
    pub(crate) latency: Vec<latency::Row>,
    pub(crate) snapshot: Option<Compared>,
    pub(crate) delivered: Option<Compared>,
    pub(crate) lane: Option<Compared>,
}

impl Report {
    /// A report without results.
    pub(crate) fn new(site: &Site, rounds: u32) -> Self {
        Self {
            version: site.server.installation().version().to_owned(),
            rounds,
            others: None,
            absent: Vec::new(),
            relay: None,
            enqueue: Vec::new(),
            latency: Vec::new(),
            snapshot: None,
            delivered: None,
            lane: None,
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
        let peers = self.relay.iter().flat_map(|relay| &relay.peers);
        let peers: Vec<_> = peers.map(|(name, _)| name.version()).collect();
        if !peers.is_empty() {
            println!("- Others: {}.", peers.join(", "));
        }
        for (name, reason) in &self.absent {
            println!("- {name} could not be had: {}", reason.lines().next().unwrap_or_default());
        }
        println!("- {} turns for each line, in turn; medians.", self.rounds);
        if let Some(share) = self.others {
            println!("- Used by others before the first turn, of all cores: {:.0} %.", share * 1e2);
        }
        print_figures(&self.figures());
        self.print_relay();
        self.print_enqueue();
        self.print_latency();
        self.print_conditions();
    }

    fn peer(&self, name: PeerName) -> Option<f64> {
        let relay = self.relay.as_ref()?;
        let (_, row) = relay.peers.iter().find(|(peer, _)| *peer == name)?;
        relay.own.to(row)
    }

    /// The form that a user writes who minds what it costs.
    fn prepared(&self, clients: usize) -> Option<&enqueue::Row> {
        let is_it = |row: &&enqueue::Row| row.form == Form::Prepared && row.clients == clients;
        self.enqueue.iter().find(is_it)
    }

    fn latency(&self, who: Who) -> Option<&latency::Row> {
        self.latency.iter().find(|row| row.who == who)
    }

    fn figures(&self) -> Vec<Figure> {
        let ratio = |what, measured, least, goal| Figure {
            what,
            measured,
            bound: Bound::AtLeast(least),
            goal,
            unit: Unit::Ratio,
        };
        let added = |what, clients| Figure {
            what,
            measured: self.prepared(clients).and_then(|row| Some(row.added()? * 1e2)),
            bound: Bound::AtMost(15.0),
            goal: Some(8.0),
            unit: Unit::Each("%"),
        };
        let median = |who| self.latency(who).map(|row| millis(row.quantile(0.5)));
        let sooner = |what, who| Figure {
            what,
            measured: median(who).zip(median(Who::Graphile)).map(|(own, other)| own / other),
            bound: Bound::AtMost(1.0),
            goal: None,
            unit: Unit::Ratio,
        };
        let under = |what, compared: &Option<Compared>, least| {
            ratio(what, compared.as_ref().and_then(Compared::ratio), least, None)
        };
        vec![
            ratio("relay ÷ River", self.peer(PeerName::River), 5.0, Some(10.0)),
            ratio("relay ÷ graphile-worker", self.peer(PeerName::GraphileWorker), 0.5, Some(1.0)),
            ratio("relay ÷ pg-boss", self.peer(PeerName::PgBoss), 0.0, None),
            added("added by a message to a transaction, 1 client", enqueue::CLIENTS[0]),
            added("added by a message to a transaction, 16 clients", enqueue::CLIENTS[1]),
            sooner("commit to sink, woken ÷ graphile-worker, p50", Who::OwnWoken),
            sooner("commit to sink, not woken ÷ graphile-worker, p50", Who::Own),
            under("beside an old snapshot ÷ without", &self.snapshot, 0.9),
            under("behind delivered messages ÷ without", &self.delivered, 0.9),
            under("a long backlog of one lane ÷ a short one", &self.lane, 0.8),
        ]
    }

    fn print_relay(&self) {
        let Some(relay) = &self.relay else { return };
        println!(
            "\n**A backlog** of {} committed messages to a sink that does nothing; ours are of {} aggregates, in \
             order, the others' in any order.\n",
            thousands(relay.messages as f64),
            thousands(AGGREGATES as f64)
        );
        println!(
            "| who | how | /s | ours ÷ it | CPU µs each, server + client |\n|---|---|---|---|---|"
        );
        let line = |who: &str, how: &str, row: &Row| {
            println!(
                "| {who} | {how} | {} | {} | {} + {} |",
                or_dash(row.rate(), thousands),
                or_dash(relay.own.to(row), two_digits),
                or_dash(row.cpu_micros(|cpu| cpu.server), one_digit),
                or_dash(row.cpu_micros(|cpu| cpu.client), one_digit),
            );
        };
        line("**relay**", "as it comes", &relay.own);
        for (name, row) in &relay.peers {
            line(name.words(), name.tuning(), row);
        }
    }

    fn print_enqueue(&self) {
        if self.enqueue.is_empty() {
            return;
        }
        println!(
            "\n**A transaction** of one insert, with and without a message of 100 B; the figures are those of the form in bold.\n"
        );
        println!(
            "| form | clients | without /s | with /s | added | CPU µs added, server + client |\n|---|---|---|---|---|---|"
        );
        for row in &self.enqueue {
            println!(
                "| {} | {} | {} | {} | {} | {} + {} |",
                row.form.words(),
                row.clients,
                or_dash(row.without(), thousands),
                or_dash(row.with(), thousands),
                or_dash(row.added(), |share| format!("{:.0} %", share * 1e2)),
                or_dash(row.cpu_added(|cpu| cpu.server), one_digit),
                or_dash(row.cpu_added(|cpu| cpu.client), one_digit),
            );
        }
    }

    fn print_latency(&self) {
        if self.latency.is_empty() {
            return;
        }
        println!(
            "\n**From commit to sink**, from before the commit is sent, {} commits a second.\n",
            latency::RATE
        );
        println!("| who | messages | p50 ms | p99 ms |\n|---|---|---|---|");
        for row in &self.latency {
            let who = match row.who {
                Who::Own => "**relay**, not woken",
                Who::OwnWoken => "**relay**, woken by the process that commits",
                Who::Graphile => "graphile-worker",
            };
            println!(
                "| {who} | {} | {} | {} |",
                thousands(row.count() as f64),
                two_digits(millis(row.quantile(0.5))),
                two_digits(millis(row.quantile(0.99))),
            );
        }
    }

    fn print_conditions(&self) {
        let conditions = [
            ("an old snapshot, s", &self.snapshot),
            ("delivered messages", &self.delivered),
            ("backlog of one lane", &self.lane),
        ];
        if conditions.iter().all(|(_, compared)| compared.is_none()) {
            return;
        }
        println!("\n**Conditions**: a backlog with and without them.\n");
        println!("| condition | of it | with /s | without /s | ratio |\n|---|---|---|---|---|");
        for (words, compared) in conditions {
            let Some(compared) = compared else { continue };
            println!(
                "| {words} | {} | {} | {} | {} |",
                thousands(compared.size),
                or_dash(compared.under(), thousands),
                or_dash(compared.without(), thousands),
                or_dash(compared.ratio(), two_digits),
            );
        }
    }
}
