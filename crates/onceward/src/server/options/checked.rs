//! The options of a layer as a whole: what does not fit together is refused before it serves.

use std::{any::Any, borrow::Cow, sync::Arc};

use http::{HeaderName, HeaderValue, Method, StatusCode};
use onceward_core::{
    Effect, Keeps, OperationName, Policy, PolicyBuilder, Profile, Scope, Spool, Terms, TermsBuilder,
};

use super::table::Chosen;
use crate::{
    Engine,
    server::{
        Errors, Idempotency, IdempotencyBuilder, InFlight, OptionsError,
        headers::HeaderFilter,
        hooks::{NameHook, Peers},
        key::KeySource,
        problem::stripe,
        steps::shed::Traffic,
    },
    telemetry::Route,
};

/// The options of a layer, known to fit together.
pub(crate) struct Options {
    /// What counts as it was asked for; of the rest come the other fields.
    pub(crate) chosen: Chosen,
    /// Where large answers are that were committed by a handler.
    pub(crate) beside: Option<Arc<dyn Spool>>,
    pub(crate) name: OperationNaming,
    pub(crate) key_source: KeySource,
    pub(crate) terms: Terms,
    pub(crate) policy: Policy,
    pub(crate) in_flight: InFlight,
    pub(crate) challenge: HeaderValue,
    pub(crate) errors: Errors,
    pub(crate) mismatch: StatusCode,
    pub(crate) fingerprint_headers: Vec<HeaderName>,
    pub(crate) kept: HeaderFilter,
    pub(crate) traffic: Traffic,
    /// Where its requests are counted, if that is not said by the router.
    pub(crate) route: Option<Route>,
    /// What it is called: the route's label, or the operation's fixed name.
    #[cfg_attr(
        not(feature = "axum"),
        expect(dead_code, reason = "only the status routes show it")
    )]
    pub(crate) label: Option<String>,
}

#[derive(Clone)]
pub(crate) enum Name {
    Fixed(String),
    By(NameHook),
}

impl Options {
    /// Who asks: the scope, or those of its parts that say so.
    pub(crate) fn principal<'a>(&self, scope: &'a Scope) -> Cow<'a, Scope> {
        let Some(says_who) = &self.chosen.principal else { return Cow::Borrowed(scope) };
        let parts = scope.parts().filter(|(name, _)| says_who(name));
        Cow::Owned(Scope::new(parts).unwrap_or_else(|_| Scope::global()))
    }

    pub(crate) fn fixed_name(&self) -> Option<&OperationName> {
        match &self.name {
            OperationNaming::Fixed(name) => Some(name),
            OperationNaming::By(_) | OperationNaming::ByRoute => None,
        }
    }
}

pub(crate) enum OperationNaming {
    Fixed(OperationName),
    By(NameHook),
    /// Method and route template, or method and path where there is no template.
    ByRoute,
}

impl Options {
    /// Large answers that a handler commits are written in its transaction, and SQL functions keep theirs
    /// there, too: beside the record, whichever spool was chosen. The layer looks there first.
    pub(crate) fn spooled_beside(self, engine: &Engine) -> Self {
        let beside = engine.store().as_any().and_then(spool_of);
        Self { beside, ..self }
    }

    /// Refuses to defer claims on a store where an open transaction keeps all others from writing.
    pub(crate) fn deferred_on(self, engine: &Engine) -> Result<Self, OptionsError> {
        if self.chosen.deferred.is_some() && !engine.store().as_any().is_some_and(takes_claims) {
            let text = "this store makes no claims inside a transaction of the handler's own: use \
                        PostgreSQL, or leave it out. On SQLite it would hold the only write lock for as \
                        long as the handler runs";
            return refuse("deferred", text);
        }
        Ok(self)
    }
}

/// The spool beside the records, if there is one that a transaction of the user's can write to.
fn spool_of(store: &dyn Any) -> Option<Arc<dyn Spool>> {
    #[cfg(feature = "sqlite")]
    if let Some(store) = store.downcast_ref::<crate::store::sqlite::SqliteStore>() {
        return Some(Arc::new(store.clone()));
    }
    #[cfg(feature = "postgres")]
    if let Some(store) = store.downcast_ref::<crate::store::postgres::PostgresStore>() {
        return Some(Arc::new(store.clone()));
    }
    let _ = store;
    None
}

fn takes_claims(store: &dyn Any) -> bool {
    #[cfg(feature = "postgres")]
    if let Some(store) = store.downcast_ref::<crate::store::postgres::PostgresStore>() {
        return store.takes_claims();
    }
    let _ = store;
    false
}

impl Chosen {
    pub(crate) fn check(self) -> Result<Options, OptionsError> {
        let terms = self.terms().build().map_err(OptionsError::Terms)?;
        let policy = self.policy().build().map_err(OptionsError::Policy)?;
        self.check_effect(&terms)?;
        self.check_deferred()?;
        self.check_methods()?;
        self.check_sizes()?;
        self.check_protection()?;
        let in_flight = self.in_flight();
        if let InFlight::Wait(wait) = in_flight
            && wait > IdempotencyBuilder::MAX_WAIT
        {
            return refuse("in_flight", format!("a wait of {wait:?}: choose 30 s or less"));
        }
        let Ok(challenge) = HeaderValue::try_from(&self.challenge) else {
            let text = format!("{:?} is no header value: write it as `Bearer`", self.challenge);
            return refuse("challenge", text);
        };
        let errors = self.errors.unwrap_or(match self.profile {
            Some(Profile::Stripe) => Errors::Stripe,
            _ => Errors::Problem,
        });
        let mismatch = self.mismatch.unwrap_or(match errors {
            Errors::Problem => 422,
            Errors::Stripe => stripe::MISMATCH,
        });
        if ![422, 409, 400].contains(&mismatch) {
            let text = format!("{mismatch} is not a status for it: choose 422, 409 or 400");
            return refuse("mismatch_status", text);
        }
        let path = &self.status_path;
        if !is_plain_path(path) {
            let text = format!(
                "{path:?} is not a plain path: start with `/`, end without it, and use letters, \
                 digits, `.`, `-`, `_` and `~` in between"
            );
            return refuse("status_path", text);
        }
        let name = match &self.name {
            None => OperationNaming::ByRoute,
            Some(Name::By(hook)) => OperationNaming::By(hook.clone()),
            Some(Name::Fixed(name)) => {
                OperationNaming::Fixed(OperationName::new(name).map_err(OptionsError::Name)?)
            }
        };
        let fixed = match &name {
            OperationNaming::Fixed(name) => Some(name.as_str()),
            OperationNaming::By(_) | OperationNaming::ByRoute => None,
        };
        let label = self.route.as_deref().or(fixed).map(str::to_owned);
        let route = label.as_deref().map(Route::named);
        Ok(Options {
            beside: None,
            name,
            key_source: self.key_place.clone().check()?,
            terms,
            policy,
            in_flight,
            challenge,
            errors,
            mismatch: StatusCode::from_u16(mismatch).expect("one of three statuses"),
            fingerprint_headers: header_names("fingerprint_header", &self.fingerprint_headers)?,
            kept: HeaderFilter::new(
                header_names("keep_header", &self.keep_headers)?,
                header_names("drop_header", &self.drop_headers)?,
            )
            .or_else(|text| refuse("keep_header", text))?,
            traffic: Traffic::new(self.retry_share),
            route,
            label,
            chosen: self,
        })
    }

    /// No process can see that a deferred claim runs, so that no duplicate waits for it.
    fn in_flight(&self) -> InFlight {
        self.in_flight.unwrap_or(match self.deferred {
            None => InFlight::Wait(IdempotencyBuilder::DEFAULT_WAIT),
            Some(_) => InFlight::Conflict,
        })
    }

    fn terms(&self) -> TermsBuilder {
        let mut terms = Terms::of(self.effect);
        for (value, set) in [
            (self.lease, TermsBuilder::lease as fn(_, _) -> _),
            (self.retain, TermsBuilder::retain),
            (self.unknown_retain, TermsBuilder::unknown_retain),
            (self.retry_window, TermsBuilder::retry_window),
            (self.max_run, TermsBuilder::max_run),
        ] {
            terms = value.into_iter().fold(terms, set);
        }
        // A handler may end its operation by SQL, which can hide nothing in an answer.
        terms.keeps(match (self.redact.is_some(), self.status_only) {
            (true, _) => Keeps::Status,
            (false, true) => Keeps::StatusAndLocation,
            (false, false) => Keeps::Everything,
        })
    }

    fn policy(&self) -> PolicyBuilder {
        let mut policy = Policy::of(self.effect)
            .not_applied(self.not_applied.iter().copied())
            .released_statuses(self.released_statuses.iter().copied())
            .final_statuses(self.final_statuses.iter().copied());
        if let Some(profile) = self.profile {
            policy = policy.profile(profile);
        }
        if self.hold_500 { policy.hold_500() } else { policy }
    }

    fn check_effect(&self, terms: &Terms) -> Result<(), OptionsError> {
        if let Effect::Repeatable { within } = self.effect
            && within < terms.lease()
        {
            let text = format!(
                "`within` is {within:?}, shorter than the lease of {:?}: nothing could ever be run \
                 again; raise `within` or lower the lease",
                terms.lease()
            );
            return refuse("effect", text);
        }
        if self.effect == Effect::Transactional && self.pass_when_store_is_down {
            let text = "a transactional effect ends only with its record, and there is none while \
                        the store is down; leave it out";
            return refuse("pass_when_store_is_down", text);
        }
        Ok(())
    }

    fn check_deferred(&self) -> Result<(), OptionsError> {
        let Some(wait) = self.deferred else { return Ok(()) };
        if self.effect != Effect::Transactional {
            let text = "the claim is made and ended in the commit of its effect, so that the effect must \
                        be in the same database: say `.effect(Effect::Transactional)`, or leave it out";
            return refuse("deferred", text);
        }
        if self.in_flight() != InFlight::Conflict {
            let text = "a claim that is not committed cannot be seen, so that no duplicate can wait for it or \
                        ask later: leave `in_flight` out, and see `deferred_wait`";
            return refuse("deferred", text);
        }
        if wait.is_zero() || wait > IdempotencyBuilder::MAX_DEFERRED_WAIT {
            let text =
                format!("{wait:?}: choose between 1 ms and 5 s; a connection waits all the while");
            return refuse("deferred_wait", text);
        }
        Ok(())
    }

    fn check_methods(&self) -> Result<(), OptionsError> {
        if self.methods.is_empty() {
            return refuse(
                "methods",
                "none is covered: name POST at least, or leave the layer out",
            );
        }
        let changing = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
        match self.methods.iter().find(|method| !changing.contains(method)) {
            None => Ok(()),
            Some(method) => {
                let text = format!("{method} changes nothing: choose of POST, PATCH, PUT, DELETE");
                refuse("methods", text)
            }
        }
    }

    fn check_protection(&self) -> Result<(), OptionsError> {
        if self.max_open == 0 {
            return refuse("max_open", "0 would refuse every operation: choose 1 at least");
        }
        if !(0.0..=1.0).contains(&self.retry_share) {
            let text = "a part of all that runs: choose between 0 and 1, as 0.2 for a fifth";
            return refuse("retry_share", text);
        }
        if self.status_only && self.rebuild.is_some() {
            let text = "of an answer that is rebuilt a resource is stored, and here only its status \
                        shall be: leave one of the two out";
            return refuse("status_only", text);
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), OptionsError> {
        for (option, bytes) in [
            ("max_request", self.max_request),
            ("max_inline", self.max_inline),
            ("max_response", self.max_response),
        ] {
            let most = Idempotency::MAX_BUFFERED / 4;
            if bytes == 0 || bytes > most {
                return refuse(option, format!("{bytes} bytes: choose between 1 and {most}"));
            }
        }
        let largest = self.max_request.max(self.max_response);
        if let Some(Peers { most, .. }) = &self.peers
            && !(largest..=Idempotency::MAX_BUFFERED).contains(most)
        {
            let most_of_all = Idempotency::MAX_BUFFERED;
            let text = format!(
                "{most} bytes: choose between {largest}, the largest request or answer, and {most_of_all}"
            );
            return refuse("peer_memory", text);
        }
        if self.max_inline > self.max_response {
            let text = "larger than `max_response`, the largest answer that is kept at all: lower it, or \
                        raise `max_response`";
            return refuse("max_inline", text);
        }
        Ok(())
    }
}

/// A path that means itself, in a URL and in a router.
fn is_plain_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_~".contains(&byte);
    path.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(is_plain))
    })
}

fn header_names(option: &'static str, names: &[String]) -> Result<Vec<HeaderName>, OptionsError> {
    let parse = |name: &String| match HeaderName::try_from(name) {
        Ok(name) => Ok(name),
        Err(_) => {
            refuse(option, format!("{name:?} is not a header name: choose one like `x-currency`"))
        }
    };
    names.iter().map(parse).collect()
}

fn refuse<T>(option: &'static str, text: impl Into<String>) -> Result<T, OptionsError> {
    Err(OptionsError::Option { option, text: text.into() })
}
