//! The tables: which version they have, how they are brought up to date, and what their server promises.

use std::time::Duration;

use tokio_postgres::{Client, Row};

use super::{
    Dialect, OpenError,
    link::{Link, SEARCH_PATH},
};

/// Plain SQL, for people who migrate with their own tools: each file is one version, to be run once and
/// in a transaction of its own.
///
/// ```
/// use onceward::store::postgres::MIGRATIONS;
///
/// let (name, text) = MIGRATIONS[0];
/// assert_eq!(name, "0001_records.sql");
/// assert!(text.contains("CREATE TABLE onceward.record"));
/// ```
pub const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_records.sql", include_str!("../../../migrations/postgres/0001_records.sql")),
    ("0002_functions.sql", include_str!("../../../migrations/postgres/0002_functions.sql")),
    ("0003_swap.sql", include_str!("../../../migrations/postgres/0003_swap.sql")),
    ("0004_rights.sql", include_str!("../../../migrations/postgres/0004_rights.sql")),
    ("0005_routes.sql", include_str!("../../../migrations/postgres/0005_routes.sql")),
    ("0006_operations.sql", include_str!("../../../migrations/postgres/0006_operations.sql")),
    ("0007_messages.sql", include_str!("../../../migrations/postgres/0007_messages.sql")),
    ("0008_sinks.sql", include_str!("../../../migrations/postgres/0008_sinks.sql")),
    ("0009_relays.sql", include_str!("../../../migrations/postgres/0009_relays.sql")),
    (
        "0010_message_operators.sql",
        include_str!("../../../migrations/postgres/0010_message_operators.sql"),
    ),
    ("0011_rebase.sql", include_str!("../../../migrations/postgres/0011_rebase.sql")),
    ("0012_message_speed.sql", include_str!("../../../migrations/postgres/0012_message_speed.sql")),
];

/// The versions of them that engines get which are not PostgreSQL: functions and views are its alone.
const PLAIN: [u32; 2] = [1, 5];

/// Held while tables are changed, so that processes that start together do not do it twice.
const TURN: i64 = 0x6f6e_6365_7761_7264;

/// How often tables are made where no turn can be held, and how long is waited in between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Which version the tables have, and which this software has.
///
/// ```
/// use onceward::store::postgres::Tables;
///
/// let tables = Tables { found: 3, newest: 5 };
/// assert!(tables.found < tables.newest, "`onceward migrate` brings them up to date");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The version that was found; 0 if there are none.
    pub found: u32,
    /// The newest version that this software knows.
    pub newest: u32,
}

/// Name and text of a migration.
pub(super) type Migration = (&'static str, &'static str);

/// The migrations that an engine gets, by their versions.
fn migrations(dialect: Dialect) -> impl Iterator<Item = (u32, Migration)> {
    let all = (1..).zip(MIGRATIONS.iter().copied());
    all.filter(move |(version, _)| dialect == Dialect::Postgres || PLAIN.contains(version))
}

/// The newest version that this software knows, whatever the engine.
fn known() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

impl Tables {
    pub(super) async fn read(link: &Link, dialect: Dialect) -> Result<Self, OpenError> {
        Ok(compare(&link.client, dialect).await?.0)
    }

    /// Refuses tables that this software cannot work with.
    pub(super) fn check(self) -> Result<(), OpenError> {
        let Self { found, newest } = self;
        match found {
            found if found > known() => Err(OpenError::Newer { found, known: known() }),
            found if found < newest => Err(OpenError::Outdated { found, needed: newest }),
            _ => Ok(()),
        }
    }
}

/// What the tables lack.
pub(super) async fn missing(link: &Link, dialect: Dialect) -> Result<Vec<Migration>, OpenError> {
    Ok(compare(&link.client, dialect).await?.1)
}

/// Brings the tables up to date, all of it or nothing; tells the version that was found.
pub(super) async fn migrate(link: &mut Link, dialect: Dialect) -> Result<Tables, OpenError> {
    let mut tries = match dialect {
        Dialect::Postgres => 1,
        Dialect::Wire => TRIES,
    };
    loop {
        tries -= 1;
        match migrate_once(link, dialect).await {
            // Another process may have made them at the same time.
            Err(OpenError::Failed(_)) if tries > 0 => tokio::time::sleep(PAUSE).await,
            result => return result,
        }
    }
}

async fn migrate_once(link: &mut Link, dialect: Dialect) -> Result<Tables, OpenError> {
    let failed = |error: tokio_postgres::Error| OpenError::from_driver(&error);
    let transaction = link.client.transaction().await.map_err(failed)?;
    let settings = format!("SET LOCAL search_path = {SEARCH_PATH}; SET LOCAL lock_timeout = '30s'");
    transaction.batch_execute(&settings).await.map_err(failed)?;
    if dialect == Dialect::Postgres {
        let turn = format!("SELECT pg_catalog.pg_advisory_xact_lock({TURN})");
        transaction.batch_execute(&turn).await.map_err(failed)?;
    }
    let (tables, missing) = compare(transaction.client(), dialect).await?;
    for (name, text) in missing {
        let named = |detail: String| format!("{name}: {detail}");
        let migrated = transaction.batch_execute(text).await;
        migrated.map_err(|error| match OpenError::from_driver(&error) {
            OpenError::NotAllowed(detail) => OpenError::NotAllowed(named(detail)),
            OpenError::Failed(detail) => OpenError::Failed(named(detail)),
            other => other,
        })?;
    }
    transaction.commit().await.map_err(failed)?;
    Ok(tables)
}

/// Which version the tables have, and what they lack: an engine that speaks PostgreSQL's dialect may find the tables of
/// one that does not, and the other way round. Newer tables that this software may use lack nothing.
async fn compare(client: &Client, dialect: Dialect) -> Result<(Tables, Vec<Migration>), OpenError> {
    let applied = applied(client).await?;
    let newest = migrations(dialect).map(|(version, _)| version).max().unwrap_or_default();
    if applied.iter().any(|applied| applied.needs > known()) {
        let found = applied.iter().map(|applied| applied.version).max().unwrap_or_default();
        return Ok((Tables { found, newest }, Vec::new()));
    }
    let is_there = |version: u32| applied.iter().any(|applied| applied.version == version);
    let found = migrations(dialect).map(|(version, _)| version).take_while(|one| is_there(*one));
    let found = found.last().unwrap_or_default();
    let missing = migrations(dialect).filter(|(version, _)| !is_there(*version));
    Ok((Tables { found, newest }, missing.map(|(_, migration)| migration).collect()))
}

/// A migration that was run on the database.
struct Applied {
    version: u32,
    /// The oldest version that software must know to work with the tables since then.
    needs: u32,
}

async fn applied(client: &Client) -> Result<Vec<Applied>, OpenError> {
    let failed = |error: tokio_postgres::Error| OpenError::from_driver(&error);
    match table(client).await? {
        Table::Absent => return Ok(Vec::new()),
        Table::Hidden => {
            let text = "this user may not use the tables of the schema onceward".to_owned();
            return Err(OpenError::NotAllowed(text));
        }
        Table::Usable => {}
    }
    let question = "SELECT version::pg_catalog.int8, coalesce(needs, version)::pg_catalog.int8
        FROM onceward.migration";
    let rows = client.query_typed(question, &[]).await.map_err(failed)?;
    let number = |row: &Row, column: usize| -> Result<u32, OpenError> {
        let number: i64 = row.try_get(column).map_err(failed)?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    };
    rows.iter()
        .map(|row| Ok(Applied { version: number(row, 0)?, needs: number(row, 1)? }))
        .collect()
}

/// The table of migrations, as this user sees it.
enum Table {
    Absent,
    /// A user without rights does not see tables that are there.
    Hidden,
    Usable,
}

/// Asked in one statement: another process may make the tables between two.
async fn table(client: &Client) -> Result<Table, OpenError> {
    let question = "SELECT
        (SELECT pg_catalog.count(*) FROM information_schema.tables
         WHERE table_schema::pg_catalog.text OPERATOR(pg_catalog.=) 'onceward'
            AND table_name::pg_catalog.text OPERATOR(pg_catalog.=) 'migration'),
        (SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c
         JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
         WHERE n.nspname OPERATOR(pg_catalog.=) 'onceward' AND c.relname OPERATOR(pg_catalog.=) 'migration')";
    let row = client.query_typed_one(question, &[]).await;
    let counts = row.and_then(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let (usable, all): (i64, i64) = counts.map_err(|error| OpenError::from_driver(&error))?;
    Ok(match (usable, all) {
        (0, 0) => Table::Absent,
        (0, _) => Table::Hidden,
        _ => Table::Usable,
    })
}

/// What the server promises for a commit that it acknowledges, read when the store was opened.
///
/// ```
/// use onceward::store::postgres::Durability;
///
/// fn survives_the_loss_of_its_primary(durability: &Durability) -> bool {
///     !durability.standbys.is_empty()
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Durability {
    /// The server's version, as `15.8`.
    pub version: String,
    /// `fsync`: whether what is written reaches the disk.
    pub fsync: bool,
    /// `full_page_writes`: whether a torn page is repaired after a crash.
    pub full_page_writes: bool,
    /// `synchronous_commit` as server, database and role have it, before this store raises it for itself.
    pub synchronous_commit: String,
    /// `synchronous_standby_names`: what a commit waits for; empty: nothing.
    pub standbys: String,
    /// Whether there are standbys or slots for them.
    pub has_replicas: bool,
}

impl Durability {
    pub(super) async fn read(link: &Link, dialect: Dialect) -> Result<Option<Self>, OpenError> {
        if dialect == Dialect::Wire {
            return Ok(None);
        }
        let question = "
            SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('fsync'),
                pg_catalog.current_setting('full_page_writes'),
                coalesce((SELECT reset_val FROM pg_catalog.pg_settings
                    WHERE name OPERATOR(pg_catalog.=) 'synchronous_commit'), pg_catalog.current_setting('synchronous_commit')),
                pg_catalog.current_setting('synchronous_standby_names'),
                EXISTS (SELECT FROM pg_catalog.pg_stat_replication)
                    OR EXISTS (SELECT FROM pg_catalog.pg_replication_slots
                        WHERE slot_type OPERATOR(pg_catalog.=) 'physical')";
        let row = link.client.query_typed_one(question, &[]).await;
        let durability = row.and_then(|row| Self::of(&row));
        durability.map(Some).map_err(|error| OpenError::from_driver(&error))
    }

    fn of(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let is_on = |text: String| text == "on";
        Ok(Self {
            version: row.try_get(0)?,
            fsync: row.try_get(1).map(is_on)?,
            full_page_writes: row.try_get(2).map(is_on)?,
            synchronous_commit: row.try_get(3)?,
            standbys: row.try_get(4)?,
            has_replicas: row.try_get(5)?,
        })
    }

    /// Why an acknowledged record could be lost here; empty: for no reason that can be seen.
    ///
    /// `promotes`: whether one of its standbys may become the primary.
    #[must_use]
    pub fn weaknesses(&self, promotes: bool) -> Vec<String> {
        let mut weaknesses = Vec::new();
        if !self.fsync {
            weaknesses.push(
                "fsync is off: a power cut loses acknowledged records, or all of them".to_owned(),
            );
        }
        if !self.full_page_writes {
            weaknesses.push("full_page_writes is off: a power cut can leave pages that are half old and half new".to_owned());
        }
        if self.has_replicas && self.standbys.is_empty() && promotes {
            weaknesses.push(
                "it replicates asynchronously: a standby that is promoted lacks what was acknowledged last \
                 (name it in synchronous_standby_names; or write promotion=never into the store's \
                 address, if no standby will ever take over)"
                    .to_owned(),
            );
        }
        weaknesses
    }
}
