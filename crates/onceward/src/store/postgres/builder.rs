//! The options of a store, checked when it is opened.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize},
};

use onceward_core::Seal;

use super::{
    Address, Dialect, Durability, OpenError, PostgresStore, Tables,
    link::{ConnectOptions, Link},
    schema, sweep, tls,
};
use crate::{
    clock::{Clock, HostClock, Watch},
    store::sql::codec::Codec,
};

/// Collects the options of a [`PostgresStore`]; nothing happens before [`open`](Self::open).
///
/// ```no_run
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use onceward::store::postgres::PostgresStore;
///
/// let store = PostgresStore::builder("postgres://shop@db1,db2/shop")?.without_migrations().open().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is opened before `open` is called"]
#[derive(Clone)]
pub struct PostgresStoreBuilder {
    address: Address,
    dialect: Dialect,
    codec: Codec,
    lanes: usize,
    batch: usize,
    is_unprepared: bool,
    accepts_relaxed: bool,
    migrates: bool,
}

impl PostgresStoreBuilder {
    /// How many connections write first claims, and as many again all else, by default.
    pub const LANES: usize = 4;

    pub(super) fn new(address: Address) -> Self {
        Self {
            dialect: address.dialect,
            address,
            codec: Codec::new(Watch::new(Arc::new(HostClock))),
            lanes: Self::LANES,
            batch: 256,
            is_unprepared: false,
            accepts_relaxed: false,
            migrates: true,
        }
    }

    /// How the server speaks: as `dialect=wire` in the address says, and as PostgreSQL if that says nothing.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Hides answers from a reader of the database without the key; `onceward::seal::Keyring` (feature
    /// `encryption`) is such a seal.
    ///
    /// The database has no key: of an answer that SQL functions write, the status alone is stored.
    pub fn seal(mut self, seal: Arc<dyn Seal>) -> Self {
        self.codec.set_seal(seal);
        self
    }

    /// What the server's clock is compared with, by its [`steady`](Clock::steady) time; the host's if not
    /// said. Times are the server's in any case.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.codec.set_watch(Watch::new(clock));
        self
    }

    /// How many connections write first claims, and as many again write all else: 1 to 64, 4 if not
    /// said. Changes that wait are written together; more connections make smaller groups.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = lanes;
        self
    }

    /// How many changes one statement makes at most: 1 to 1,000, 256 if not said.
    pub fn batch(mut self, batch: usize) -> Self {
        self.batch = batch;
        self
    }

    /// For PgBouncer in transaction mode and other poolers that give each transaction another
    /// connection: nothing is prepared, no setting belongs to a session, and waiters ask the store
    /// instead of listening. The same as `prepare=off` in the address.
    pub fn unprepared(mut self) -> Self {
        self.is_unprepared = true;
        self
    }

    /// Takes a server that may lose what it acknowledged: without `fsync` or `full_page_writes`, with
    /// asynchronous standbys that may be promoted, or with a `synchronous_commit` that does not wait.
    pub fn accept_relaxed(mut self) -> Self {
        self.accepts_relaxed = true;
        self
    }

    /// Leaves the tables as they are: a database that has none, or older ones, is refused with
    /// [`OpenError::Outdated`]. For operators who run `onceward migrate` before they deploy.
    pub fn without_migrations(mut self) -> Self {
        self.migrates = false;
        self
    }

    /// Connects, brings the tables up to date if they are not, and checks what the server promises.
    ///
    /// Must be called inside a tokio runtime, on which the store's connections live from then on.
    pub async fn open(self) -> Result<PostgresStore, OpenError> {
        let how = self.how()?;
        let mut link = Link::open(&how).await?;
        let mut tables = Tables::read(&link, self.dialect).await?;
        // A role that may only use the tables must not need the right to make them.
        if self.migrates && tables.found < tables.newest {
            schema::migrate(&mut link, self.dialect).await?;
            tables = Tables::read(&link, self.dialect).await?;
        }
        tables.check()?;
        let durability = Durability::read(&link, self.dialect).await?;
        if let Some(durability) = &durability
            && !self.accepts_relaxed
        {
            let weaknesses = durability.weaknesses(self.address.promotes);
            if !weaknesses.is_empty() {
                return Err(OpenError::Relaxed(weaknesses.join("; ")));
            }
        }
        // The server's clock is trusted as it is now.
        sweep::look_at_clock(&link, &self.codec)
            .await
            .map_err(|error| OpenError::Failed(error.to_string()))?;
        Ok(PostgresStore::start(how, self.codec, (self.lanes, self.batch), durability))
    }

    /// Makes or updates the tables, all of it or nothing, and touches no other schema.
    ///
    /// [`open`](Self::open) does the same by itself, unless an option says otherwise.
    pub async fn migrate(self) -> Result<Tables, OpenError> {
        schema::migrate(&mut self.link().await?, self.dialect).await
    }

    /// Reads which version the tables have, and changes nothing.
    pub async fn tables(self) -> Result<Tables, OpenError> {
        Tables::read(&self.link().await?, self.dialect).await
    }

    /// The migrations that the tables lack, as in [`MIGRATIONS`](super::MIGRATIONS); changes nothing.
    ///
    /// ```no_run
    /// # async fn print() -> Result<(), Box<dyn std::error::Error>> {
    /// use onceward::store::postgres::PostgresStore;
    ///
    /// for (name, text) in PostgresStore::builder("postgres://owner@db/shop")?.missing().await? {
    ///     println!("-- {name}\nBEGIN;\n{text}\nCOMMIT;");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn missing(self) -> Result<Vec<(&'static str, &'static str)>, OpenError> {
        schema::missing(&self.link().await?, self.dialect).await
    }

    /// Reads what the server promises, and changes nothing. `None`: this dialect cannot tell.
    pub async fn durability(self) -> Result<Option<Durability>, OpenError> {
        Durability::read(&self.link().await?, self.dialect).await
    }

    async fn link(&self) -> Result<Link, OpenError> {
        Link::open(&self.how()?).await
    }

    fn how(&self) -> Result<Arc<ConnectOptions>, OpenError> {
        for (option, value, most) in [("lanes", self.lanes, 64), ("batch", self.batch, 1000)] {
            if !(1..=most).contains(&value) {
                return Err(OpenError::Failed(format!("`{option}` is {value}, not 1 to {most}")));
            }
        }
        Ok(Arc::new(ConnectOptions {
            tls: tls::connector(&self.address)?,
            dialect: self.dialect,
            prepares: self.address.prepares && !self.is_unprepared,
            accepts_relaxed: self.accepts_relaxed,
            address: self.address.clone(),
            heard: OnceLock::new(),
            latest: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
            silent: AtomicUsize::new(0),
        }))
    }
}
