//! The gateway on one store beside the gateway on others, and beside a peer.

use std::{path::Path, time::Duration};

use crate::{
    Failure,
    gateway::{
        client::{self, Keys},
        exchange::Kind,
        peers,
        result::Line,
        subjects::{self, Subject},
        take_turn, upstream,
    },
    progress::Progress,
};

/// Measures first requests and replays, in turns: on a new file of SQLite, and on this database.
pub(crate) fn on_both_stores(
    program: &Path,
    directory: &Path,
    url: &str,
    rounds: u32,
    turn: Duration,
) -> Result<Vec<Line>, Failure> {
    upstream::runtime()?.block_on(async {
        let service = subjects::upstream(directory)?;
        let mut on_sqlite = subjects::onceward(directory, program, service.address)?;
        on_sqlite.words = subjects::ON_SQLITE;
        let on_postgres = subjects::onceward_on_postgres(directory, program, service.address, url)?;
        let kinds = [Kind::First, Kind::Replay];
        take_turns("gateway on both stores", &[on_sqlite, on_postgres], &kinds, rounds, turn).await
    })
}

/// Where the servers of a run are.
pub(crate) struct Urls {
    /// Syncs its log before it answers.
    pub(crate) always: String,
    /// Syncs its log once in a second.
    pub(crate) everysec: String,
    pub(crate) postgres: Option<String>,
}

/// What a run beside Redis gave.
#[derive(Default)]
pub(crate) struct BesideRedis {
    pub(crate) lines: Vec<Line>,
    /// The versions of the peer's parts.
    pub(crate) peer: Option<String>,
    /// Why the peer was not measured.
    pub(crate) skipped: Option<String>,
}

/// Measures first requests, in turns: on Redis with either rule for syncs, on the other stores, and
/// express-idempotency on a Redis of its own with either rule.
pub(crate) fn on_redis(
    program: &Path,
    directory: &Path,
    urls: &Urls,
    rounds: u32,
    turn: Duration,
) -> Result<BesideRedis, Failure> {
    upstream::runtime()?.block_on(async {
        let service = subjects::upstream(directory)?;
        let behind = service.address;
        let on_redis =
            |words, url| subjects::onceward_on_redis(directory, program, behind, words, url);
        let mut on_sqlite = subjects::onceward(directory, program, behind)?;
        on_sqlite.words = subjects::ON_SQLITE;
        let mut subjects = vec![
            on_redis(subjects::ON_REDIS_ALWAYS, &urls.always)?,
            on_redis(subjects::ON_REDIS_EVERYSEC, &urls.everysec)?,
            on_sqlite,
        ];
        if let Some(url) = &urls.postgres {
            subjects.push(subjects::onceward_on_postgres(directory, program, behind, url)?);
        }
        let mut beside = BesideRedis::default();
        let peer = |sync, words| peers::express_with(directory, sync, words);
        let always = peer("always", peers::EXPRESS_ALWAYS);
        match always.and_then(|always| Ok([always, peer("everysec", peers::EXPRESS_EVERYSEC)?])) {
            Ok(both) => {
                beside.peer = both[0].version.clone();
                subjects.extend(both);
            }
            Err(reason) => {
                eprintln!("express-idempotency is skipped: {reason}");
                beside.skipped = Some(reason.to_string());
            }
        }
        let kinds = [Kind::First];
        beside.lines = take_turns("gateway", &subjects, &kinds, rounds, turn).await?;
        Ok(beside)
    })
}

async fn take_turns(
    what: &str,
    subjects: &[Subject],
    kinds: &[Kind],
    rounds: u32,
    turn: Duration,
) -> Result<Vec<Line>, Failure> {
    let keys = Keys::new();
    if kinds.contains(&Kind::Replay) {
        for subject in subjects {
            let storing = client::store_answers(subject.question(Kind::First), &keys);
            let stored = client::within(turn, storing).await;
            stored.map_err(|wrong| subject.blamed(Kind::First, &wrong))?;
        }
    }
    let of_kind = |kind: &Kind| {
        let kind = *kind;
        let line = move |(index, subject): (usize, &Subject)| Line::new(index, subject.words, kind);
        subjects.iter().enumerate().map(line)
    };
    let mut lines: Vec<Line> = kinds.iter().flat_map(of_kind).collect();
    let mut progress = Progress::new(what, u64::from(rounds) * lines.len() as u64);
    for round in 0..u64::from(rounds) {
        let count = lines.len() as u64;
        for (index, line) in lines.iter_mut().enumerate() {
            let subject = &subjects[line.subject];
            let taken = take_turn(subject, line, &keys, turn).await;
            taken.map_err(|wrong| subject.blamed(line.kind, &wrong))?;
            progress.at(round * count + index as u64 + 1);
        }
    }
    progress.end();
    Ok(lines)
}
