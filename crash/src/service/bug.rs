//! Mistakes that somebody could make, each in real code: the checker must find them all.

mod handler;
mod outside;
mod store;

use std::time::Duration;

use axum::{
    Router,
    middleware::from_fn,
    routing::{MethodRouter, post},
};
use onceward::{
    Effect, Engine,
    server::IdempotencyBuilder,
    store::{memory::MemoryStore, sqlite::SqliteStore},
};

use super::{Shop, Stake, charge};

/// A mistake that the checker must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Bug {
    /// The user's transaction ends the record under whatever fence is stored.
    FenceIgnoredInTransaction,
    /// The store ends a record whatever fence is stored.
    SettlementOverwrites,
    /// The store gives a claim to everybody who asks.
    SharedClaims,
    /// The effect is committed by itself, before the record.
    EffectOutsideTransaction,
    /// The record is committed by itself, before the effect.
    RecordBeforeEffect,
    /// The client is answered, and then the transaction is begun.
    AnswerBeforeCommit,
    /// The store says that the end is stored, and stores it later.
    AnswerBeforeRecord,
    /// The store keeps half of a body.
    BodyCut,
    /// Everybody is the same tenant.
    KeyWithoutScope,
    /// A replay has another status than the first answer.
    ReplayChanged,
    /// The records are in memory.
    StoreForgets,
    /// The effect is said to be repeatable, but the provider gets no key.
    RepeatableWithoutKey,
    /// The reader of an abandoned record decides whether it may be repeated.
    ReaderDecides,
    /// An unknown outcome is told as if nothing had happened.
    UnknownIsFailure,
    /// A provider that did not answer is said to have refused.
    SilenceIsRefusal,
    /// A provider that did not answer is said to have done nothing.
    SilenceIsNothing,
    /// A provider that did not answer is asked again, without a key.
    SilenceIsAskedAgain,
    /// The end is forgotten after a second.
    RetentionTooShort,
    /// A claim that was abandoned is never over.
    LeaseTooLong,
    /// A transactional effect is said to be external.
    TransactionalAsExternal,
    /// All orders have the payload of the first one.
    StaleOrder,
    /// Everything is refused.
    AlwaysUnavailable,
}

impl Bug {
    /// What drives the records.
    pub(super) fn engine(self, store: SqliteStore) -> Engine {
        match self {
            Self::StoreForgets => Engine::new(MemoryStore::not_durable()),
            _ => Engine::new(store::Spoilt { inner: store, bug: self }),
        }
    }

    /// What is configured.
    pub(super) fn options(self, options: IdempotencyBuilder) -> IdempotencyBuilder {
        match self {
            Self::RepeatableWithoutKey => options.effect(Stake::Repeatable.effect()),
            Self::TransactionalAsExternal => options.effect(Effect::External),
            Self::SilenceIsNothing => options.not_applied([502]),
            Self::RetentionTooShort => options.retain(Duration::from_secs(1)),
            Self::LeaseTooLong => options.lease(Duration::from_secs(3600)),
            _ => options,
        }
    }

    /// Who does the work.
    pub(super) fn handler(self) -> MethodRouter<Shop> {
        match self {
            Self::FenceIgnoredInTransaction => post(handler::end_under_any_fence),
            Self::EffectOutsideTransaction => post(handler::charge_then_commit),
            Self::RecordBeforeEffect => post(handler::commit_then_charge),
            Self::SilenceIsRefusal => post(handler::charge_or_refuse),
            Self::SilenceIsAskedAgain => post(handler::charge_until_done),
            Self::StaleOrder => post(handler::charge_the_first_payload),
            _ => post(charge),
        }
    }

    /// What stands between the clients and the layer.
    pub(super) fn outside(self, app: Router<Shop>) -> Router<Shop> {
        match self {
            Self::AnswerBeforeCommit => app.layer(from_fn(outside::answer_first)),
            Self::KeyWithoutScope => app.layer(from_fn(outside::lose_the_tenant)),
            Self::ReplayChanged => app.layer(from_fn(outside::call_replays_ok)),
            Self::UnknownIsFailure => app.layer(from_fn(outside::call_unknown_a_failure)),
            Self::AlwaysUnavailable => app.layer(from_fn(outside::refuse)),
            _ => app,
        }
    }
}
