//! The gateway on one store beside the gateway on another.

use std::{path::Path, time::Duration};

use crate::{
    Failure,
    gateway::{
        client::{self, Keys},
        exchange::Kind,
        result::Line,
        subjects, take_turn, upstream,
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
        let subjects = [on_sqlite, on_postgres];
        let keys = Keys::new();
        for subject in &subjects {
            let storing = client::store_answers(subject.question(Kind::First), &keys);
            let stored = client::within(turn, storing).await;
            stored.map_err(|wrong| subject.blamed(Kind::First, &wrong))?;
        }
        let kinds = [Kind::First, Kind::Replay];
        let of_kind = |kind| {
            let line = move |(index, subject): (usize, &subjects::Subject)| {
                Line::new(index, subject.words, kind)
            };
            subjects.iter().enumerate().map(line)
        };
        let mut lines: Vec<Line> = kinds.into_iter().flat_map(of_kind).collect();
        let mut progress =
            Progress::new("gateway on both stores", u64::from(rounds) * lines.len() as u64);
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
    })
}
