//! Finds rows by operation name, by scope or by key, block by block.
//!
//! The index of groups begins with the number of a block of rows, so that a claim writes where the
//! claims before it did. Within a block it is sorted by operation name and scope.

use std::collections::{HashMap, HashSet};

use onceward_core::{Digest, Filter, Key, OperationId, OperationName, Order, Scope};
use rusqlite::{Connection, OptionalExtension as _, Params, params};

use super::{
    places::{Batch, Finder, IndexPosition, Reached, sort},
    sql::places as sql,
};

/// How many rows a block has: as in the index.
const BLOCK: i64 = 4096;

/// How often one batch asks the index, so that a rare scope does not hold up other reads.
const MAX_ASKED: usize = 10_000;

/// How many blocks one batch of a key goes through: each is read whole.
const MAX_BLOCKS_OF_KEY: usize = 32;

/// The rows that have not been gone through: from here on, or up to here.
#[derive(Clone, Copy)]
pub(super) struct Span {
    last: i64,
    order: Order,
}

impl Span {
    pub(super) fn behind(last: i64, order: Order) -> Self {
        Self { last, order }
    }

    fn has(self, seq: i64) -> bool {
        IndexPosition::of_row(seq).is_behind(IndexPosition::of_row(self.last), self.order)
    }

    /// The next block with any row of it.
    fn block(self, connection: &Connection) -> rusqlite::Result<Option<i64>> {
        let (statement, bound) = match self.order {
            Order::OldestFirst => {
                (sql::BLOCK_AFTER, self.last.saturating_add(1).max(0).div_euclid(BLOCK) - 1)
            }
            Order::NewestFirst => {
                (sql::BLOCK_BEFORE, self.last.saturating_sub(1).div_euclid(BLOCK) + 1)
            }
        };
        let mut statement = connection.prepare_cached(statement)?;
        statement.query_row([bound], |row| row.get(0)).optional()
    }

    /// What is left when this block was gone through.
    fn without(self, block: i64) -> Self {
        let last = match self.order {
            Order::OldestFirst => block * BLOCK + (BLOCK - 1),
            Order::NewestFirst => block * BLOCK,
        };
        Self { last, ..self }
    }
}

/// An operation name, a scope, or both.
pub(super) struct Group {
    operation: Option<String>,
    scope: Option<String>,
}

impl Group {
    pub(super) fn of(filter: &Filter) -> Self {
        Self {
            operation: filter.operation.as_ref().map(|operation| operation.as_str().to_owned()),
            scope: filter.scope.as_ref().map(ToString::to_string),
        }
    }

    /// The rows of one block, and how often the index was asked for them.
    fn rows(&self, connection: &Connection, block: i64) -> rusqlite::Result<(Vec<i64>, usize)> {
        let operations = match &self.operation {
            Some(operation) => vec![operation.clone()],
            None => operations(connection, block)?,
        };
        let asked = operations.len() + 1;
        let mut rows = Vec::new();
        for operation in operations {
            rows.extend(match &self.scope {
                Some(scope) => numbers(connection, sql::OF_GROUP, params![block, operation, scope]),
                None => numbers(connection, sql::OF_OPERATION, params![block, operation]),
            }?);
        }
        Ok((rows, asked))
    }
}

fn numbers(
    connection: &Connection,
    text: &str,
    parameters: impl Params,
) -> rusqlite::Result<Vec<i64>> {
    let mut statement = connection.prepare_cached(text)?;
    statement.query_map(parameters, |row| row.get(0))?.collect()
}

/// The operation names of a block, each by one question.
fn operations(connection: &Connection, block: i64) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(sql::OPERATION_AFTER)?;
    let mut operations = Vec::new();
    let mut last = String::new();
    while let Some(next) =
        statement.query_row(params![block, last], |row| row.get::<_, String>(0)).optional()?
    {
        operations.push(next.clone());
        last = next;
    }
    Ok(operations)
}

/// The places of a group behind this one.
pub(super) fn places(
    finder: &Finder<'_>,
    group: &Group,
    last: IndexPosition,
) -> rusqlite::Result<Batch> {
    let order = finder.filter.order;
    let (mut span, mut places, mut asked) = (finder.span(last), Vec::new(), 0);
    while asked < MAX_ASKED && places.len() < finder.count as usize {
        let Some(block) = span.block(finder.connection)? else {
            return Ok(Batch { places, reached: Reached::End });
        };
        let (rows, questions) = group.rows(finder.connection, block)?;
        let mut found: Vec<IndexPosition> =
            rows.into_iter().filter(|seq| span.has(*seq)).map(IndexPosition::of_row).collect();
        sort(&mut found, order);
        places.extend(found);
        span = span.without(block);
        asked += questions + 1;
    }
    Ok(Batch { places, reached: Reached::IndexPosition(IndexPosition::of_row(span.last)) })
}

/// The places of a key: every group that is there may have used it. A row is of this batch if it is
/// in one of the blocks that were gone through, which its group then is as well.
pub(super) fn places_of_key(finder: &Finder<'_>, last: IndexPosition) -> rusqlite::Result<Batch> {
    let Finder { connection, filter, .. } = finder;
    let (whole, wanted) = (finder.span(last), Group::of(filter));
    let (mut span, mut groups, mut is_last) = (whole, Groups::default(), false);
    for _ in 0..MAX_BLOCKS_OF_KEY {
        let Some(block) = span.block(connection)? else {
            is_last = true;
            break;
        };
        groups.read(connection, block, &wanted)?;
        span = span.without(block);
    }
    let mut places = Vec::new();
    if let Some(key) = &filter.key {
        for id in groups.digests(key) {
            if let Some(seq) = row_of(connection, &id)?
                && whole.has(seq)
                && (is_last || !span.has(seq))
            {
                places.push(IndexPosition::of_row(seq));
            }
        }
    }
    sort(&mut places, filter.order);
    let reached = match is_last {
        true => Reached::End,
        false => Reached::IndexPosition(IndexPosition::of_row(span.last)),
    };
    Ok(Batch { places, reached })
}

/// Operation names, and the scopes of each.
#[derive(Default)]
struct Groups(HashMap<String, HashSet<String>>);

impl Groups {
    fn read(
        &mut self,
        connection: &Connection,
        block: i64,
        wanted: &Group,
    ) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(sql::GROUPS)?;
        let mut rows = statement.query([block])?;
        while let Some(row) = rows.next()? {
            let (operation, scope) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            let is =
                |wanted: &Option<String>, found| wanted.as_deref().is_none_or(|it| it == found);
            if !is(&wanted.operation, operation) || !is(&wanted.scope, scope) {
                continue;
            }
            match self.0.get_mut(operation) {
                Some(scopes) if scopes.contains(scope) => {}
                Some(scopes) => drop(scopes.insert(scope.to_owned())),
                None => {
                    let scopes = HashSet::from([scope.to_owned()]);
                    self.0.insert(operation.to_owned(), scopes);
                }
            }
        }
        Ok(())
    }

    /// What the key would be stored under; what was not written by this software is left out.
    fn digests(&self, key: &Key) -> impl Iterator<Item = Digest> {
        self.0.iter().flat_map(move |(operation, scopes)| {
            let name = OperationName::new(operation).ok();
            scopes.iter().filter_map(move |scope| {
                let scope: Scope = scope.parse().ok()?;
                Some(OperationId::new(scope, name.clone()?, key.clone()).digest())
            })
        })
    }
}

/// The row of an operation.
pub(super) fn row_of(connection: &Connection, id: &Digest) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached(sql::OF_DIGEST)?;
    statement.query_row([id.0], |row| row.get(0)).optional()
}
