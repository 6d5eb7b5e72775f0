//! Another role may create in the schema `public`, and plants there what statements could take for PostgreSQL's
//! own. Nothing of it is ever called: not by the store, its migrations, its functions, or in a user's transaction.

use std::{collections::BTreeSet, fs, future::Future, path::Path, sync::Arc, time::Duration};

use onceward::{
    Digest, Effect, Ending, Engine, Outcome, Store as _, Verdict,
    conformance::{block_on, spawn},
    protocol::{
        Claim,
        conformance::{self, Bench, Sample},
    },
    store::{
        KeptRoute, OnEnded, Spool as _, SpoolId, Trail as _, Transactional,
        postgres::{Dialect, MIGRATIONS, PostgresStore, PostgresStoreBuilder},
    },
};
use sqlx::Connection as _;
use testbed::Database;
use tokio_postgres::Client;

use crate::support::{EMPTY, Options, age_statement, connect};

mod messages;

const PINNED: &str = "SET search_path = pg_catalog;";

/// A database in which a role without rights has planted what it can.
#[derive(Clone)]
struct Planted {
    ground: Arc<Ground>,
    options: Options,
    dialect: Dialect,
}

struct Ground {
    /// `None`: dropped, before its roles can be.
    database: Option<Database>,
    /// The end of the names of its roles, which belong to the whole server.
    number: u32,
}

impl Ground {
    fn database(&self) -> &Database {
        self.database.as_ref().unwrap()
    }

    fn role(&self, name: &str) -> String {
        format!("{name}_{}", self.number)
    }

    fn url(&self, name: &str) -> String {
        let (_, place) = self.database().url().rsplit_once('@').unwrap();
        format!("postgres://{}:sesame@{place}", self.role(name))
    }

    /// As the administrator, who looks for names in no other place.
    fn sql(&self, text: &str) -> String {
        self.database().sql(&format!("{PINNED} {text}"))
    }

    /// With the plants in `public`, and in the schema that every usual path begins with: that of the user.
    fn planted() -> Self {
        let ground =
            Self { database: Some(testbed::postgres().database()), number: fastrand::u32(..) };
        let [gateway, service, mallory] =
            ["gateway", "service", "mallory"].map(|name| ground.role(name));
        ground.sql(&format!(
            "CREATE ROLE {gateway} LOGIN PASSWORD 'sesame';
             CREATE ROLE {service} LOGIN PASSWORD 'sesame'; CREATE ROLE {mallory};
             GRANT CREATE ON SCHEMA public TO {mallory};
             CREATE SCHEMA {gateway}; GRANT USAGE ON SCHEMA {gateway} TO PUBLIC;
             GRANT CREATE ON SCHEMA {gateway} TO {mallory};"
        ));
        let (functions, relations) = used_names();
        for schema in ["public", &gateway] {
            let plant = include_str!("planted/plant.sql")
                .replace("{schema}", schema)
                .replace("{is_odd}", if schema == "public" { "false" } else { "true" })
                .replace("{functions}", &format!("{{{}}}", functions.join(",")))
                .replace("{relations}", &format!("{{{}}}", relations.join(",")));
            ground.sql(&format!("SET ROLE {mallory}; {plant}"));
        }
        ground
    }

    /// Puts the plants before PostgreSQL's own, for every session that does not say otherwise.
    fn set_path(&self) {
        let path = format!("{}, public, pg_catalog", self.role("gateway"));
        self.sql(&format!("ALTER DATABASE {} SET search_path = {path}", self.database().name()));
        for role in ["gateway", "service"] {
            self.sql(&format!("ALTER ROLE {} SET search_path = {path}", self.role(role)));
        }
    }

    /// By the administrator, who has the most to lose; then what the guide grants.
    async fn migrate(&self) {
        PostgresStore::builder(self.database().url()).unwrap().migrate().await.unwrap();
        let guide = include_str!("../../../../docs/postgres.md");
        let (_, grants) = guide.split_once("```sql\n").unwrap();
        let (grants, _) = grants.split_once("```").unwrap();
        let [gateway, service] = ["gateway", "service"].map(|name| self.role(name));
        let grants = grants.replace("TO gateway", &format!("TO {gateway}"));
        assert!(grants.contains("GRANT EXECUTE ON FUNCTION onceward.swap"), "{grants}");
        self.sql(&grants.replace("TO shop_service", &format!("TO {service}")));
    }

    fn assert_nothing_was_called(&self, when: &str) {
        for schema in ["public", &self.role("gateway")] {
            let was_called = self.sql(&format!("SELECT is_called FROM {schema}.invoked"));
            assert_eq!(was_called, "f", "{when}, something in {schema} was called");
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.database.take());
        let [gateway, service, mallory] =
            ["gateway", "service", "mallory"].map(|name| self.role(name));
        let elsewhere = testbed::postgres().database();
        let _ = elsewhere.try_sql(&format!("DROP ROLE {gateway}, {service}, {mallory}"));
    }
}

/// What the sources call, and which of the server's tables they name: also what is written tomorrow.
fn used_names() -> (Vec<String>, Vec<String>) {
    let (mut functions, mut relations) = (BTreeSet::new(), BTreeSet::new());
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres");
    let sources = [sources.clone(), sources.join("queue")];
    let sources = sources.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let sources = sources.map(|file| file.unwrap().path()).filter(|path| path.is_file());
    let sources = sources.map(|path| fs::read_to_string(path).unwrap());
    let migrations = MIGRATIONS.iter().map(|(_, text)| (*text).to_owned());
    for text in sources.chain(migrations) {
        let is_name =
            |byte: char| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == '_';
        for (at, name) in text.split(|byte| !is_name(byte)).map(|name| (name.as_ptr(), name)) {
            let end = at as usize - text.as_ptr() as usize + name.len();
            if name.starts_with("pg_") {
                relations.insert(name.to_owned());
            }
            if text[end..].starts_with('(') && name.len() > 1 {
                functions.insert(name.to_owned());
            }
        }
    }
    for known in [
        "clock_timestamp",
        "set_config",
        "unnest",
        "length",
        "count",
        "pg_notify",
        "pg_snapshot_xip",
    ] {
        assert!(functions.contains(known), "{known} is not found any more");
    }
    assert!(relations.contains("pg_class"));
    (functions.into_iter().collect(), relations.into_iter().collect())
}

impl Bench for Planted {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        self.ground.sql(EMPTY);
        self.connect().await
    }

    async fn reopen(&self, store: PostgresStore) -> Option<PostgresStore> {
        drop(store);
        Some(self.connect().await)
    }

    async fn age(&self, _: &PostgresStore, id: &Digest, by: Duration) {
        self.ground.sql(&age_statement(id, by));
    }

    fn spawn<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        spawn(task)
    }
}

/// Rules of the suite that use every statement between them.
macro_rules! all_of {
    ($bench:expr; $($case:ident)*) => { $(conformance::$case($bench).await;)* };
}

impl Planted {
    async fn connect(&self) -> PostgresStore {
        let builder = PostgresStore::builder(&self.ground.url("gateway")).unwrap();
        (self.options)(builder.without_migrations().dialect(self.dialect)).open().await.unwrap()
    }

    /// Every statement of the store, on its own connections and on those of a user.
    async fn exercise(&self) {
        all_of! { self;
            ended_operations_are_replayed_verbatim
            abandoned_transactional_effect_is_taken_over
            late_truth_wins_over_unknown
            sweep_deletes_only_ended_records_past_the_margin
            of_200_first_requests_one_runs
            distinct_operations_do_not_disturb_each_other
            list_filters_by_what_a_record_means_now
            list_finds_a_key_in_every_scope_and_operation
            purge_deletes_only_ended_records
            spooled_chunks_are_kept_by_operation_and_fence
        }
        let store = self.connect().await;
        store.census().await.unwrap();
        if let Some(condition) = store.condition().await.unwrap() {
            assert_eq!(condition.lacking, [""; 0], "the guide grants what is needed");
        }
        store.sweep(10).await.unwrap();
        store.trail(&Digest([1; 32])).await.unwrap();
        let builder = || PostgresStore::builder(&self.ground.url("gateway")).unwrap();
        assert!(builder().tables().await.unwrap().found > 0);
        builder().durability().await.unwrap();
        hears(&store, &self.connect().await).await;
        self.exercise_transactions(&store).await;
    }

    /// On connections of the user's own, whose settings are not touched.
    async fn exercise_transactions(&self, store: &PostgresStore) {
        let engine = Engine::new(store.clone());
        let mut client = connect(&self.ground.url("gateway")).await;
        let ended = || Ending::Succeeded(Outcome::inline(201, b"paid".to_vec()));
        let patience = Duration::from_millis(50);
        let sample = Sample::new(Effect::Transactional);
        let begun = engine.begin_in(sample.request(b'a'), &mut client, patience).await;
        let (transaction, Verdict::Run(claim)) = begun.unwrap() else { panic!("it is new") };
        engine.commit(&claim, transaction, ended()).await.unwrap();
        let path = |client: Client| async move {
            client.query_one("SHOW search_path", &[]).await.unwrap().get::<_, String>(0)
        };
        let claim = claimed(&engine).await;
        let mut transaction = client.transaction().await.unwrap();
        let chunk = SpoolId { operation: claim.id(), fence: claim.fence() };
        store.put_in(&mut transaction, &chunk, 0, b"large").await.unwrap();
        engine.commit(&claim, transaction, ended()).await.unwrap();
        assert_eq!(store.chunk(&chunk, 0).await.unwrap().unwrap(), b"large");
        assert!(!path(client).await.starts_with("pg_catalog"), "it is the user's own");
        if self.dialect == Dialect::Wire {
            return;
        }
        let claim = claimed(&engine).await;
        let url = self.ground.url("gateway");
        let mut connection = sqlx::PgConnection::connect(&url).await.unwrap();
        let transaction = connection.begin().await.unwrap();
        engine.commit(&claim, transaction, ended()).await.unwrap();
        let service = connect(&self.ground.url("service")).await;
        let route = KeptRoute {
            template: format!("POST /{}", claim.execution()),
            path: "/pay".to_owned(),
            operation: "pay".to_owned(),
            parts: "tenant".to_owned(),
            ..KeptRoute::default()
        };
        assert!(store.keep_route(None, &route).await.unwrap());
        assert!(store.keep_route(Some(&route), &route).await.unwrap());
        assert!(store.routes().await.unwrap().contains(&route));
        store.living(None).await.unwrap();
        for call in [
            "complete('%', 201, '[[\"Location\", \"/7\"], [\"x-line\", \"a\"]]', '\\x00')",
            "fail('%', false, 402, '[]', '')",
            "fail('%', true)",
            "first_time('shop', '%')",
            "enqueue('order.placed', 'order-%', '\\x00', '[[\"x-line\", \"a\"]]', NULL, '2001-01-01Z', '9001-01-01Z', '%', '00')",
        ] {
            let claim = claimed(&engine).await;
            let call = call.replace('%', &format!("{}.{}", claim.id(), claim.execution()));
            service.batch_execute(&format!("SELECT onceward.{call}")).await.unwrap();
        }
        self.exercise_messages(store, &mut connection).await;
    }
}

async fn claimed(engine: &Engine) -> Claim {
    let sample = Sample::new(Effect::Transactional);
    match engine.admit(sample.request(b'a')).await.unwrap() {
        Verdict::Run(claim) => claim,
        other => panic!("it is new: {other:?}"),
    }
}

/// What is said between processes arrives, where there is a connection for it.
async fn hears(one: &PostgresStore, other: &PostgresStore) {
    let (Some(waits), Some(ends)) = (one.wake(), other.wake()) else { return };
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let heard: Arc<OnEnded> = Arc::new(move |id: &Digest| {
        let _ = sender.send(*id);
    });
    waits.listen(&heard);
    let id = Digest([1; 32]);
    let told = async {
        loop {
            waits.awaited(&id);
            tokio::time::sleep(Duration::from_millis(50)).await;
            ends.ended(&id);
            let hearing = tokio::time::timeout(Duration::from_millis(200), receiver.recv());
            if hearing.await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), told).await.unwrap();
}

#[test]
fn nothing_that_another_role_has_planted_is_called() {
    block_on(async {
        let ground = Arc::new(Ground::planted());
        ground.migrate().await;
        let modes: [(&str, Options, Dialect); 3] = [
            ("with sessions", |builder| builder, Dialect::Postgres),
            ("behind a pooler", PostgresStoreBuilder::unprepared, Dialect::Postgres),
            ("over the wire", PostgresStoreBuilder::unprepared, Dialect::Wire),
        ];
        let (_, options, dialect) = modes[0];
        Planted { ground: ground.clone(), options, dialect }.exercise().await;
        ground.assert_nothing_was_called("with the usual path");
        ground.set_path();
        ground.sql("DROP SCHEMA onceward CASCADE");
        ground.migrate().await;
        ground.assert_nothing_was_called("when the tables were made");
        for (name, options, dialect) in modes {
            Planted { ground: ground.clone(), options, dialect }.exercise().await;
            ground.assert_nothing_was_called(name);
        }
        let called = connect(&ground.url("service")).await;
        called.batch_execute("SELECT 1::int8 + 1::int8").await.unwrap_err();
        let counted =
            ground.sql(&format!("SELECT is_called FROM {}.invoked", ground.role("gateway")));
        assert_eq!(counted, "t", "this test would notice");
    });
}

/// Also of tables that an older version made, in a database whose defaults give rights to everybody.
#[test]
fn every_function_has_its_own_path_and_everybody_has_no_right() {
    block_on(async {
        let database = testbed::postgres().database();
        database.sql(
            "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;
             ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO PUBLIC;",
        );
        for (name, text) in &MIGRATIONS[..3] {
            assert!(database.try_sql(&format!("BEGIN; {text} COMMIT;")).is_ok(), "{name}");
        }
        let public = "SELECT count(*) FROM pg_class c, LATERAL aclexplode(c.relacl) AS granted
            WHERE c.relnamespace = 'onceward'::regnamespace AND granted.grantee = 0";
        assert_ne!(database.sql(public), "0", "this test would notice");
        PostgresStore::connect(database.url()).await.unwrap();
        assert_eq!(database.sql(public), "0");
        let others = "SELECT count(*) FROM pg_namespace n, LATERAL aclexplode(n.nspacl) AS granted
            WHERE n.nspname = 'onceward' AND granted.grantee = 0";
        assert_eq!(database.sql(others), "0");
        let functions = "FROM pg_proc WHERE pronamespace = 'onceward'::regnamespace";
        let unpinned = "NOT 'search_path=pg_catalog, pg_temp' = ANY (coalesce(proconfig, '{}'))";
        let unpinned = format!("SELECT proname {functions} AND {unpinned}");
        assert_eq!(database.sql(&unpinned), "");
        let open = format!(
            "SELECT proname {functions} AND has_function_privilege('pg_monitor', oid, 'EXECUTE')"
        );
        assert_eq!(database.sql(&open), "");
        let granted = format!(
            "SELECT string_agg(proname, ' ' ORDER BY proname) {functions}
             AND has_function_privilege('onceward_app', oid, 'EXECUTE')"
        );
        assert_eq!(database.sql(&granted), "complete enqueue fail first_time");
    });
}
