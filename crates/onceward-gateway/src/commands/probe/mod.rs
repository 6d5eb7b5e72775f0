//! `onceward probe`: sends one operation in the ways that clients do, and says whether it landed once.

mod answer;
mod catalogue;
mod counter;
mod curl;
mod operation;
mod play;
mod rehearsal;
mod report;
mod scenes;
mod wire;

use std::{
    error::Error,
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, value_parser};
use http::{Method, Uri};
use tokio::time::Instant;

use super::{
    arguments::{self, Line, url},
    terminal::{self, BoxError, read_enough},
};
use catalogue::{CHECKS, Profile, Severity};
use curl::Secrets;
use operation::Operation;
use report::{Finding, Report};
use scenes::SCENES;
use wire::{Limits, Wire};

/// Checks from outside whether an API is safe to retry.
///
/// Sends one operation in the ways that clients really do: again, ten times at once, with the same key
/// for something else, in chunks, by two callers, and by clients that vanish. Then it says whether it
/// landed once, what users would suffer if not, and how to mend it. About 80 requests really run the
/// operation, so use a test environment; for anything but this computer it wants `--yes`.
///
/// Exit codes: 0 nothing found, 3 minor findings, 4 major, 5 critical; 1 it could not be probed, or
/// nothing of weight could be asked; 2 the command line is wrong.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward probe http://127.0.0.1:3000/charges --data '{\"cents\": 500}'
  onceward probe http://127.0.0.1:3000/orders --data '{\"id\": \"{{uuid}}\", \"n\": {{number}}}' \\
      --credential 'Authorization: Bearer A' --credential 'Authorization: Bearer B' \\
      --count-url http://127.0.0.1:3000/orders --count-json /total
  onceward probe --list                       the checks
  onceward probe URL --data @order.json --only once,concurrent --json
  onceward probe https://test.example/pay --data @pay.json --dry-run")]
pub(crate) struct Options {
    /// Where the operation goes.
    #[arg(required_unless_present = "list", value_parser = url)]
    url: Option<Uri>,
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST")]
    method: Method,
    /// The body, or `@FILE` with it (`@-`: standard input). `{{uuid}}` and `{{number}}` in it are new in
    /// every piece of work, and the same in its retries.
    #[arg(short = 'd', long, value_name = "DATA")]
    data: Option<String>,
    /// Another request, for the same key [default: a number or text of the data changed].
    #[arg(long, value_name = "DATA")]
    other_data: Option<String>,
    /// A request that the API refuses [default: an object that it does not expect].
    #[arg(long, value_name = "DATA")]
    bad_data: Option<String>,
    /// A line of all requests. JSON data goes as `application/json` by itself.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header_line)]
    header: Vec<Line>,
    /// A line that says who is calling; give two, of two callers, to see whether they are apart.
    // It is read later, so that no message about the command line repeats it.
    #[arg(long, value_name = "NAME: VALUE")]
    credential: Vec<String>,
    /// Where the API counts effects; the probe asks before and after. Without it, it counts different answers.
    #[arg(long, value_name = "URL", requires = "count_json", value_parser = url)]
    count_url: Option<Uri>,
    /// JSON pointer to the number there, or to a list whose length counts.
    #[arg(long, value_name = "POINTER", requires = "count_url", value_parser = pointer)]
    count_json: Option<String>,
    /// What the probe measures the API by.
    #[arg(long, value_enum, default_value = "onceward")]
    profile: Profile,
    /// Only these checks.
    #[arg(long, value_name = "CHECKS", value_delimiter = ',', value_parser = known)]
    only: Vec<&'static str>,
    /// Lists the checks, and sends nothing.
    #[arg(long)]
    list: bool,
    /// Prints the findings as JSON; what is for people goes to standard error.
    #[arg(long)]
    json: bool,
    /// Probes also what is not on this computer: you may do this to it.
    #[arg(long)]
    yes: bool,
    /// Shows the requests, and sends nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many requests the probe sends in a second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// How many requests the probe sends in all.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = value_parser!(u32).range(1..=10_000))]
    max_requests: u32,
    /// How many duplicates the probe sends at the same time.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(2..=100))]
    duplicates: u32,
    /// How many seconds an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// How many seconds a key may be busy after its client has vanished.
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = value_parser!(u64).range(1..=600))]
    patience: u64,
}

impl Options {
    fn asks(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.contains(&id)
    }
}

fn header_line(text: &str) -> Result<Line, String> {
    let line = arguments::line(text)?;
    match line.0 == operation::KEY {
        true => Err("the probe chooses the keys itself".to_owned()),
        false => Ok(line),
    }
}

fn pointer(text: &str) -> Result<String, String> {
    match text.is_empty() || text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err(format!("a JSON pointer begins with a slash: /{text}")),
    }
}

fn known(id: &str) -> Result<&'static str, String> {
    let ids = || CHECKS.iter().map(|check| check.id);
    ids().find(|known| *known == id).ok_or_else(|| {
        let near = ids().max_by(|one, other| {
            strsim::jaro_winkler(one, id).total_cmp(&strsim::jaro_winkler(other, id))
        });
        format!("did you mean `{}`? `onceward probe --list` has all", near.unwrap_or_default())
    })
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match options.list {
        true => terminal::ended(list(options).map_err(BoxError::from)),
        false => terminal::run(probe(options)),
    }
}

fn list(options: &Options) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut line = |check: &catalogue::Check| match check.severity(options.profile) {
        Some(severity) => writeln!(out, "{:<17} {severity:<9} {}", check.id, check.title),
        None => Ok(()),
    };
    read_enough(CHECKS.iter().try_for_each(&mut line))?;
    Ok(ExitCode::SUCCESS)
}

async fn probe(options: &Options) -> Result<ExitCode, BoxError> {
    let operation = rehearsal::operation(options)?;
    for url in [Some(&operation.url), options.count_url.as_ref()].into_iter().flatten() {
        if !options.dry_run && !options.yes && !rehearsal::is_here(url).await {
            return Err(format!(
                "{url} is not on this computer, and about 80 requests would run there for real; say \
                 --yes if you may do this, or see them with --dry-run"
            )
            .into());
        }
    }
    let secrets = Secrets::of(&operation.credentials, &operation.headers);
    // An API may repeat in an error what it was sent.
    let hidden = |trouble: BoxError| secrets.hide(&chain(&*trouble)).into();
    examine(options, &operation, &secrets).await.map_err(hidden)
}

async fn examine(
    options: &Options,
    operation: &Operation,
    secrets: &Secrets,
) -> Result<ExitCode, BoxError> {
    let wire = Wire::new(Limits {
        time_out: Duration::from_secs(options.timeout),
        rate: options.rate,
        most: options.max_requests,
        is_dry: options.dry_run,
    });
    let stage = rehearsal::rehearse(options, operation, &wire).await?;
    let (rehearsal, begun) = (wire.take_seen(), Instant::now());
    let mut findings = Vec::new();
    for scene in &SCENES {
        findings.extend(play::play(&stage, scene, options).await);
    }
    if options.dry_run {
        read_enough(show_plan(&rehearsal, &findings))?;
        return Ok(ExitCode::SUCCESS);
    }
    play::leave_out_what_says_nothing(&mut findings);
    findings.retain(|finding| options.asks(finding.check.id));
    for finding in &mut findings {
        finding.verdict = finding.verdict.with_text(|text| secrets.hide(text));
    }
    let report = Report {
        url: operation.url.to_string(),
        profile: options.profile,
        findings,
        sent: wire.sent(),
        took: begun.elapsed(),
        counted: stage.counter.shown(),
    };
    if options.json {
        read_enough(report.show(&mut anstream::stderr()))?;
        read_enough(writeln!(io::stdout(), "{}", report.json()?))?;
    } else {
        read_enough(report.show(&mut anstream::stdout()))?;
    }
    Ok(ExitCode::from(match report.worst() {
        None | Some(Severity::Info) => u8::from(report.score().is_none()),
        Some(Severity::Minor) => 3,
        Some(Severity::Major) => 4,
        Some(Severity::Critical) => 5,
    }))
}

/// What would be sent, if every answer were a success.
fn show_plan(rehearsal: &[String], findings: &[Finding]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "# First: whether it works at all")?;
    for request in rehearsal {
        writeln!(out, "{request}")?;
    }
    writeln!(out)?;
    for (index, finding) in findings.iter().enumerate() {
        let is_next = findings.get(index + 1).is_some_and(|next| next.requests == finding.requests);
        writeln!(out, "# {}: {}", finding.check.id, finding.check.title)?;
        // Checks of one scene have the same requests.
        if !is_next {
            for request in &finding.requests {
                writeln!(out, "{request}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
