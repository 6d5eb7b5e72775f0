//! Under which names a gateway's routes keep their records, and which names live records have.
//!
//! Operation name and scope are part of what identifies a record. A gateway whose configuration would give
//! a route other names must find that out before it serves: every key of before would be new.

use std::collections::BTreeMap;

use onceward_core::{Cursor, Scope};

/// One method of one route, and the names under which its records are kept.
///
/// Stores of gateways have methods `routes` and `keep_route` for it.
///
/// ```
/// use onceward::store::KeptRoute;
///
/// let kept = KeptRoute {
///     template: "POST /v1/charges/{}".to_owned(),
///     path: "/v1/charges/{id}".to_owned(),
///     operation: "POST /v1/charges/{id}".to_owned(),
///     parts: "jwt:sub,path:id".to_owned(),
///     key_source: "header:idempotency-key".to_owned(),
///     upstream: "http://127.0.0.1:3000/".to_owned(),
/// };
/// assert_eq!(kept, kept.clone());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeptRoute {
    /// The method and the path without the names of its parameters: there is one row for each.
    pub template: String,
    /// The path with the names that the parameters had when the names below were chosen.
    pub path: String,
    /// The operation name; empty: the method and the path of each request.
    pub operation: String,
    /// The names of the scope's parts, see [`LivingGroup::parts_of`]; empty: it takes no keys.
    pub parts: String,
    /// Where its clients put their keys, as `header:a,b` or `json:/id`; empty: not known.
    pub key_source: String,
    /// The upstream of the gateway that wrote this last; empty: not known.
    pub upstream: String,
}

/// A page of what lives in a store, in groups.
///
/// ```
/// use onceward::{StoreError, store::sqlite::SqliteStore};
///
/// async fn how_many_live(store: &SqliteStore) -> Result<u64, StoreError> {
///     let (mut count, mut after) = (0, None);
///     loop {
///         let page = store.living(after).await?;
///         count += page.groups.iter().map(|group| group.count).sum::<u64>();
///         after = match page.next {
///             Some(next) => Some(next),
///             None => return Ok(count),
///         };
///     }
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Living {
    /// The groups among the records that this page looked at; another page may have the same ones.
    pub groups: Vec<LivingGroup>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<Cursor>,
}

/// Live records of one operation name whose scopes have the same parts.
///
/// Live is what binds its key: everything but released keys and ends whose retention is over.
///
/// ```
/// use onceward::store::LivingGroup;
///
/// let group = LivingGroup { operation: "pay".to_owned(), parts: "user".to_owned(), count: 7 };
/// assert_eq!(group.count, 7);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LivingGroup {
    /// The operation name.
    pub operation: String,
    /// The names of the scope's parts.
    pub parts: String,
    /// How many there are.
    pub count: u64,
}

impl LivingGroup {
    /// The names of a scope's parts, as one text: what is shown of the scope, without the values.
    ///
    /// ```
    /// use onceward::{Scope, store::LivingGroup};
    ///
    /// let scope = Scope::new([("jwt:sub", "ada"), ("path:id", "a=b")])?;
    /// assert_eq!(LivingGroup::parts_of(&scope), "jwt:sub,path:id");
    /// assert_eq!(LivingGroup::parts_of(&Scope::global()), "global");
    /// # Ok::<(), onceward::protocol::ScopeError>(())
    /// ```
    #[must_use]
    pub fn parts_of(scope: &Scope) -> String {
        names_in(&scope.to_string())
    }
}

/// A shown scope has `=` only behind names and `,` only between parts: both are escaped elsewhere.
fn names_in(shown: &str) -> String {
    let names: Vec<&str> =
        shown.split(',').map(|part| part.split_once('=').map_or(part, |(name, _)| name)).collect();
    names.join(",")
}

/// Puts records together that are in one group.
#[derive(Default)]
pub(crate) struct Gathering(BTreeMap<(String, String), u64>);

impl Gathering {
    /// `scope` is as it is shown.
    pub(crate) fn add(&mut self, operation: String, scope: &str, count: u64) {
        *self.0.entry((operation, names_in(scope))).or_default() += count;
    }

    pub(crate) fn page(self, next: Option<Cursor>) -> Living {
        let group = |((operation, parts), count)| LivingGroup { operation, parts, count };
        Living { groups: self.0.into_iter().map(group).collect(), next }
    }
}
