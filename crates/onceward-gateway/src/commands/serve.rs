//! `onceward serve`: the gateway as a process.

use std::{
    fmt::Display,
    future::Future,
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    thread,
    time::Duration,
};

use clap::Args;
use onceward::{
    State, Sweeper,
    protocol::{Found, Record, Unreadable},
    store::{Filter, Order},
    telemetry::event,
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use super::{
    process::{bind, configuration, operators, runtime, url},
    terminal::{self, BoxError},
};
use crate::{
    admin::{Access, Admin, InEffect, Repair},
    config::{Config, Mistake, Overrides, Sources},
    descriptors::Descriptors,
    kept::{self, Refused, Settled},
    observe::{
        self, HasMetrics, LogFormat, Observing,
        metrics::{self, Reloaded},
        tell,
    },
    proxy::{self, Counted, Entrance, Gateway},
    records::{self, Records, Tables},
};

/// How long what is under way may take when the gateway stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// How many of the newest records show whether the key is right.
const NEWEST: u32 = 100;

/// How often the store forgets records whose time is over.
const SWEEP: Duration = Duration::from_secs(60);

const REFRESH: Duration = Duration::from_secs(60);

/// Makes an API in any language safe to retry: a gateway in front of it.
///
/// Requests with an `Idempotency-Key` run once; retries get the stored answer. Everything else passes
/// through. Without `--config` the gateway reads ./onceward.toml, if it is there. Without a file, `--upstream`,
/// `--scope` and `--authorize` are enough: the gateway covers all POST and PATCH requests. SIGHUP reads the file
/// again; SIGTERM and Ctrl-C let what is under way
/// end.
#[derive(Args)]
#[command(after_help = "\
Examples:
  onceward serve --upstream http://127.0.0.1:3000 --scope secret:x-api-key --authorize none
  onceward init && onceward serve")]
pub(crate) struct Options {
    /// The configuration, ./onceward.toml if not said; `onceward init` writes one with everything that can
    /// be said.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    overrides: Overrides,
    /// The form of the log on standard error; `ONCEWARD_LOG_FORMAT` sets it too.
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Counts nothing, to measure what counting costs.
    #[arg(long, hide = true)]
    no_metrics: bool,
    /// Stops when standard input is closed, as with SIGTERM: for a program that starts gateways and
    /// wants none to outlive it, even if it is killed.
    #[arg(long, hide = true)]
    until_input_closes: bool,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let has_metrics = if options.no_metrics { HasMetrics::No } else { HasMetrics::Yes };
    let failed = |error: &dyn Display| {
        tell(&format!("error: {error}"));
        ExitCode::FAILURE
    };
    let observing = match observe::start(options.log_format, has_metrics) {
        Ok(observing) => observing,
        Err(error) => return failed(&error),
    };
    let file = configuration(options.config.as_deref());
    let config = match load(file.as_deref(), options) {
        Ok(config) => config,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| tell(&mistake.to_string()));
            return failed(
                &"nothing is served with this configuration; `onceward serve --help` has examples",
            );
        }
    };
    let served = runtime()
        .map_err(BoxError::from)
        .and_then(|runtime| runtime.block_on(serve(options, file, config, &observing)));
    observing.end();
    served.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

fn load(file: Option<&Path>, options: &Options) -> Result<Config, Vec<Mistake>> {
    Config::load(&Sources::gather(file, options.overrides.clone())?)
}

async fn serve(
    options: &Options,
    file: Option<PathBuf>,
    config: Config,
    observing: &Observing,
) -> Result<(), BoxError> {
    observing.trace()?;
    for note in &config.notes {
        tell(&note.to_string());
    }
    let descriptors = descriptors(&config);
    let store =
        records::open(&config.store, config.keys()?, Tables::Made, config.guarantee).await?;
    let _sweeper = Sweeper::start(Arc::new(store.clone()), SWEEP);
    let tls = config.tls.as_ref().map(proxy::acceptor).transpose()?;
    must_open(&*store).await?;
    let settled = kept::settle(config, &*store).await.map_err(|refused| logged(&refused))?;
    let Settled { config, has_news } = settled;
    let access = Access::new(&config.admin_tokens)?;
    let listener = bind("listen", config.listen).await?;
    let for_operators = match config.admin {
        Some(address) => Some(bind("admin", address).await?),
        None => None,
    };
    let ready = format!(
        "listening on {}, in front of {}, records in {}",
        url(&listener, tls.as_ref())?,
        config.upstream,
        config.store
    );
    let gateway = Gateway::new(config, store.clone(), descriptors)?;
    let admin = admin(&gateway, store.clone(), access);
    let (close, closed) = oneshot::channel();
    let places = descriptors.operators();
    let operators = for_operators
        .map(|listener| operators(listener, places, admin.router(), tls.clone(), closed));
    // Before it says that it listens: a SIGHUP that the process does not expect ends it.
    let hangups = signal(SignalKind::hangup())?;
    let reloads =
        tokio::spawn(reload_on_hangup(hangups, file, options.overrides.clone(), gateway.clone()));
    let refreshes = tokio::spawn(refresh_keys(gateway.clone()));
    for reason in gateway.unusable_keys() {
        tell(&format!("warning: a key for tokens is not used: {reason}"));
    }
    let stopped = stopped(options.until_input_closes)?;
    let stopped = async {
        stopped.await;
        admin.stop();
    };
    tell(&ready);
    tokio::spawn(kept::tell_of_the_uncovered(gateway.config(), store, has_news));
    let answering = gateway.clone();
    let answer = move |request, peer| answering.clone().answer(request, peer);
    let entrance = Entrance {
        counted: Counted::Yes,
        connections: descriptors.clients(),
        allowed: |address| gateway.allowed(address),
    };
    proxy::serve(listener, tls, answer, (stopped, DRAIN_TIMEOUT), entrance).await;
    reloads.abort();
    refreshes.abort();
    let drained = gateway.engine().drain(DRAIN_TIMEOUT).await;
    if drained.abandoned > 0 {
        tell(&format!("{} operations were not settled in time", drained.abandoned));
    }
    drop(close);
    if let Some(operators) = operators {
        operators?.await?;
    }
    observing.export().await;
    Ok(())
}

/// As many as the system allows, and a warning if that is less than the configuration wants.
fn descriptors(config: &Config) -> Descriptors {
    let descriptors = Descriptors::raise();
    let (answers, clients) = (descriptors.answers(config.max_answers), descriptors.clients());
    tracing::debug!(limit = descriptors.limit(), clients, answers, "descriptors were shared out");
    if answers < config.max_answers {
        tell(&format!(
            "warning: this process may open only {} files: {clients} connections of clients and {answers} \
             answers at a time, instead of max_answers = {}; raise its hard limit (LimitNOFILE of \
             systemd, ulimit -Hn)",
            descriptors.limit(),
            config.max_answers
        ));
    }
    descriptors
}

/// Refuses a store whose newest sealed answer cannot be opened: the key is wrong, and every retry
/// would get `outcome-unknown`.
async fn must_open(store: &dyn Records) -> Result<(), BoxError> {
    let newest = Filter { order: Order::NewestFirst, limit: NEWEST, ..Filter::default() };
    let page = store.list(&newest).await?;
    // A fingerprint of a record that can be read tells whether it was made with a key.
    let sealed = page.listed.iter().find_map(|listed| match &listed.found {
        Found::Unreadable { why: Unreadable::Sealed, .. } => Some(false),
        Found::Record(stored) if is_sealed(&stored.record) => Some(true),
        _ => None,
    });
    match sealed {
        Some(false) => Err("the answers in this store were sealed with a key that [encryption] does not \
                            have; with another key, or without, the gateway would answer every retry \
                            that its outcome is unknown: give the gateway the right key; nothing was changed"
            .into()),
        _ => Ok(()),
    }
}

fn is_sealed(record: &Record) -> bool {
    let has_answer = matches!(record.state, State::Succeeded(_) | State::FailedFinal(_));
    has_answer && record.fingerprint.version() >= 0x80
}

fn admin(gateway: &Gateway, store: Arc<dyn Records>, access: Access) -> Admin {
    let of = gateway.clone();
    let in_effect: InEffect = Arc::new(move || Some(of.config()));
    let repair = Repair::new(gateway.engine().clone(), store, in_effect);
    Admin::new(gateway.clone(), repair, access)
}

/// Reads the configuration again with every SIGHUP. A wrong one changes nothing.
async fn reload_on_hangup(
    mut hangups: Signal,
    file: Option<PathBuf>,
    overrides: Overrides,
    gateway: Gateway,
) {
    while hangups.recv().await.is_some() {
        let sources = Sources::gather(file.as_deref(), overrides.clone());
        let reloaded = match sources.and_then(|sources| Config::load(&sources)) {
            Ok(config) => reload(&gateway, config).await.map_err(|error| format!(": {error}")),
            Err(mistakes) => {
                mistakes.iter().for_each(|mistake| tell(&mistake.to_string()));
                Err(String::new())
            }
        };
        match reloaded {
            Ok(has_news) => {
                metrics::RELOADS.add(Reloaded::Ok);
                tell("the routes were read again");
                let (config, store) = (gateway.config(), gateway.store().clone());
                tokio::spawn(kept::tell_of_the_uncovered(config, store, has_news));
            }
            Err(why) => {
                metrics::RELOADS.add(Reloaded::Refused);
                tell(&format!("the old routes stay{why}"));
            }
        }
    }
}

/// A configuration by which live records would not be found any more is as wrong as one with mistakes. Returns
/// whether something about the names of routes is new.
async fn reload(gateway: &Gateway, config: Config) -> Result<bool, BoxError> {
    for name in gateway.needs_restart(&config) {
        tell(&format!("warning: another `{name}` counts only after a restart"));
    }
    let settled = kept::settle(config, &**gateway.store()).await;
    let Settled { config, has_news } = settled.map_err(|refused| logged(&refused))?;
    gateway.reload(config)?;
    Ok(has_news)
}

fn logged(refused: &Refused) -> BoxError {
    if let Refused::Changes(changes) = refused {
        for change in changes {
            tracing::error!(event = event::IDENTITY_CHANGED, %change, "keys of before would run again: refused");
        }
    }
    refused.to_string().into()
}

/// Keys rotate: the file is read again from time to time.
async fn refresh_keys(gateway: Gateway) {
    loop {
        tokio::time::sleep(REFRESH).await;
        if let Err(error) = gateway.refresh_keys() {
            tracing::warn!(event = event::KEYS_NOT_READ, %error, "the keys for tokens could not be read again");
        }
    }
}

fn stopped(with_input: bool) -> io::Result<impl Future<Output = ()>> {
    let stopped = terminal::stopped()?;
    Ok(async move {
        tokio::select! {
            () = stopped => {}
            () = input_closed(), if with_input => {}
        }
    })
}

async fn input_closed() {
    let (sender, closed) = oneshot::channel();
    // A thread of its own: the runtime would wait for a read that never ends.
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = sender.send(());
    });
    let _ = closed.await;
}
