//! `onceward probe`: sends one operation in the ways that clients do, and says whether it landed once.

mod answer;
mod catalogue;
mod counter;
pub(crate) mod curl;
mod operation;
mod report;
mod scenes;
mod wire;

use std::{
    error::Error,
    fs,
    io::{self, Read as _, Write as _},
    net::IpAddr,
    process::ExitCode,
    time::Duration,
};

use anstream::{AutoStream, ColorChoice};
use clap::{Args, value_parser};
use http::{HeaderValue, Method, StatusCode, Uri, header};
use tokio::time::Instant;

use answer::Answer;
use catalogue::{CHECKS, Profile, Severity};
use counter::{CountAt, Counter};
use curl::Secrets;
use operation::{Line, Operation};
use report::{Finding, Report};
use scenes::{SCENES, Scene, Stage, Verdict};
use wire::{Limits, Trouble, Unasked, Wire};

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
  onceward probe --list                       what is checked
  onceward probe URL --data @order.json --only once,concurrent --json
  onceward probe https://test.example/pay --data @pay.json --dry-run")]
pub(crate) struct Options {
    /// Where the operation is sent.
    #[arg(required_unless_present = "list", value_parser = url)]
    url: Option<Uri>,
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "POST")]
    method: Method,
    /// What is sent, or `@FILE` with it (`@-`: standard input). `{{uuid}}` and `{{number}}` in it are
    /// new in every piece of work, and the same in its retries.
    #[arg(short = 'd', long, value_name = "DATA")]
    data: Option<String>,
    /// Another request, for the same key [default: a number or text of the data changed].
    #[arg(long, value_name = "DATA")]
    other_data: Option<String>,
    /// A request that the API refuses [default: an object that it does not expect].
    #[arg(long, value_name = "DATA")]
    bad_data: Option<String>,
    /// A line of all requests. JSON data is sent as `application/json` by itself.
    #[arg(short = 'H', long, value_name = "NAME: VALUE", value_parser = header_line)]
    header: Vec<Line>,
    /// A line that says who is calling; give two, of two callers, to see whether they are apart.
    // It is read later, so that no message about the command line repeats it.
    #[arg(long, value_name = "NAME: VALUE")]
    credential: Vec<String>,
    /// Where effects are counted, asked before and after; without it different answers are counted.
    #[arg(long, value_name = "URL", requires = "count_json", value_parser = url)]
    count_url: Option<Uri>,
    /// JSON pointer to the number there, or to a list whose length counts.
    #[arg(long, value_name = "POINTER", requires = "count_url", value_parser = pointer)]
    count_json: Option<String>,
    /// What the API is measured by.
    #[arg(long, value_enum, default_value = "onceward")]
    profile: Profile,
    /// Only these checks.
    #[arg(long, value_name = "CHECKS", value_delimiter = ',', value_parser = known)]
    only: Vec<&'static str>,
    /// Says what is checked, and sends nothing.
    #[arg(long)]
    list: bool,
    /// Prints the findings as JSON; what is for people goes to standard error.
    #[arg(long)]
    json: bool,
    /// Probes also what is not on this computer: you may do this to it.
    #[arg(long)]
    yes: bool,
    /// Says what would be sent, and sends nothing.
    #[arg(long)]
    dry_run: bool,
    /// How many requests are sent in a second.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// How many requests are sent in all.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = value_parser!(u32).range(1..=10_000))]
    max_requests: u32,
    /// How many duplicates are sent at the same time.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(2..=100))]
    duplicates: u32,
    /// How many seconds an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = value_parser!(u64).range(1..=600))]
    timeout: u64,
    /// How many seconds a key may be busy after its client has vanished.
    #[arg(long, value_name = "SECONDS", default_value_t = 40, value_parser = value_parser!(u64).range(1..=600))]
    patience: u64,
}

pub(crate) fn url(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("it is not a URL: {error}"))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("name and password do not belong there; give a --credential".to_owned());
    }
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(uri),
        _ => Err("write it as http://host/path or https://host/path".to_owned()),
    }
}

fn header_line(text: &str) -> Result<Line, String> {
    let line = curl::line(text)?;
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
    let done = match options.list {
        true => list(options).map_err(Into::into),
        false => tokio::runtime::Runtime::new()
            .map_err(Trouble::from)
            .and_then(|runtime| runtime.block_on(probe(options))),
    };
    done.unwrap_or_else(|error| {
        // Standard error may be closed as well; then there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {}", chain(&*error));
        ExitCode::FAILURE
    })
}

fn list(options: &Options) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let mut line = |check: &catalogue::Check| match check.severity(options.profile) {
        Some(severity) => writeln!(out, "{:<17} {severity:<9} {}", check.id, check.title),
        None => Ok(()),
    };
    heard(CHECKS.iter().try_for_each(&mut line))?;
    Ok(ExitCode::SUCCESS)
}

/// Who does not read on has heard enough.
fn heard(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

async fn probe(options: &Options) -> Result<ExitCode, Trouble> {
    let operation = operation(options)?;
    for url in [Some(&operation.url), options.count_url.as_ref()].into_iter().flatten() {
        if !options.dry_run && !options.yes && !is_here(url).await {
            return Err(format!(
                "{url} is not on this computer, and about 80 requests would run there for real; say \
                 --yes if you may do this, or see them with --dry-run"
            )
            .into());
        }
    }
    let secrets = Secrets::of(&operation.credentials, &operation.headers);
    // An API may repeat in an error what it was sent.
    let hidden = |trouble: Trouble| secrets.hide(&chain(&*trouble)).into();
    examine(options, &operation, &secrets).await.map_err(hidden)
}

async fn examine(
    options: &Options,
    operation: &Operation,
    secrets: &Secrets,
) -> Result<ExitCode, Trouble> {
    let wire = Wire::new(Limits {
        time_out: Duration::from_secs(options.timeout),
        rate: options.rate,
        most: options.max_requests,
        is_dry: options.dry_run,
    });
    let Rehearsed { counter, usual, is_accepting } = rehearse(options, operation, &wire).await?;
    let rehearsal = wire.take_seen();
    let begun = Instant::now();
    let stage = Stage {
        operation,
        wire: &wire,
        counter: &counter,
        duplicates: options.duplicates,
        patience: Duration::from_secs(options.patience),
        usual,
        is_accepting,
    };
    let mut findings = Vec::new();
    for scene in SCENES.iter().filter(|scene| is_wanted(scene, options)) {
        progress(options, scene);
        findings.extend(play(&stage, scene, options).await);
    }
    if options.dry_run {
        heard(show_plan(&rehearsal, &findings))?;
        return Ok(ExitCode::SUCCESS);
    }
    leave_out_what_says_nothing(&mut findings);
    findings.retain(|finding| is_asked(finding.check.id, options));
    for finding in &mut findings {
        finding.verdict = finding.verdict.with_text(|text| secrets.hide(text));
    }
    let report = Report {
        url: operation.url.to_string(),
        profile: options.profile,
        findings,
        sent: wire.sent(),
        took: begun.elapsed(),
        counted: counter.shown(),
    };
    show(&report, options)?;
    Ok(ExitCode::from(match report.worst() {
        None | Some(Severity::Info) => u8::from(report.score().is_none()),
        Some(Severity::Minor) => 3,
        Some(Severity::Major) => 4,
        Some(Severity::Critical) => 5,
    }))
}

/// What two first requests tell about the operation.
struct Rehearsed {
    counter: Counter,
    /// How long it takes.
    usual: Duration,
    /// Whether it is answered with 202.
    is_accepting: bool,
}

/// Two pieces of work: does it work at all, do answers differ, and how long does it take?
async fn rehearse(
    options: &Options,
    operation: &Operation,
    wire: &Wire,
) -> Result<Rehearsed, Trouble> {
    let count_at = options.count_url.clone().zip(options.count_json.clone());
    let api = count_at.map(|(url, pointer)| Counter::Api(CountAt { url, pointer }));
    let before = match &api {
        Some(api) => Some((api, api.mark(wire, operation).await?)),
        None => None,
    };
    let unreachable = |trouble: Trouble| format!("{}: {}", operation.url, chain(&*trouble));
    let one = wire.send(&operation.fresh()).await.map_err(unreachable)?;
    let two = wire.send(&operation.fresh()).await.map_err(unreachable)?;
    for answer in [&one, &two] {
        if !answer.is_success() {
            return Err(format!(
                "the operation itself does not succeed: {}; nothing can be said about retries. Does \
                 it need --data, --header or --credential, or {{{{uuid}}}} where each must differ?",
                answer.shown()
            )
            .into());
        }
    }
    if let Some((api, mark)) = before {
        let landed = api.landed(wire, operation, mark, &[]).await?.times();
        if landed != Some(2) && !wire.is_dry() {
            return Err(format!(
                "two requests with two keys were counted as {}; does --count-url count this \
                 operation, and nothing else?",
                landed.unwrap_or_default()
            )
            .into());
        }
    }
    let told = if one.is_like(&two) { Counter::Blind } else { Counter::Answers };
    let usual = |answer: &Answer| answer.took;
    Ok(Rehearsed {
        counter: api.unwrap_or(told),
        usual: usual(&one).min(usual(&two)),
        is_accepting: one.status == StatusCode::ACCEPTED,
    })
}

/// How a failure begins that has no answer to tell about.
const NO_ANSWER: &str = "no answer: ";

/// What fails with another check, for the same reason.
const IMPLIED: [(&str, &[&str], &str); 2] = [
    (
        "once",
        &[
            "mismatch-query",
            "mismatch-tail",
            "json-order",
            "chunked",
            "key-quoted",
            "key-lines",
            "problem-json",
        ],
        "keys change nothing here, so it says nothing",
    ),
    ("mismatch", &["mismatch-query", "mismatch-tail"], "no other request is refused"),
];

/// Where keys have no effect, some checks pass or fail by themselves.
fn leave_out_what_says_nothing(findings: &mut [Finding]) {
    for (cause, implied, reason) in IMPLIED {
        let is_cause = |finding: &Finding| {
            let is_seen = |text: &str| !text.starts_with(NO_ANSWER);
            finding.check.id == cause
                && matches!(&finding.verdict, Verdict::Fail(text) if is_seen(text))
        };
        if !findings.iter().any(is_cause) {
            continue;
        }
        for finding in &mut *findings {
            let is_empty = match &finding.verdict {
                Verdict::Pass(_) => cause == "once" && !finding.check.is_refusal,
                Verdict::Fail(_) => implied.contains(&finding.check.id),
                Verdict::Skip(_) => false,
            };
            if is_empty {
                finding.verdict = Verdict::Skip(reason.to_owned());
            }
        }
    }
}

fn is_asked(id: &str, options: &Options) -> bool {
    options.only.is_empty() || options.only.contains(&id)
}

/// The checks of a scene that the profile and the user ask for, and the one that all others need: where
/// keys change nothing, they say nothing.
fn wanted(scene: &Scene, options: &Options) -> Vec<(&'static str, Severity)> {
    let severity = |id: &'static str| {
        let severity = catalogue::check(id)?.severity(options.profile)?;
        Some((id, severity))
    };
    let is_wanted = |id: &&&'static str| **id == "once" || is_asked(id, options);
    scene.ids.iter().filter(is_wanted).filter_map(|id| severity(id)).collect()
}

fn is_wanted(scene: &Scene, options: &Options) -> bool {
    !wanted(scene, options).is_empty()
}

async fn play(stage: &Stage<'_>, scene: &Scene, options: &Options) -> Vec<Finding> {
    let _ = (stage.wire.take_seen(), stage.wire.take_unsteady());
    let wanted = wanted(scene, options);
    let first = wanted.iter().position(|(id, _)| is_asked(id, options));
    let verdicts = (scene.play)(stage).await.unwrap_or_else(|trouble| {
        let text = chain(&*trouble);
        let verdict = |(index, (id, _)): (usize, &(&'static str, Severity))| {
            let verdict = match index {
                _ if trouble.is::<Unasked>() => Verdict::Skip(text.clone()),
                _ if Some(index) == first => Verdict::Fail(format!("{NO_ANSWER}{text}")),
                // One trouble is one finding.
                _ => Verdict::Skip(format!("{NO_ANSWER}{text}")),
            };
            (*id, verdict)
        };
        wanted.iter().enumerate().map(verdict).collect()
    });
    let requests = stage.wire.take_seen();
    let unsteady = stage.wire.take_unsteady();
    // What was sent again for another reason may have landed again for it.
    let steady = |verdict| match (verdict, &unsteady) {
        (Verdict::Fail(_), Some(reason)) => Verdict::Skip(reason.clone()),
        (verdict, _) => verdict,
    };
    let finding = |(id, verdict): (&'static str, Verdict)| {
        let (_, severity) = *wanted.iter().find(|(wanted, _)| *wanted == id)?;
        Some(Finding {
            check: catalogue::check(id)?,
            severity,
            verdict: steady(verdict),
            requests: requests.clone(),
        })
    };
    verdicts.into_iter().filter_map(finding).collect()
}

fn operation(options: &Options) -> Result<Operation, Trouble> {
    let read = |data: &Option<String>| data.as_deref().map(data_of).transpose();
    let data = read(&options.data)?;
    let mut headers = options.header.clone();
    let says_type = headers.iter().any(|(name, _)| name == header::CONTENT_TYPE);
    if let (Some(data), false) = (&data, says_type) {
        let kind = match operation::looks_like_json(data) {
            true => "application/json",
            false => "application/x-www-form-urlencoded",
        };
        headers.push((header::CONTENT_TYPE, HeaderValue::from_static(kind)));
    }
    Ok(Operation {
        url: options.url.clone().ok_or("there is no URL")?,
        method: options.method.clone(),
        headers,
        credentials: credentials(options)?,
        data,
        other_data: read(&options.other_data)?,
        bad_data: read(&options.bad_data)?,
        profile: options.profile,
    })
}

fn credentials(options: &Options) -> Result<Vec<Line>, Trouble> {
    let texts = options.credential.iter();
    let credentials: Vec<Line> = texts.map(|text| credential(text)).collect::<Result<_, _>>()?;
    match &credentials[..] {
        lines if lines.iter().any(|(name, _)| *name == operation::KEY) => {
            Err("a key is no --credential; the probe chooses the keys itself".into())
        }
        [one, other] if one == other => {
            Err("both --credential are the same; give those of two callers".into())
        }
        [_, _, _, ..] => Err("give at most two --credential, of two callers".into()),
        _ => Ok(credentials),
    }
}

fn credential(text: &str) -> Result<Line, Trouble> {
    let wrong = "a --credential is not `Name: value`; it is not repeated here, as it may be secret";
    curl::line(text).map_err(|_| wrong.into())
}

/// What is said, or what is in the file that is named.
fn data_of(text: &str) -> Result<String, Trouble> {
    match text.strip_prefix('@') {
        None => Ok(text.to_owned()),
        Some("-") => {
            let mut data = String::new();
            io::stdin().read_to_string(&mut data)?;
            Ok(data)
        }
        Some(file) => {
            let read = fs::read_to_string(file);
            Ok(read.map_err(|error| format!("cannot read the data in {file}: {error}"))?)
        }
    }
}

/// Whether every address of the host is one of this computer.
async fn is_here(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    if let Ok(address) = host.parse::<IpAddr>() {
        return address.is_loopback();
    }
    match tokio::net::lookup_host((host, 80)).await {
        Ok(mut addresses) => addresses.all(|address| address.ip().is_loopback()),
        Err(_) => false,
    }
}

fn progress(options: &Options, scene: &Scene) {
    let ids: Vec<&str> = wanted(scene, options).iter().map(|(id, _)| *id).collect();
    let ids: Vec<&str> = ids.into_iter().filter(|id| is_asked(id, options)).collect();
    if !options.dry_run && !ids.is_empty() {
        let _ = writeln!(io::stderr(), "asking: {}", ids.join(", "));
    }
}

fn show(report: &Report, options: &Options) -> Result<(), Trouble> {
    if options.json {
        let colour = AutoStream::choice(&io::stderr()) != ColorChoice::Never;
        heard(report.show(&mut io::stderr(), colour))?;
        heard(writeln!(io::stdout(), "{}", report.json()?))?;
        return Ok(());
    }
    let colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
    Ok(heard(report.show(&mut io::stdout().lock(), colour))?)
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

/// An error with its causes, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
