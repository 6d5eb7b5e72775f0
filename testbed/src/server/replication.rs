//! Standbys: made, waited for, promoted, and joined again after they were primary.

use std::fs;

use super::Server;
use crate::home::Home;
use crate::tool::{Trouble, run, wait_for};

impl Server {
    /// Starts a standby that follows this server under a name, with a slot of that name.
    ///
    /// ```no_run
    /// # let installation = testbed::Installation::preferred()?;
    /// let primary = testbed::Server::start(&installation, &[])?;
    /// let standby = primary.add_standby("s1")?;
    /// primary.make_synchronous(&["s1"]);
    /// primary.sql("CREATE TABLE charge (amount bigint)");
    /// primary.kill();
    /// standby.promote();
    /// assert_eq!(standby.sql("SELECT count(*) FROM charge"), "0");
    /// # Ok::<(), testbed::Trouble>(())
    /// ```
    ///
    /// # Errors
    ///
    /// With the words of the program that failed.
    pub fn add_standby(&self, name: &str) -> Result<Self, Trouble> {
        let standby = Self::new(name, &self.installation, Home::new()?)?;
        self.prepare_slot(name)?;
        let mut copy = standby.tool("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"]);
        copy.args(["-R", "-X", "stream", "-S", name, "-c", "fast", "--no-sync"]);
        run(copy.arg("-D").arg(standby.data()), "")?;
        standby.bring_up()
    }

    /// Lets every commit wait for these standbys to have applied it, and waits until they follow.
    ///
    /// # Panics
    ///
    /// When they do not.
    #[track_caller]
    pub fn make_synchronous(&self, standbys: &[&str]) {
        self.expect_standbys(standbys);
        let wanted = standbys.len().to_string();
        wait_for("the standbys do not follow synchronously", || {
            let states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            Ok((self.try_sql(states)? == wanted).then_some(()))
        })
        .unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name));
    }

    /// Lets every commit wait for these standbys from now on, also if none of them follows yet; with none,
    /// commits wait for nobody. A standby may be told before it is promoted.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[track_caller]
    pub fn expect_standbys(&self, standbys: &[&str]) {
        let names = match standbys {
            [] => String::new(),
            some => format!("FIRST {} ({})", some.len(), some.join(", ")),
        };
        self.set("synchronous_commit", "remote_apply");
        self.set("synchronous_standby_names", &names);
        // A setting takes effect in every program a moment after it was read.
        wait_for("the setting does not take effect", || {
            let now = self.try_sql("SHOW synchronous_standby_names")?;
            Ok((now == names).then_some(()))
        })
        .unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name));
    }

    /// Makes a standby the primary, and waits until it takes writes.
    ///
    /// # Panics
    ///
    /// When it does not become one.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote(true, 60)"), "t", "{} was not promoted", self.name);
    }

    /// Lets a server that was primary, and is down, follow the new primary; what it alone had is lost.
    ///
    /// # Panics
    ///
    /// With the words of `pg_rewind`, or of the server when it does not come up.
    #[track_caller]
    pub fn rejoin(&self, primary: &Self) {
        self.try_rejoin(primary).unwrap_or_else(|trouble| panic!("{}: {trouble}", self.name));
    }

    fn try_rejoin(&self, primary: &Self) -> Result<(), Trouble> {
        // Only a checkpoint tells `pg_rewind` that the new primary has a timeline of its own.
        primary.try_sql("CHECKPOINT")?;
        let mut rewind = self.tool("pg_rewind");
        let source = format!("host=127.0.0.1 port={} user=postgres dbname=postgres", primary.port);
        rewind.args(["-R", "--no-sync", "--source-server", &source]);
        run(rewind.arg("-D").arg(self.data()), "")?;
        primary.prepare_slot(&self.name)?;
        // Slots that it had as a primary would keep its log forever.
        let _ = fs::remove_dir_all(self.data().join("pg_replslot"));
        fs::create_dir(self.data().join("pg_replslot"))
            .and_then(|()| crate::account::give(&self.data().join("pg_replslot")))
            .map_err(|error| Trouble::new(format!("pg_replslot: {error}")))?;
        self.launch()
    }

    /// Waits until a standby has applied everything that the primary has written so far.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn wait_for_standby(&self, standby: &Self) {
        let position = self.sql("SELECT pg_current_wal_flush_lsn()");
        let reached = format!("SELECT pg_last_wal_replay_lsn() >= '{position}'::pg_lsn");
        wait_for("the standby does not catch up", || {
            Ok((standby.try_sql(&reached)? == "t").then_some(()))
        })
        .unwrap_or_else(|trouble| panic!("{}: {trouble}", standby.name));
    }

    /// A new slot of this name, which keeps what its standby has not read yet.
    fn prepare_slot(&self, name: &str) -> Result<(), Trouble> {
        self.try_sql(&format!(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
               WHERE slot_name = '{name}';
             SELECT pg_create_physical_replication_slot('{name}', true);"
        ))
        .map(drop)
    }
}

/// The address of a database on whichever of these servers takes writes.
///
/// ```no_run
/// # let installation = testbed::Installation::preferred()?;
/// let primary = testbed::Server::start(&installation, &[])?;
/// let standby = primary.add_standby("s1")?;
/// let url = testbed::multi_host_url(&[&primary, &standby], "postgres");
/// assert!(url.ends_with("/postgres?target_session_attrs=read-write"));
/// # Ok::<(), testbed::Trouble>(())
/// ```
pub fn multi_host_url(servers: &[&Server], database: &str) -> String {
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
    format!("postgres://postgres@{}/{database}?target_session_attrs=read-write", hosts.join(","))
}
