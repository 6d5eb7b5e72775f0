//! What is said when a database cannot be opened, and what it takes to open one.

use std::path::Path;

use onceward::{
    Effect, Engine, Verdict,
    conformance::block_on,
    protocol::conformance::Sample,
    store::postgres::{MIGRATIONS, OpenError, PostgresStore},
};
use testbed::{Installation, Server};

fn private(settings: &[(&str, &str)]) -> Server {
    Server::start(&Installation::preferred().unwrap(), settings).unwrap()
}

async fn refused(url: &str) -> OpenError {
    match PostgresStore::connect(url).await {
        Ok(store) => panic!("{store:?} was opened"),
        Err(error) => error,
    }
}

#[track_caller]
fn says(error: &OpenError, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn a_wrong_password_a_missing_database_and_a_dead_server_are_told_apart() {
    block_on(async {
        let server = private(&[]);
        let url = server.login("shop", "right", "postgres");
        let error = refused(&url.replace("right", "wr0ng")).await;
        assert!(matches!(error, OpenError::Refused(_)), "{error:?}");
        says(&error, &["password authentication failed", "check user, password and database"]);
        assert!(!error.to_string().contains("wr0ng"), "no message holds a password: {error}");
        let error = refused(&server.url("nowhere")).await;
        assert!(matches!(error, OpenError::Refused(_)), "{error:?}");
        says(&error, &["database \"nowhere\" does not exist"]);
        let url = server.url("postgres");
        server.stop();
        let error = refused(&url).await;
        assert!(matches!(error, OpenError::Unreachable(_)), "{error:?}");
        says(&error, &["no PostgreSQL server that takes writes could be reached"]);
    });
}

#[test]
fn a_server_that_takes_no_writes_is_not_a_primary() {
    block_on(async {
        let server = private(&[]);
        let standby = server.add_standby("s1").unwrap();
        let error = refused(&standby.url("postgres")).await;
        assert!(matches!(error, OpenError::Unreachable(_)), "{error:?}");
        says(&error, &["takes writes"]);
    });
}

#[test]
fn a_server_that_may_lose_what_it_acknowledged_is_refused_unless_that_is_accepted() {
    block_on(async {
        let server = private(&[("fsync", "off"), ("full_page_writes", "off")]);
        let url = server.url("postgres");
        let error = refused(&url).await;
        assert!(matches!(error, OpenError::Relaxed(_)), "{error:?}");
        says(&error, &["fsync is off", "full_page_writes is off", "accept_relaxed"]);
        let relaxed = PostgresStore::builder(&url).unwrap().accept_relaxed().open().await.unwrap();
        assert!(!relaxed.durability().unwrap().fsync);
    });
}

#[test]
fn asynchronous_standbys_are_refused_unless_none_is_ever_promoted() {
    block_on(async {
        let server = private(&[]);
        let _standby = server.add_standby("s1").unwrap();
        let url = server.url("postgres");
        let error = refused(&url).await;
        assert!(matches!(error, OpenError::Relaxed(_)), "{error:?}");
        says(
            &error,
            &["it replicates asynchronously", "synchronous_standby_names", "promotion=never"],
        );
        PostgresStore::connect(&format!("{url}?promotion=never")).await.unwrap();
        server.make_synchronous(&["s1"]);
        let store = PostgresStore::connect(&url).await.unwrap();
        assert!(!store.durability().unwrap().standbys.is_empty());
    });
}

/// Writes down, when a transaction that claimed something is about to be committed, how that is done.
const WITNESS: &str = "
    CREATE TABLE witness (setting text);
    GRANT INSERT ON witness TO shop;
    CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.witness VALUES (current_user || ' ' || current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER witness AFTER INSERT ON onceward.record
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION witness()";

#[test]
fn a_weaker_synchronous_commit_of_the_role_is_raised() {
    block_on(async {
        let server = private(&[]);
        let url = server.login("shop", "secret", "postgres");
        server.sql("GRANT CREATE ON DATABASE postgres TO shop; ALTER ROLE shop SET synchronous_commit = off");
        let store = PostgresStore::connect(&url).await.unwrap();
        assert_eq!(store.durability().unwrap().synchronous_commit, "off", "as the role has it");
        // What a role that may not make the role `onceward_app` is told is a notice, and no error.
        assert_eq!(server.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'onceward_app'"), "0");

        server.sql(WITNESS);
        let relaxed = PostgresStore::builder(&url).unwrap().accept_relaxed().open().await.unwrap();
        for (store, seen) in [(store, "shop on"), (relaxed, "shop off")] {
            let sample = Sample::new(Effect::Transactional);
            let verdict = Engine::new(store).admit(sample.request(b'a')).await.unwrap();
            assert!(matches!(verdict, Verdict::Run(_)), "{verdict:?}");
            assert_eq!(server.sql("DELETE FROM witness RETURNING setting"), seen);
        }
    });
}

#[test]
fn tables_of_other_versions_and_of_others_are_told_apart() {
    block_on(async {
        let server = private(&[]);
        let database = server.database();
        let url = database.url();
        let builder = || PostgresStore::builder(url).unwrap();
        let error = builder().without_migrations().open().await.unwrap_err();
        assert!(matches!(error, OpenError::Outdated { found: 0, .. }), "{error:?}");
        says(&error, &["no tables of Onceward", "onceward migrate"]);

        let newest = u32::try_from(MIGRATIONS.len()).unwrap();
        let tables = builder().migrate().await.unwrap();
        assert_eq!((tables.found, tables.newest), (0, newest));
        assert_eq!(builder().tables().await.unwrap().found, newest);
        assert_eq!(builder().migrate().await.unwrap().found, newest, "a second run does nothing");
        builder().without_migrations().open().await.unwrap();

        let login = server.login("reader", "secret", database.name());
        let error = PostgresStore::builder(&login).unwrap().open().await.unwrap_err();
        assert!(matches!(error, OpenError::NotAllowed(_)), "{error:?}");
        says(&error, &["GRANT USAGE ON SCHEMA onceward"]);
        database.sql(
            "GRANT USAGE ON SCHEMA onceward TO reader;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onceward TO reader",
        );
        PostgresStore::connect(&login).await.unwrap();

        database.sql("INSERT INTO onceward.migration (version) VALUES (99)");
        let error = builder().open().await.unwrap_err();
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error:?}");
        // During an upgrade older processes are started on newer tables, if those say that they may be.
        database.sql("UPDATE onceward.migration SET needs = 1 WHERE version = 99");
        builder().open().await.unwrap();
        assert_eq!(builder().migrate().await.unwrap().found, newest, "nothing is made older");
        database.sql("DELETE FROM onceward.migration WHERE version > 1");
        let error = builder().without_migrations().open().await.unwrap_err();
        assert!(matches!(error, OpenError::Outdated { found: 1, .. }), "{error:?}");
    });
}

#[test]
fn plain_sql_files_do_what_a_migration_does() {
    block_on(async {
        let database = testbed::postgres().database();
        for (_, text) in MIGRATIONS {
            database.sql(&format!("BEGIN; {text}; COMMIT;"));
        }
        let store = PostgresStore::builder(database.url()).unwrap().without_migrations().open();
        store.await.unwrap();
    });
}

#[test]
fn many_that_start_together_migrate_once() {
    block_on(async {
        let database = testbed::postgres().database();
        let starts = (0..12).map(|_| {
            let url = database.url().to_owned();
            tokio::spawn(async move { PostgresStore::connect(&url).await.map(drop) })
        });
        for start in starts.collect::<Vec<_>>() {
            start.await.unwrap().unwrap();
        }
        let count = database.sql("SELECT count(*) FROM onceward.migration");
        assert_eq!(count, MIGRATIONS.len().to_string());
    });
}

/// A certificate for `localhost` of an authority of our own; the server is reached as 127.0.0.1 too.
#[test]
fn the_server_is_known_by_its_certificate() {
    block_on(async {
        let server = private(&[]);
        let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/postgres/open");
        for name in ["server.pem", "server.key"] {
            let text = std::fs::read_to_string(files.join(name)).unwrap();
            let text = text.trim().replace('\n', "\\n");
            server.sql(&format!(
                "COPY (SELECT 1) TO PROGRAM $$umask 077; cat > /dev/null; printf '%b\\n' '{text}' > {name}$$"
            ));
        }
        // The packages of some versions come without it.
        if let Err(trouble) = server.try_sql("ALTER SYSTEM SET ssl = on")
            && trouble.to_string().contains("SSL is not supported by this build")
        {
            return println!("skipped: this PostgreSQL was built without TLS");
        }
        server.set("ssl_cert_file", "server.pem");
        server.set("ssl_key_file", "server.key");
        server.set("ssl", "on");
        server.restart();

        let port = server.port();
        let url = |host: &str, options: &str| {
            format!("postgres://postgres@{host}:{port}/postgres?{options}")
        };
        let root = format!("sslrootcert={}", files.join("authority.pem").display());
        for (host, options) in [
            ("localhost", format!("sslmode=verify-full&{root}")),
            ("127.0.0.1", format!("sslmode=verify-ca&{root}")),
            ("127.0.0.1", format!("sslmode=require&{root}")),
            ("127.0.0.1", "sslmode=require".to_owned()),
            ("127.0.0.1", "sslmode=prefer".to_owned()),
        ] {
            PostgresStore::connect(&url(host, &options)).await.unwrap();
            let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'onceward'";
            assert_ne!(server.sql(encrypted), "f", "{host} {options}");
        }
        for (host, options) in [
            ("127.0.0.1", format!("sslmode=verify-full&{root}")),
            ("localhost", "sslmode=verify-full".to_owned()),
        ] {
            let error = refused(&url(host, &options)).await;
            says(&error, &["certificate"]);
        }
        let error = refused(&url("localhost", "sslmode=verify-full&sslrootcert=missing.pem")).await;
        says(&error, &["names a file in `sslrootcert` that is not there"]);
    });
}
