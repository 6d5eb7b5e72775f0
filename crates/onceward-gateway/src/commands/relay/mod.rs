//! `onceward relay`: delivers what is in the outbox, as a process.

mod options;
mod rebase;

use std::{env, fmt::Display, process::ExitCode, sync::Arc};

use onceward::{
    Engine,
    outbox::{Relay, SinkOptions},
};
use tokio::sync::oneshot;

use super::{
    process::{bind, configuration, operators, runtime},
    terminal::{self, BoxError},
};
use crate::{
    admin::{Access, InEffect, NO_OUTBOX, RelayAdmin, Repair},
    config::{Config, Sink},
    descriptors::Descriptors,
    observe::{self, HasMetrics, Observing, tell, traces},
    proxy::{acceptor, sink_client},
    records::{self, Records, Tables},
};
use options::Command;
pub(crate) use options::Options;

pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.command {
        Some(Command::Rebase(options)) => rebase::run(options),
        None => deliver(options),
    }
}

fn deliver(options: &Options) -> ExitCode {
    let failed = |error: &dyn Display| {
        tell(&format!("error: {error}"));
        ExitCode::FAILURE
    };
    let observing = match observe::start(options.log_format, HasMetrics::Yes) {
        Ok(observing) => observing,
        Err(error) => return failed(&error),
    };
    let file = configuration(options.config.as_deref());
    let config = match options.load(file.as_deref()) {
        Ok(config) => config,
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| tell(&mistake.to_string()));
            return failed(
                &"nothing is delivered with this configuration; `onceward relay --help` has examples",
            );
        }
    };
    let relayed = runtime()
        .map_err(BoxError::from)
        .and_then(|runtime| runtime.block_on(relay(config, &observing)));
    observing.end();
    relayed.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

async fn relay(config: Config, observing: &Observing) -> Result<(), BoxError> {
    observing.trace()?;
    for note in &config.notes {
        tell(&note.to_string());
    }
    let descriptors = Descriptors::raise();
    let config = Arc::new(config);
    let store =
        records::open(&config.store, config.keys()?, Tables::Made, config.guarantee).await?;
    let relay = assembled(&config, &*store)?;
    let tls = config.tls.as_ref().map(acceptor).transpose()?;
    let in_effect: InEffect = Arc::new({
        let config = config.clone();
        move || Some(config.clone())
    });
    let repair = Repair::new(Engine::new(store.clone()), store, in_effect);
    let admin = RelayAdmin::new(repair, Access::new(&config.admin_tokens)?);
    let (close, closed) = oneshot::channel();
    let operators = match config.admin {
        Some(address) => {
            let (listener, places) = (bind("admin", address).await?, descriptors.operators());
            Some(operators(listener, places, admin.router(), tls, closed)?)
        }
        None => None,
    };
    let stopped = terminal::stopped()?;
    let stopped = async {
        stopped.await;
        admin.stop();
        tell("stopping: attempts under way may end");
    };
    let names: Vec<&str> = config.sinks.iter().map(|sink| sink.name.as_str()).collect();
    tell(&format!("delivering messages of {} to {}", config.store, names.join(", ")));
    let relayed = relay.run(stopped).await;
    drop(close);
    if let Some(operators) = operators {
        operators.await?;
    }
    observing.export().await;
    Ok(relayed?)
}

/// The relay of the library, with what the configuration says.
fn assembled(config: &Config, store: &dyn Records) -> Result<Relay, BoxError> {
    let terms = &config.relay;
    let mut builder = Relay::builder(store.outbox().ok_or(NO_OUTBOX)?)
        .lease(terms.lease)
        .retain(terms.retain)
        .drain(terms.drain)
        .other_topics(terms.other_topics);
    if traces::are_on() {
        builder = builder.spans(traces::begin_delivery);
    }
    for sink in &config.sinks {
        let options = SinkOptions::default()
            .rules(sink.rules.clone())
            .in_flight(sink.in_flight)
            .from(sink.from)
            .dead_letters(sink.dead_letters);
        let token = token(sink)?;
        let http = sink.over(sink_client(&sink.url)?, token.as_deref())?;
        builder = builder.sink_with(sink.name.as_str(), http, options);
    }
    Ok(builder.build()?)
}

fn token(sink: &Sink) -> Result<Option<String>, BoxError> {
    let Some(name) = &sink.token_env else { return Ok(None) };
    match env::var(name) {
        Ok(token) if !token.is_empty() => Ok(Some(token)),
        _ => Err(format!(
            "the environment variable {name}, which holds the token of the sink \"{}\", is not set; nothing is \
             delivered without it: set it, or leave `token_env` out",
            sink.name
        )
        .into()),
    }
}
