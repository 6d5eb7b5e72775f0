//! Many records at once, written by the server itself.

use tokio_postgres::NoTls;

use crate::{
    Failure,
    postgres::{
        script::Sample,
        site::{BenchDatabase, Site},
    },
    progress::Progress,
};

/// How many records one statement writes.
const STEP: u64 = 100_000;

/// When the records of a table end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// They are kept for another day.
    Fresh,
    /// They may be deleted.
    Expired,
}

/// Fills an empty table with ended records; their digests are in no order.
///
/// Pages are filled as they are when all of their records have ended: no new one finds room in them. The
/// indexes are made when the rows are there, which is many times faster.
pub(crate) fn fill(
    site: &Site,
    place: &BenchDatabase,
    sample: &Sample,
    records: u64,
    age: Age,
) -> Result<(), Failure> {
    let mut progress = Progress::new(format!("filling {records} records"), records);
    let fillfactor = "SELECT split_part(reloptions[1], '=', 2) FROM pg_class \
                      WHERE oid = 'onceward.record'::regclass";
    let fillfactor = place.sql(fillfactor)?;
    // Not by `psql`, which is given a minute: some of it takes longer.
    let sql = |text: &str| site.runtime.block_on(sql(place.url(), text));
    sql("ALTER TABLE onceward.record DROP CONSTRAINT record_pkey")?;
    sql("DROP INDEX onceward.record_sweep_after")?;
    sql("ALTER TABLE onceward.record SET (fillfactor = 100)")?;
    let mut done = 0;
    while done < records {
        let until = (done + STEP).min(records);
        sql(&insert(sample, done, until, age))?;
        done = until;
        progress.at(done);
    }
    for text in [
        "SET maintenance_work_mem = '512MB'; \
         ALTER TABLE onceward.record ADD CONSTRAINT record_pkey PRIMARY KEY (digest)",
        "CREATE INDEX record_sweep_after ON onceward.record (sweep_after)",
        &format!("ALTER TABLE onceward.record SET (fillfactor = {fillfactor})"),
        "VACUUM (ANALYZE) onceward.record",
        "CHECKPOINT",
    ] {
        sql(text)?;
    }
    progress.end();
    Ok(())
}

async fn sql(url: &str, text: &str) -> Result<(), Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client.batch_execute(text).await?)
}

/// Records with these numbers; the later ones are younger.
fn insert(sample: &Sample, from: u64, until: u64, age: Age) -> String {
    let born = match age {
        Age::Fresh => "1 hour",
        Age::Expired => "3 days",
    };
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    format!(
        "INSERT INTO onceward.record (digest, fence, execution, state, started_at, updated_at,
             expires_at, sweep_after, retain, scope, operation, body)
         SELECT sha256(int8send(n)), lpad(n::text, 32, '0')::uuid, lpad(n::text, 32, '1')::uuid, 3,
             born, born, born + interval '1 day', born + interval '25 hours', interval '1 day',
             {scope}, {operation}, {body}::bytea
         FROM (SELECT n, now() - interval '{born}' + n * interval '100 microseconds' AS born
             FROM generate_series({from}::int8, {last}::int8) n) numbered",
        scope = quoted(&sample.scope),
        operation = quoted(&sample.operation),
        body = quoted(&sample.answer),
        last = until - 1,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_and_numbers_are_not_taken_twice() {
        let sample = Sample {
            claim: "\\x00".into(),
            answer: "\\x01".into(),
            scope: "o'neill".into(),
            operation: "POST".into(),
        };
        let text = insert(&sample, 100, 200, Age::Expired);
        assert!(text.contains("'o''neill', 'POST', '\\x01'::bytea"), "{text}");
        assert!(text.contains("generate_series(100::int8, 199::int8)"), "{text}");
        assert!(text.contains("interval '3 days'"), "{text}");
    }
}
