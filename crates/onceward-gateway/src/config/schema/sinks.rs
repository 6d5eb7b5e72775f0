//! `[relay]` and `[[sink]]`: what `onceward relay` delivers, and where.

use std::{collections::BTreeMap, fmt, time::Duration};

use http::{HeaderName, HeaderValue, Uri, header::AUTHORIZATION};
use onceward::{
    message::SinkName,
    outbox::{DeadLetters, HttpSink, HttpSinkError, OtherTopics, Relay, StartFrom},
    retry::Rules,
};
use serde_json::{Map, Value as Json};

use super::{
    addresses,
    backoff::{BackoffRule, Jitter},
    delivery,
    kinds::{as_text, choice, count, duration, list, parsed, text, word},
    limits,
    sections::check_variable,
    table::settings,
};
use crate::config::{
    SourceLocation,
    diagnostics::mistake::Mistakes,
    parse::{
        reader::{Placed, Reader, Section, Setting, Value},
        units::show_duration,
    },
    show_url,
    shown::{DEAD_LETTERS, OTHER_TOPICS, START_FROM},
};

settings! {
    /// `[relay]`
    RelayOptions;
    "[relay]: how `onceward relay` delivers what is in the outbox of `store`" {
        /// How long messages are kept after they were enqueued, if every sink has them. Consumers must remember ids for as
        /// long. Messages that wait, are held or are dead are kept however old they are.
        message_retain: Duration = duration(&limits::MESSAGE_RETAIN), default Relay::RETAIN, at_restart;
        /// After how long other relays take over from one that does not answer.
        lease: Duration = duration(&limits::RELAY_LEASE), default Relay::LEASE, at_restart;
        /// For how long attempts that are under way are waited for when the relay stops.
        drain: Duration = duration(&limits::DRAIN), default Relay::DRAIN, at_restart;
        /// What becomes of messages whose topic no [[sink]] takes. die: they become dead letters of the first one. pass:
        /// other relays on this store have sinks for them.
        other_topics: OtherTopics = choice(&OTHER_TOPICS), default OtherTopics::Die, at_restart;
    }
}

settings! {
    /// One `[[sink]]`.
    SinkOptions;
    "[[sink]]: where messages go; one for each receiver" {
        /// The store keeps the sink's place under this name: with another name it is a new sink.
        name: String = text("\"billing\""), required "\"billing\"", at_restart;
        /// The relay sends each message there as a POST, with its id as Idempotency-Key.
        url: String = text("\"https://billing.example/events\""), required "\"https://billing.example/events\"", at_restart;
        /// Which topics it takes, each by its name or all with a prefix, as "order.*"; all, if not said.
        topics: Vec<Placed<String>> = list("[\"order.*\"]", topic, as_text), example "[\"order.*\"]", at_restart;
        /// Lines that each request has, as ["x-tenant: shop"].
        headers: Vec<Placed<HeaderLine>> = list("[\"x-tenant: shop\"]", header_line, HeaderLine::name), example "[\"x-tenant: shop\"]", at_restart;
        /// The name of the environment variable that holds a token: each request has it as `Authorization: Bearer`.
        token_env: String = text("\"BILLING_TOKEN\""), example "\"BILLING_TOKEN\"", at_restart;
        /// Where the sink begins if the store does not know it yet. now: with what commits from then on. oldest: with the
        /// oldest message that is still there.
        from: StartFrom = choice(&START_FROM), default StartFrom::Now, at_restart;
        /// block: later messages of the same aggregate wait until an operator sends a dead one again or discards it. skip:
        /// they go on, so that their order has a gap.
        dead_letters: DeadLetters = choice(&DEAD_LETTERS), default DeadLetters::Block, at_restart;
        /// How many messages may be on their way to it at once.
        in_flight: usize = count(&limits::SINK_IN_FLIGHT), default limits::DEFAULT_SINK_IN_FLIGHT, at_restart;
        /// How often a message is sent that fails, until it is a dead letter. A sink that is down uses none up.
        attempts: usize = count(&limits::DELIVERY_ATTEMPTS), default limits::DEFAULT_DELIVERY_ATTEMPTS, at_restart;
        /// How long one attempt may take.
        attempt_timeout: Duration = duration(&limits::TIMEOUT), default limits::DEFAULT_DELIVERY_TIMEOUT, at_restart;
        /// How long to wait between attempts, as in `backoff` of a route.
        backoff: BackoffRule = parsed("\"full:1s..1h\"", delivery::backoff, ToString::to_string), default usual_backoff(), at_restart;
        /// The longest wait before another attempt, also if the sink asks for a longer one.
        max_wait: Duration = duration(&limits::MAX_WAIT), default limits::DEFAULT_MAX_WAIT, at_restart;
    }
}

/// `[relay]`, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayTerms {
    pub(crate) retain: Duration,
    /// Where that was said, if it was.
    retain_place: Option<SourceLocation>,
    pub(crate) lease: Duration,
    pub(crate) drain: Duration,
    pub(crate) other_topics: OtherTopics,
}

/// One `[[sink]]`, checked.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    pub(crate) name: SinkName,
    pub(crate) url: Uri,
    /// `None`: all of them.
    pub(crate) topics: Option<Vec<String>>,
    pub(crate) headers: Vec<HeaderLine>,
    pub(crate) token_env: Option<String>,
    pub(crate) from: StartFrom,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) in_flight: u32,
    pub(crate) backoff: BackoffRule,
    pub(crate) rules: Rules,
}

/// A line of a head; its value may be a secret.
#[derive(Clone, Debug)]
pub(crate) struct HeaderLine {
    name: HeaderName,
    value: HeaderValue,
}

impl HeaderLine {
    fn name(&self) -> Json {
        self.name.as_str().into()
    }
}

impl Sink {
    /// The sink of the library, over a client of HTTP.
    pub(crate) fn over<S>(
        &self,
        client: S,
        token: Option<&str>,
    ) -> Result<HttpSink<S>, HttpSinkError> {
        let mut sink = HttpSink::over(client, &self.url.to_string())?;
        if let Some(topics) = &self.topics {
            sink = sink.topics(topics.iter().map(String::as_str));
        }
        for HeaderLine { name, value } in &self.headers {
            sink = sink.header(name.as_str(), value.to_str().unwrap_or_default())?;
        }
        match token {
            Some(token) => sink.header(AUTHORIZATION.as_str(), &format!("Bearer {token}")),
            None => Ok(sink),
        }
    }

    /// In the words of the file, without values of headers.
    pub(crate) fn document(&self) -> Json {
        let headers: Vec<Json> = self.headers.iter().map(HeaderLine::name).collect();
        Map::from_iter([
            ("name".to_owned(), Json::from(self.name.as_str())),
            ("url".to_owned(), show_url(&self.url).into()),
            ("topics".to_owned(), self.topics.clone().into()),
            ("headers".to_owned(), headers.into()),
            ("token".to_owned(), self.token_env.is_some().into()),
            ("from".to_owned(), word(&START_FROM, &self.from).into()),
            ("dead_letters".to_owned(), word(&DEAD_LETTERS, &self.dead_letters).into()),
            ("in_flight".to_owned(), self.in_flight.into()),
            ("attempts".to_owned(), self.rules.attempts().into()),
            ("attempt_timeout".to_owned(), show_duration(self.rules.attempt_timeout()).into()),
            ("backoff".to_owned(), self.backoff.to_string().into()),
            ("max_wait".to_owned(), show_duration(self.rules.deadline()).into()),
        ])
        .into()
    }

    /// How long it may take until a message is delivered or dead, if the sink answers at all.
    fn longest(&self) -> Duration {
        let one = self.rules.attempt_timeout().saturating_add(self.rules.deadline());
        one.saturating_mul(self.rules.attempts())
    }
}

impl fmt::Display for Sink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let topics =
            self.topics.as_ref().map_or_else(|| "all".to_owned(), |topics| topics.join(","));
        write!(
            formatter,
            "{} url={} topics={topics} attempts={} dead_letters={}",
            self.name,
            show_url(&self.url),
            self.rules.attempts(),
            word(&DEAD_LETTERS, &self.dead_letters)
        )
    }
}

impl RelayTerms {
    pub(crate) fn document(&self) -> Json {
        Map::from_iter([
            ("message_retain".to_owned(), Json::from(show_duration(self.retain))),
            ("lease".to_owned(), show_duration(self.lease).into()),
            ("drain".to_owned(), show_duration(self.drain).into()),
            ("other_topics".to_owned(), word(&OTHER_TOPICS, &self.other_topics).into()),
        ])
        .into()
    }
}

/// What `[relay]` says; `None`: something about it is wrong.
pub(crate) fn relay(reader: &mut Reader<'_>) -> Option<RelayTerms> {
    let section = match reader.table("relay") {
        Setting::Missing => Section::empty(reader.place().clone()),
        Setting::Wrong => return None,
        Setting::Given(section) => section.value,
    };
    let mut reader = Reader::new(section, reader.mistakes);
    let RelayOptions { message_retain, lease, drain, other_topics } =
        RelayOptions::read(&mut reader);
    reader.finish();
    Some(RelayTerms {
        retain: message_retain.value_or(Relay::RETAIN)?,
        retain_place: message_retain.given().map(|given| given.place.clone()),
        lease: lease.value_or(Relay::LEASE)?,
        drain: drain.value_or(Relay::DRAIN)?,
        other_topics: other_topics.value_or(OtherTopics::Die)?,
    })
}

/// Every `[[sink]]`; `None`: something about one is wrong.
pub(crate) fn sinks(
    reader: &mut Reader<'_>,
    relay: Option<&RelayTerms>,
    environment: &BTreeMap<String, String>,
) -> Option<Vec<Sink>> {
    let list = reader.list("sink", "[[sink]]", |value, place, mistakes| match value {
        Value::Table(section) => Some(section.clone()),
        _ => {
            let help = "write [[sink]] on a line of its own and its options below it";
            mistakes.error(place, "`sink` has an item that is not a table", help);
            None
        }
    });
    let sections = list.value_or(Vec::new())?;
    if let Some(one) = sections.get(Relay::MAX_SINKS) {
        let message = format!("there are more than {} [[sink]]s", Relay::MAX_SINKS);
        let help = "divide them among several relays, with other_topics = \"pass\" in [relay]";
        reader.mistakes.error(&one.place, message, help);
    }
    let mut sinks: Vec<Sink> = Vec::new();
    let before = reader.mistakes.errors();
    for Placed { value, place } in sections {
        let Some(sink) = one(value, relay, environment, reader.mistakes) else { continue };
        if sinks.iter().any(|other| other.name == sink.name) {
            let message = format!(
                "two sinks are called \"{}\": the store keeps one place for that name, so that each message \
                 would go to one of them by chance",
                sink.name
            );
            reader.mistakes.error(&place, message, "give each [[sink]] a `name` of its own");
        }
        sinks.push(sink);
    }
    (reader.mistakes.errors() == before).then_some(sinks)
}

fn one(
    section: Section,
    relay: Option<&RelayTerms>,
    environment: &BTreeMap<String, String>,
    mistakes: &mut Mistakes,
) -> Option<Sink> {
    let mut reader = Reader::new(section, mistakes);
    let place = reader.place().clone();
    let options = SinkOptions::read(&mut reader);
    reader.finish();
    for (option, is_missing, example) in [
        ("name", options.name.is_missing(), "billing"),
        ("url", options.url.is_missing(), "https://billing.example/events"),
    ] {
        if is_missing {
            let help = format!("write {option} = \"{example}\" below [[sink]]");
            mistakes.error(&place, format!("this sink has no `{option}`"), help);
        }
    }
    let name = options.name.clone().then(|text, place| match SinkName::new(text) {
        Ok(name) => Some(name),
        Err(_) => {
            let message = "`name` of a sink has 1 to 255 bytes and no control characters";
            mistakes.error(place, message, "write name = \"billing\"");
            None
        }
    });
    let url = options.url.clone().then(|text, place| addresses::url("url", text, place, mistakes));
    let token_env = options.token_env.clone().then(|name, place| {
        check_variable("token_env", name, place, environment, mistakes).then(|| name.clone())
    });
    let rules = rules(&options, &place, mistakes);
    let topics = options.topics.optional()?;
    let sink = Sink {
        name: name.given()?.value.clone(),
        url: url.given()?.value.clone(),
        topics: topics.map(|topics| topics.into_iter().map(|topic| topic.value).collect()),
        headers: options.headers.values()?,
        token_env: token_env.optional()?,
        from: options.from.value_or(StartFrom::Now)?,
        dead_letters: options.dead_letters.value_or(DeadLetters::Block)?,
        in_flight: u32::try_from(options.in_flight.value_or(limits::DEFAULT_SINK_IN_FLIGHT)?)
            .ok()?,
        backoff: options.backoff.value_or(usual_backoff())?,
        rules: rules?,
    };
    check(&sink, &options, &place, relay, mistakes);
    Some(sink)
}

/// What the library would refuse, with the line that says it.
fn check(
    sink: &Sink,
    options: &SinkOptions,
    place: &SourceLocation,
    relay: Option<&RelayTerms>,
    mistakes: &mut Mistakes,
) {
    let of_headers = options.headers.given().map_or(place, |headers| &headers.place);
    if let Err(error) = sink.over((), sink.token_env.as_ref().map(|_| "token")) {
        mistakes.error(of_headers, error.to_string(), "change it as the message says");
    }
    let has_authorization = sink.headers.iter().any(|line| line.name == AUTHORIZATION);
    if has_authorization {
        let message =
            "`headers` has `authorization`: a secret in a file is read by all who read the file";
        mistakes.warning(of_headers, message, "write token_env = \"NAME\" instead");
    }
    let Some(relay) = relay else { return };
    let longest = sink.longest();
    if relay.retain < longest {
        let said = [&options.attempts.given().map(|given| &given.place)]
            .into_iter()
            .chain([&options.max_wait.given().map(|given| &given.place)])
            .find_map(|place| *place);
        let place = relay.retain_place.as_ref().or(said).unwrap_or(place);
        let message = format!(
            "`message_retain` is {}, and by the rules of \"{}\" it may take {} until a message is delivered or dead: \
             consumers that remember ids for as long as messages are kept could take a repeat for a new one",
            show_duration(relay.retain),
            sink.name,
            show_duration(longest)
        );
        let help =
            "raise `message_retain` in [relay], or allow fewer `attempts` or a shorter `max_wait`";
        mistakes.error(place, message, help);
    }
}

fn rules(options: &SinkOptions, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<Rules> {
    let attempts = options.attempts.value_or(limits::DEFAULT_DELIVERY_ATTEMPTS)?;
    let max_wait = options.max_wait.or_default(limits::DEFAULT_MAX_WAIT, place)?;
    let timeout = options.attempt_timeout.value_or(limits::DEFAULT_DELIVERY_TIMEOUT)?;
    let backoff = options.backoff.value_or(usual_backoff())?;
    let rules = Relay::rules()
        .to_builder()
        .attempts(u32::try_from(attempts).ok()?)
        .attempt_timeout(timeout)
        .deadline(max_wait.value)
        .backoff(backoff.backoff(limits::DEFAULT_DELIVERY_BACKOFF.1))
        .build();
    rules
        .map_err(|error| {
            let help =
                "change `attempts`, `attempt_timeout`, `backoff` or `max_wait` as the message says";
            mistakes.error(&max_wait.place, format!("this sink: {error}"), help);
        })
        .ok()
}

fn usual_backoff() -> BackoffRule {
    BackoffRule::Growing(Jitter::Full, Some(limits::DEFAULT_DELIVERY_BACKOFF))
}

fn topic(value: &Value, place: &SourceLocation, mistakes: &mut Mistakes) -> Option<String> {
    let help = "write a name as \"order.placed\", or a prefix and a star as \"order.*\"";
    let Value::Text(text) = value else {
        mistakes.error(place, "`topics` has an item that is not a text", help);
        return None;
    };
    let name = text.strip_suffix('*').unwrap_or(text);
    if text.is_empty()
        || text.len() > 255
        || name.contains('*')
        || name.chars().any(char::is_control)
    {
        mistakes.error(place, "`topics` has an item that no topic can match", help);
        return None;
    }
    Some(text.clone())
}

/// Never quotes the line: its value may be a secret.
fn header_line(
    value: &Value,
    place: &SourceLocation,
    mistakes: &mut Mistakes,
) -> Option<HeaderLine> {
    let line = match value {
        Value::Text(text) => text.split_once(':').and_then(|(name, value)| {
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some(HeaderLine { name: HeaderName::try_from(name.trim()).ok()?, value })
        }),
        _ => None,
    };
    if line.is_none() {
        let help = "write a name, a colon and a value, as \"x-tenant: shop\"";
        mistakes.error(place, "`headers` has an item that is no line of a head", help);
    }
    line
}
