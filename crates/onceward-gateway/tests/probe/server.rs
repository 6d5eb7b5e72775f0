//! A small API that is right about idempotency, unless it is told to have a fault.
//!
//! `POST /payments` by one of two callers; `GET /count` is `{"total"}`: how many were made. It shares no
//! code with the library, so that both can be wrong in their own ways only.

mod answer;
mod request;

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use tokio::{net::TcpListener, runtime::Runtime};

use answer::{Kept, lost, problem};
use request::Asked;

pub(crate) use answer::Answers;

/// One way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    BinaryAsText,
    BodyRebuilt,
    BusyIs500,
    CaseFolded,
    ChunkedIsAnotherKey,
    ChunkedIsMismatch,
    ContentTypeLost,
    EmptyKeyShared,
    ErrorBecomes200,
    ExpiryMissing,
    ExpiryMoves,
    HeadersCollapsed,
    LockedAfterDisconnect,
    LongKeysCut,
    LookThenStore,
    MarkerMissing,
    MarkerOnFirst,
    MismatchExecuted,
    MismatchReplayed,
    MissingKeyIs500,
    NoIdempotency,
    NoRetryAfter,
    NoScope,
    OnlyFirstMegabyte,
    PlainErrors,
    QueryIgnored,
    QuotedIsAnotherKey,
    RawBytes,
    RefusalStored,
    StatusChanged,
    StoredWithoutCredential,
    TwiceAfterDisconnect,
    TwoLinesAccepted,
}

/// What the API is like; the default is right in everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nature {
    pub(crate) defect: Option<Defect>,
    pub(crate) answers: Answers,
    /// The status of a mismatch.
    pub(crate) mismatch: u16,
    /// Whether it serves also without a credential.
    pub(crate) is_open: bool,
    /// Whether the same data is refused twice, whatever the key.
    pub(crate) is_unique: bool,
    /// Whether larger requests are refused before they are read.
    pub(crate) largest: Option<u64>,
    /// After so many requests it says 429.
    pub(crate) budget: Option<u64>,
    /// Every so many requests it says 503.
    pub(crate) flaky: Option<u64>,
    /// Whether answers repeat the credential.
    pub(crate) is_talkative: bool,
    /// The status and the document of a retry whose first request lost its client.
    pub(crate) lost: Option<(u16, &'static str)>,
}

impl Default for Nature {
    fn default() -> Self {
        Self {
            defect: None,
            answers: Answers::Binary,
            mismatch: 422,
            is_open: false,
            is_unique: false,
            largest: None,
            budget: None,
            flaky: None,
            is_talkative: false,
            lost: None,
        }
    }
}

/// A running API; all of them live as long as the tests.
pub(crate) struct Server {
    address: SocketAddr,
    api: Arc<Api>,
}

struct Api {
    nature: Nature,
    slots: Mutex<HashMap<String, Slot>>,
    seen: Mutex<HashSet<Vec<u8>>>,
    made: AtomicU64,
    requests: AtomicU64,
}

/// What is known of a key.
#[derive(Clone)]
struct Slot {
    fingerprint: Vec<u8>,
    /// `None` while it runs.
    kept: Option<Kept>,
}

/// How long a payment takes.
const WORK: Duration = Duration::from_millis(25);
/// Long enough that a duplicate meets it while it runs, also on a busy machine.
const LONG_WORK: Duration = Duration::from_millis(200);

impl Server {
    pub(crate) fn right() -> Self {
        Self::start(Nature::default())
    }

    pub(crate) fn wrong(defect: Defect) -> Self {
        Self::start(Nature { defect: Some(defect), ..Nature::default() })
    }

    pub(crate) fn start(nature: Nature) -> Self {
        static RUNTIME: OnceLock<Runtime> = OnceLock::new();
        let runtime = RUNTIME.get_or_init(|| Runtime::new().unwrap());
        let api = Arc::new(Api {
            nature,
            slots: Mutex::default(),
            seen: Mutex::default(),
            made: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let router = Router::new().fallback(serve).with_state(api.clone());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async { axum::serve(listener, router).await });
        Self { address, api }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How many requests came, but those for the count.
    pub(crate) fn requests(&self) -> u64 {
        self.api.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn made(&self) -> u64 {
        self.api.made.load(Ordering::SeqCst)
    }
}

async fn serve(State(api): State<Arc<Api>>, request: axum::extract::Request) -> Response {
    if request.uri().path() == "/count" {
        return Json(json!({"total": api.made.load(Ordering::SeqCst)})).into_response();
    }
    let number = api.requests.fetch_add(1, Ordering::SeqCst) + 1;
    if api.nature.budget.is_some_and(|budget| number > budget) {
        return problem(&api, 429, "too much").response();
    }
    if api.nature.flaky.is_some_and(|every| number > 2 && number % every == 0) {
        return problem(&api, 503, "not now").response();
    }
    let asked = match Asked::read(&api.nature, request).await {
        Ok(asked) => asked,
        Err((status, text)) => return problem(&api, status, text).response(),
    };
    api.answer(asked).await
}

impl Api {
    fn has(&self, defect: Defect) -> bool {
        self.nature.defect == Some(defect)
    }

    async fn answer(self: Arc<Self>, asked: Asked) -> Response {
        if let Some(refusal) = self.gate(&asked) {
            return refusal;
        }
        let key = match asked.key(&self.nature) {
            Ok(Some(key)) if !self.has(Defect::NoIdempotency) => key,
            Err(text) if !self.has(Defect::NoIdempotency) => {
                return problem(&self, 400, text).response();
            }
            Ok(None) if self.has(Defect::MissingKeyIs500) => {
                return problem(&self, 500, "no key").response();
            }
            _ => return self.execute(&asked).await.first(&self),
        };
        let slot = format!("{}/{key}", asked.scope(&self.nature));
        let fingerprint = asked.fingerprint(&self.nature);
        match self.claim(&slot, &fingerprint) {
            None => self.run(slot, fingerprint, asked).await,
            Some(known) if known.fingerprint != fingerprint => self.mismatch(&asked, known).await,
            Some(Slot { kept: Some(kept), .. }) => kept.replayed(&self),
            Some(_) if self.nature.lost.is_some() => lost(&self),
            Some(_) if self.has(Defect::BusyIs500) => problem(&self, 500, "locked").response(),
            Some(_) => {
                let busy = problem(&self, 409, "it is running");
                let told = !self.has(Defect::NoRetryAfter);
                if told { busy.line("retry-after", "1") } else { busy }.response()
            }
        }
    }

    /// Who is not let in.
    fn gate(&self, asked: &Asked) -> Option<Response> {
        let refused = format!("refused/{}", asked.lines.concat());
        let stored = || self.slots.lock().unwrap().get(&refused).cloned();
        if self.has(Defect::RefusalStored)
            && let Some(Slot { kept: Some(kept), .. }) = stored()
        {
            return Some(kept.replayed(self));
        }
        if asked.caller.is_some() || self.nature.is_open {
            return None;
        }
        if self.has(Defect::StoredWithoutCredential) {
            let slots = self.slots.lock().unwrap();
            let end = format!("/{}", asked.lines.concat());
            let anyones = slots.iter().find(|(slot, _)| slot.ends_with(&end));
            if let Some((_, Slot { kept: Some(kept), .. })) = anyones {
                return Some(kept.clone().replayed(self));
            }
        }
        let refusal = problem(self, 401, "who are you?");
        if self.has(Defect::RefusalStored) {
            let slot = Slot { fingerprint: Vec::new(), kept: Some(refusal.clone()) };
            self.slots.lock().unwrap().insert(refused, slot);
        }
        Some(refusal.response())
    }

    /// `None` if the key was free and is now the caller's: one step under one lock.
    fn claim(&self, slot: &str, fingerprint: &[u8]) -> Option<Slot> {
        let mut slots = self.slots.lock().unwrap();
        let known = slots.get(slot).cloned();
        if known.is_none() && !self.has(Defect::LookThenStore) {
            let running = Slot { fingerprint: fingerprint.to_vec(), kept: None };
            slots.insert(slot.to_owned(), running);
        }
        known
    }

    async fn mismatch(&self, asked: &Asked, known: Slot) -> Response {
        match (self.nature.defect, known.kept) {
            (Some(Defect::MismatchReplayed), Some(kept)) => kept.replayed(self),
            (Some(Defect::MismatchExecuted), _) => self.execute(asked).await.first(self),
            _ => problem(self, self.nature.mismatch, "the key was used for another").response(),
        }
    }

    /// Runs it apart from the connection, whose end would cancel it.
    async fn run(self: Arc<Self>, slot: String, fingerprint: Vec<u8>, asked: Asked) -> Response {
        let api = self.clone();
        let is_released = self.has(Defect::TwiceAfterDisconnect);
        let guard =
            is_released.then(|| Release { api: api.clone(), slot: slot.clone(), is_due: true });
        let work = async move {
            let kept = api.execute(&asked).await;
            let ended = Slot { fingerprint, kept: Some(kept.clone()) };
            api.slots.lock().unwrap().insert(slot, ended);
            if let Some(mut guard) = guard {
                guard.is_due = false;
            }
            kept.first(&api)
        };
        let is_lost = self.has(Defect::LockedAfterDisconnect) || self.nature.lost.is_some();
        match is_lost || is_released {
            true => work.await,
            false => tokio::spawn(work).await.unwrap(),
        }
    }

    /// Some defects show only when a duplicate comes while the first is running.
    fn work(&self) -> Duration {
        match self.nature.defect {
            Some(
                Defect::LookThenStore
                | Defect::TwiceAfterDisconnect
                | Defect::LockedAfterDisconnect
                | Defect::BusyIs500
                | Defect::NoRetryAfter,
            ) => LONG_WORK,
            _ if self.nature.lost.is_some() => LONG_WORK,
            _ => WORK,
        }
    }

    /// The payment itself.
    async fn execute(&self, asked: &Asked) -> Kept {
        if let Some(text) = asked.fault() {
            return problem(self, 400, text);
        }
        if self.nature.is_unique && !self.seen.lock().unwrap().insert(asked.body.to_vec()) {
            return problem(self, 409, "there is such a payment");
        }
        let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(self.work()).await;
        self.nature.answers.of(number, asked.caller.as_deref().filter(|_| self.nature.is_talkative))
    }
}

/// Frees a key whose work was cancelled, as if nothing had been done.
struct Release {
    api: Arc<Api>,
    slot: String,
    is_due: bool,
}

impl Drop for Release {
    fn drop(&mut self) {
        if self.is_due {
            self.api.slots.lock().unwrap().remove(&self.slot);
        }
    }
}
