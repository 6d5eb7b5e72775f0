//! What a service in any language does in SQL: it ends its operation inside its own transaction.

use std::time::Duration;

use onceward::{
    Effect, Ending, Engine, Outcome, State, Status, Store as _, Terms, Verdict,
    conformance::block_on,
    protocol::{Claim, Found, Keeps, Settled, Stored, StoredBody, conformance::Sample},
    store::{
        Spool as _, SpoolId,
        postgres::{PostgresStore, PostgresStoreBuilder},
    },
};
use sha2::{Digest as _, Sha256};
use testbed::Database;

use crate::support::age;

struct Shop {
    database: Database,
    store: PostgresStore,
    engine: Engine,
}

impl Shop {
    async fn open() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(options: impl FnOnce(PostgresStoreBuilder) -> PostgresStoreBuilder) -> Self {
        let database = testbed::postgres().database();
        let builder = PostgresStore::builder(database.url()).unwrap();
        let store = options(builder).open().await.unwrap();
        database.sql("CREATE TABLE charge (cents int)");
        Self { engine: Engine::new(store.clone()), store, database }
    }

    async fn claim(&self, sample: &Sample) -> Claim {
        match self.engine.admit(sample.request(b'a')).await.unwrap() {
            Verdict::Run(claim) => claim,
            other => panic!("expected to run: {other:?}"),
        }
    }

    /// What the service writes in one transaction: its charge, and the end of its operation.
    fn charge(&self, ending: &str) -> Result<String, String> {
        let transaction =
            format!("BEGIN; INSERT INTO charge VALUES (500); SELECT onceward.{ending}; COMMIT;");
        self.database.try_sql(&transaction).map_err(|trouble| trouble.to_string())
    }

    fn charges(&self) -> String {
        self.database.sql("SELECT count(*) FROM charge")
    }

    async fn stored(&self, claim: &Claim) -> Box<Stored> {
        match self.store.get(&claim.id()).await.unwrap() {
            Found::Record(stored) => stored,
            other => panic!("expected a record: {other:?}"),
        }
    }

    async fn answer(&self, sample: &Sample) -> Outcome {
        match self.engine.admit(sample.request(b'a')).await.unwrap() {
            Verdict::Replay(replay) => replay.outcome,
            other => panic!("expected an answer: {other:?}"),
        }
    }
}

/// As in the request header `Onceward-Execution`.
fn execution(claim: &Claim) -> String {
    format!("{}.{}", claim.id(), claim.execution())
}

#[track_caller]
fn refused(result: Result<String, String>, code: &str, words: &str) {
    let error = result.unwrap_err();
    assert!(error.contains(words), "{error}");
    assert!(error.contains(code) || code.is_empty(), "{error}");
}

#[test]
fn effect_and_answer_commit_together_and_are_replayed_verbatim() {
    block_on(async {
        let shop = Shop::open().await;
        // Lengths that need every form of a length, and bytes that are no text.
        for (bytes, headers) in [(0, 0), (23, 1), (24, 2), (255, 11), (256, 12), (65_536, 30)] {
            let sample = Sample::new(Effect::Transactional);
            let claim = shop.claim(&sample).await;
            let body: Vec<u8> = (0..bytes).map(|at: u32| (at * 7).to_le_bytes()[0]).collect();
            let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
            let lines: Vec<_> = (0..headers)
                .map(|at| format!(r#"["X-Line", "{}é"]"#, "v".repeat(at * 20)))
                .collect();
            let text = format!(
                "complete('{}', 201, '[{}]', '\\x{hex}')",
                execution(&claim),
                lines.join(",")
            );
            shop.charge(&text).unwrap();
            let mut expected = Outcome::inline(201, body);
            for at in 0..headers {
                expected =
                    expected.header("x-line", format!("{}é", "v".repeat(at * 20)).as_bytes());
            }
            assert_eq!(shop.answer(&sample).await, expected);
            let stored = shop.stored(&claim).await;
            assert_eq!(stored.record.execution, claim.execution());
            assert_ne!(stored.record.fence, claim.fence(), "the fence has moved");
            let left = stored.expires_at().unwrap().since(stored.updated_at);
            assert_eq!(left, sample.terms.retain(), "remembered as its claim said");
        }
        assert_eq!(shop.charges(), "6");
        assert_eq!(shop.database.sql("SELECT count(*) FROM onceward.open"), "0");
    });
}

#[test]
fn a_large_answer_is_kept_beside_its_record() {
    block_on(async {
        let shop = Shop::open().await;
        for bytes in [65_537, 262_144, 600_000] {
            let sample = Sample::new(Effect::Transactional);
            let claim = shop.claim(&sample).await;
            let body = vec![b'x'; bytes];
            let text = format!("convert_to(repeat('x', {bytes}), 'UTF8')");
            shop.charge(&format!("complete('{}', 201, '[]', {text})", execution(&claim))).unwrap();
            let digest = Sha256::digest(&body).into();
            let spooled = StoredBody::Spooled { length: bytes as u64, digest };
            assert_eq!(shop.answer(&sample).await.body, spooled);
            let fence = shop.stored(&claim).await.record.fence;
            let id = SpoolId { operation: claim.id(), fence };
            let mut read = Vec::new();
            for index in 0.. {
                let Some(chunk) = shop.store.chunk(&id, index).await.unwrap() else { break };
                read.extend_from_slice(&chunk);
            }
            assert!(read == body, "{bytes} bytes");
        }
        let largest = shop.database.sql("SELECT max(length(body)) < 4096 FROM onceward.record");
        assert_eq!(largest, "t", "who reads many records does not read their answers");
    });
}

#[test]
fn an_answer_without_headers_and_body_is_enough() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        shop.charge(&format!("complete('{}', 204)", execution(&claim))).unwrap();
        assert_eq!(shop.answer(&sample).await, Outcome::inline(204, Vec::new()));
    });
}

#[test]
fn a_committed_refusal_is_final_and_a_retryable_failure_is_not() {
    block_on(async {
        let shop = Shop::open().await;
        for ending in ["complete('%', 402)", "fail('%', false, 402)"] {
            let sample = Sample::new(Effect::Transactional);
            let claim = shop.claim(&sample).await;
            shop.charge(&ending.replace('%', &execution(&claim))).unwrap();
            assert_eq!(shop.stored(&claim).await.status(), Status::FailedFinal);
            assert_eq!(shop.answer(&sample).await.status, 402);
        }
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        shop.charge(&format!("fail('{}', true)", execution(&claim))).unwrap();
        assert_eq!(shop.stored(&claim).await.record.state, State::FailedRetryable);
        assert_eq!(shop.claim(&sample).await.attempt(), 2, "the next request runs it again");
    });
}

/// The claim says what may be stored, and SQL stores no more: neither of a success nor of a failure.
#[test]
fn what_is_not_to_be_kept_is_not_stored() {
    block_on(async {
        let plain = Shop::open().await;
        #[cfg(feature = "encryption")]
        let sealed = {
            let keys = std::sync::Arc::new(onceward::seal::Keyring::new([7; 32]));
            Shop::with(|builder| builder.seal(keys)).await
        };
        let location = || vec![("location".into(), (*b"/charges/7").into())];
        for (shop, keeps, headers) in [
            (&plain, Keeps::StatusAndLocation, location()),
            (&plain, Keeps::Status, Vec::new()),
            #[cfg(feature = "encryption")]
            (&sealed, Keeps::Everything, Vec::new()),
            #[cfg(feature = "encryption")]
            (&sealed, Keeps::StatusAndLocation, Vec::new()),
        ] {
            for (ending, status) in [("complete('%', 201,", 201), ("fail('%', false, 402,", 402)] {
                let terms = Terms::of(Effect::Transactional).keeps(keeps).build().unwrap();
                let sample = Sample::new(Effect::Transactional).on(terms);
                let claim = shop.claim(&sample).await;
                let lines = r#"[["X-Token", "a secret line"], ["LOCATION", "/charges/7"], ["Location", "/other"]]"#;
                let ending = ending.replace('%', &execution(&claim));
                shop.charge(&format!("{ending} '{lines}', 'a secret body')")).unwrap();
                let answer = shop.answer(&sample).await;
                assert_eq!((answer.status, answer.body), (status, StoredBody::Unavailable));
                assert_eq!(answer.headers, headers, "{keeps:?}");
                assert_eq!(shop.stored(&claim).await.record.keeps, keeps);
            }
            let shown = "SELECT count(*) FROM onceward.record WHERE position('secret' IN body) > 0";
            assert_eq!(shop.database.sql(shown), "0", "{keeps:?}");
        }
        let sample = Sample::new(Effect::Transactional);
        let claim = plain.claim(&sample).await;
        let whole = format!("complete('{}', 201, '[]', 'a secret body')", execution(&claim));
        plain.charge(&whole).unwrap();
        let shown = "SELECT count(*) FROM onceward.record WHERE position('secret' IN body) > 0";
        assert_eq!(plain.database.sql(shown), "1", "this test would notice");
    });
}

/// An open record tells what may be kept by its last bytes, and no other record looks like that.
#[test]
fn a_record_that_was_renewed_or_taken_over_still_says_what_may_be_kept() {
    block_on(async {
        let shop = Shop::open().await;
        let terms = Terms::of(Effect::Transactional).keeps(Keeps::Status).build().unwrap();
        let sample = Sample::new(Effect::Transactional).on(terms);
        let first = shop.claim(&sample).await;
        shop.engine.renew(&first).await.unwrap();
        age(&shop.database, &first.id(), Duration::from_secs(3600)).await;
        let second = shop.claim(&sample).await;
        shop.engine.settle(second.clone(), Ending::Unknown).await.unwrap();
        shop.charge(&format!("complete('{}', 201, '[]', 'x')", execution(&second))).unwrap();
        assert_eq!(shop.answer(&sample).await.body, StoredBody::Unavailable);
    });
}

#[test]
fn what_is_rolled_back_leaves_the_operation_open() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        let text = execution(&claim);
        shop.database.sql(&format!(
            "BEGIN; INSERT INTO charge VALUES (500); SELECT onceward.complete('{text}', 201); ROLLBACK;"
        ));
        assert_eq!(shop.stored(&claim).await.status(), Status::InProgress);
        assert_eq!(shop.charges(), "0");
        shop.charge(&format!("complete('{text}', 201)")).unwrap();
        assert_eq!(shop.charges(), "1");
    });
}

#[test]
fn an_execution_that_was_taken_over_cannot_commit_its_effect() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let first = shop.claim(&sample).await;
        age(&shop.database, &first.id(), Duration::from_secs(3600)).await;
        let second = shop.claim(&sample).await;
        let late = shop.charge(&format!("complete('{}', 201)", execution(&first)));
        refused(late, "", "this execution is over");
        assert_eq!(shop.charges(), "0", "the whole transaction was undone");
        shop.charge(&format!("complete('{}', 201)", execution(&second))).unwrap();
        let again = shop.charge(&format!("complete('{}', 201)", execution(&second)));
        refused(again, "", "this execution is over");
        assert_eq!(shop.charges(), "1");
    });
}

#[test]
fn a_lease_that_is_over_does_not_keep_the_owner_from_committing() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        age(&shop.database, &claim.id(), Duration::from_secs(3600)).await;
        shop.charge(&format!("complete('{}', 201)", execution(&claim))).unwrap();
        assert_eq!(shop.answer(&sample).await.status, 201);
    });
}

#[test]
fn the_late_truth_wins_over_an_unknown_outcome() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::External);
        let claim = shop.claim(&sample).await;
        let settled = shop.engine.settle(claim.clone(), Ending::Unknown).await.unwrap();
        assert!(matches!(settled, Settled::Stored { .. }));
        shop.charge(&format!("complete('{}', 201)", execution(&claim))).unwrap();
        assert_eq!(shop.answer(&sample).await.status, 201);
    });
}

#[test]
fn another_operations_execution_is_refused() {
    block_on(async {
        let shop = Shop::open().await;
        let (one, other) = (Sample::new(Effect::Transactional), Sample::new(Effect::Transactional));
        let (one, other) = (shop.claim(&one).await, shop.claim(&other).await);
        let mixed = format!("{}.{}", one.id(), other.execution());
        refused(shop.charge(&format!("complete('{mixed}', 201)")), "", "this execution is over");
        assert_eq!(shop.charges(), "0");
    });
}

#[test]
fn arguments_that_cannot_be_used_are_named() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        let own = execution(&claim);
        for (call, words) in [
            ("complete('nonsense', 201)".to_owned(), "Pass the value of the request header"),
            ("complete(NULL, 201)".to_owned(), "must not be null"),
            (format!("complete('{own}', 99)"), "99 is not the status of an answer"),
            (format!("complete('{own}', 201, '{{}}')"), "headers must be an array of pairs"),
            (format!("complete('{own}', 201, '[[\"a\"]]')"), "must be a pair of texts"),
            (format!("complete('{own}', 201, '[[\"a b\", \"c\"]]')"), "the header line a b"),
            (format!("complete('{own}', 201, '[[\"a\", \"b\\nc\"]]')"), "the header line a"),
            (
                format!("complete('{own}', 201, '[]', decode(repeat('00', 8388609), 'hex'))"),
                "at most 8388608",
            ),
            (
                format!(
                    "complete('{own}', 201, jsonb_build_array(jsonb_build_array('a', repeat('b', 40000))))"
                ),
                "at most 32768",
            ),
            (format!("fail('{own}', false)"), "needs a status"),
            (format!("fail('{own}', NULL)"), "must not be null"),
            ("first_time('shop', NULL)".to_owned(), "are needed"),
            ("first_time('shop', 'm', interval '0')".to_owned(), "are needed"),
        ] {
            refused(shop.charge(&call), "", words);
        }
        assert_eq!(shop.charges(), "0");
        assert_eq!(shop.stored(&claim).await.status(), Status::InProgress, "nothing was lost");
    });
}

#[test]
fn only_members_of_the_role_may_call_and_nobody_may_read() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        let name = format!("shop_{}", fastrand::u32(..));
        shop.database.sql(&format!("CREATE ROLE {name}"));
        let run = |sql: &str| {
            let text = format!("SET ROLE {name}; {sql}");
            shop.database.try_sql(&text).map_err(|trouble| trouble.to_string())
        };
        let complete = format!("SELECT onceward.complete('{}', 201)", execution(&claim));
        refused(run(&complete), "", "permission denied");
        shop.database.sql(&format!("GRANT onceward_app TO {name}"));
        for forbidden in [
            "SELECT body FROM onceward.record",
            "SELECT onceward.settle('x', 3::smallint, '', '', '', '')",
            "UPDATE onceward.record SET state = 5",
        ] {
            refused(run(forbidden), "", "permission denied");
        }
        run(&complete).unwrap();
        run("SELECT onceward.first_time('shop', 'm1')").unwrap();
        assert_eq!(shop.answer(&sample).await.status, 201);
        shop.database.sql(&format!("REVOKE onceward_app FROM {name}; DROP ROLE {name}"));
    });
}

#[test]
fn a_weaker_synchronous_commit_is_raised_inside_the_transaction() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        let shown = shop.database.sql(&format!(
            "SET synchronous_commit = off; BEGIN; SELECT onceward.complete('{}', 201); SHOW synchronous_commit; COMMIT; SHOW synchronous_commit",
            execution(&claim)
        ));
        let shown: Vec<_> = shown.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(shown, ["on", "off"], "for this transaction only");
    });
}

#[test]
fn a_message_comes_for_the_first_time_once() {
    block_on(async {
        let shop = Shop::open().await;
        let first = |consumer: &str, message: &str| {
            shop.database.sql(&format!("SELECT onceward.first_time('{consumer}', '{message}')"))
        };
        assert_eq!(first("billing", "m1"), "t");
        assert_eq!(first("billing", "m1"), "f");
        assert_eq!((first("billing", "m2"), first("mail", "m1")), ("t".into(), "t".into()));
        shop.database.sql("BEGIN; SELECT onceward.first_time('billing', 'm3'); ROLLBACK;");
        assert_eq!(first("billing", "m3"), "t", "what was rolled back never came");
        shop.database.sql("UPDATE onceward.inbox SET expires_at = clock_timestamp() - interval '2 hours' WHERE message_id = 'm1'");
        assert_eq!(first("billing", "m1"), "t", "remembered no longer than promised");
        shop.store.sweep(100).await.unwrap();
        assert_eq!(shop.database.sql("SELECT count(*) FROM onceward.inbox"), "3");
    });
}

#[test]
fn a_damaged_record_is_not_ended_by_sql() {
    block_on(async {
        let shop = Shop::open().await;
        let sample = Sample::new(Effect::Transactional);
        let claim = shop.claim(&sample).await;
        shop.database
            .sql("UPDATE onceward.record SET body = set_byte(body, 20, 255 - get_byte(body, 20))");
        let text = format!("complete('{}', 201)", execution(&claim));
        refused(shop.charge(&text), "", "is damaged");
        assert!(matches!(shop.store.get(&claim.id()).await, Ok(Found::Unreadable { .. })));
        assert_eq!(shop.charges(), "0");
    });
}
