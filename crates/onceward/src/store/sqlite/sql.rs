//! Every statement that is sent to SQLite, in full.

/// Takes the write lock at once: a transaction that reads first and writes later could find its
/// snapshot outdated half-way.
pub(super) const BEGIN: &str = "BEGIN IMMEDIATE";
pub(super) const BEGIN_READING: &str = "BEGIN DEFERRED";
pub(super) const COMMIT: &str = "COMMIT";
pub(super) const ROLLBACK: &str = "ROLLBACK";

/// What the writer prepares before its first change.
pub(super) const OF_RECORDS: [&str; 8] =
    [INSERT, UPDATE, CLAIM_AFRESH, READ, DELETE, NOTE, PUT_CHUNK, DISCARD_CHUNKS];

/// What the sweeper prepares before its first step.
pub(super) const OF_SWEEPS: [&str; 9] = [
    SWEEPABLE,
    DELETE_SWEPT,
    KEEP_UNREADABLE,
    DISCARD_CHUNKS,
    OLD_CHUNKS,
    DELETE_CHUNK,
    SWEEP_INBOX,
    SUSPECT_CLOCK,
    CLOCK_SUSPECTED,
];

/// What a connection promises. It reads no table: that would begin a snapshot which the swap after it
/// might find outdated.
pub(super) const PROMISES: &str = "
    SELECT
        (SELECT synchronous FROM pragma_synchronous WHERE schema = 'main'),
        (SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'),
        (SELECT count(*) FROM pragma_database_list
         WHERE name NOT IN ('main', 'temp') AND file <> '')";

/// The names say `main`, because these are also sent on connections of the user's own.
pub(super) const INSERT: &str = "
    INSERT INTO main.onceward_record
        (digest, fence, state, started_at, updated_at, expires_at, scope, operation, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
    ON CONFLICT (digest) DO NOTHING";

/// The time of the first claim stays: a caller that knows the fence has read that time with it. Not to set
/// it spares its index; the numbers are those of `CLAIM_AFRESH`.
pub(super) const UPDATE: &str = "
    UPDATE main.onceward_record
    SET fence = ?3, state = ?4, updated_at = ?6, expires_at = ?7, body = ?8
    WHERE digest = ?1 AND fence = ?2";

pub(super) const CLAIM_AFRESH: &str = "
    UPDATE main.onceward_record
    SET fence = ?3, state = ?4, started_at = ?5, updated_at = ?6, expires_at = ?7, body = ?8
    WHERE digest = ?1 AND fence = ?2";

pub(super) const READ: &str = "
    SELECT fence, started_at, updated_at, expires_at, body
    FROM main.onceward_record
    WHERE digest = ?1";

pub(super) const DELETE: &str = "DELETE FROM onceward_record WHERE digest = ?1 AND fence = ?2";

pub(super) const NOTE: &str = "
    INSERT INTO main.onceward_trail (digest, at, kind, execution, actor, reason)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub(super) const TRAIL: &str = "
    SELECT at, kind, execution, actor, reason
    FROM (SELECT * FROM onceward_trail WHERE digest = ?1 ORDER BY seq DESC LIMIT 1000)
    ORDER BY seq";

pub(super) const PUT_CHUNK: &str = "
    INSERT INTO main.onceward_spool (digest, fence, chunk, at, bytes)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (digest, fence, chunk) DO UPDATE SET at = excluded.at, bytes = excluded.bytes";

pub(super) const READ_CHUNK: &str = "
    SELECT bytes FROM onceward_spool WHERE digest = ?1 AND fence = ?2 AND chunk = ?3";

pub(super) const DISCARD_CHUNKS: &str = "
    DELETE FROM onceward_spool WHERE digest = ?1 AND fence = ?2";

/// The conditions on `state` and `expires_at` repeat those of the partial index.
pub(super) const SWEEPABLE: &str = "
    SELECT seq, expires_at, digest, fence, body
    FROM onceward_record INDEXED BY onceward_record_expiry
    WHERE state > 0 AND expires_at IS NOT NULL
        AND (expires_at, seq) > (?1, ?2) AND expires_at < ?3
    ORDER BY expires_at, seq
    LIMIT ?4";

pub(super) const DELETE_SWEPT: &str = "DELETE FROM onceward_record WHERE seq = ?1";

/// Takes what cannot be read out of the sweep's way, to where operators look.
pub(super) const KEEP_UNREADABLE: &str = "
    UPDATE onceward_record SET state = 1, expires_at = NULL WHERE seq = ?1";

pub(super) const OLD_CHUNKS: &str = "
    SELECT seq, at, NOT EXISTS (
        SELECT 1 FROM onceward_record AS record
        WHERE record.digest = spool.digest AND record.fence = spool.fence)
    FROM onceward_spool AS spool INDEXED BY onceward_spool_age
    WHERE (at, seq) > (?1, ?2) AND at < ?3
    ORDER BY at, seq
    LIMIT ?4";

/// Tells all that the clock is suspected, those too who have just begun and trust it.
pub(super) const SUSPECT_CLOCK: &str = "
    INSERT INTO onceward_clock (one, suspected_at) VALUES (1, ?1)
    ON CONFLICT (one) DO UPDATE SET suspected_at = excluded.suspected_at";

/// A suspicion from before the clock went back is in the future.
pub(super) const CLOCK_SUSPECTED: &str = "
    SELECT EXISTS (SELECT 1 FROM onceward_clock WHERE abs(suspected_at - ?1) < ?2)";

pub(super) const DELETE_CHUNK: &str = "DELETE FROM onceward_spool WHERE seq = ?1";

pub(super) const SWEEP_INBOX: &str = "
    DELETE FROM onceward_inbox
    WHERE (consumer, message_id) IN (
        SELECT consumer, message_id FROM onceward_inbox INDEXED BY onceward_inbox_expiry
        WHERE expires_at < ?1 ORDER BY expires_at LIMIT ?2)";

/// One line of a list.
pub(super) const LIST_ROW: &str = "
    SELECT digest, state, scope, operation, fence, started_at, updated_at, expires_at, body
    FROM onceward_record
    WHERE seq = ?1";

/// Where the next rows of a list are. Each is answered from an index alone, in its order.
pub(super) mod places {
    pub(in super::super) const ALL: &str = "
        SELECT seq, seq FROM onceward_record
        WHERE seq > ?1
        ORDER BY seq
        LIMIT ?2";

    pub(in super::super) const ALL_NEWEST: &str = "
        SELECT seq, seq FROM onceward_record
        WHERE seq < ?1
        ORDER BY seq DESC
        LIMIT ?2";

    /// The condition `state <> 3` repeats that of the partial index.
    pub(in super::super) const OF_STATE: &str = "
        SELECT seq, seq FROM onceward_record INDEXED BY onceward_record_state
        WHERE state <> 3 AND state = ?3 AND seq > ?1
        ORDER BY seq
        LIMIT ?2";

    pub(in super::super) const OF_STATE_NEWEST: &str = "
        SELECT seq, seq FROM onceward_record INDEXED BY onceward_record_state
        WHERE state <> 3 AND state = ?3 AND seq < ?1
        ORDER BY seq DESC
        LIMIT ?2";

    pub(in super::super) const EXPIRED: &str = "
        SELECT expires_at, seq FROM onceward_record INDEXED BY onceward_record_expiry
        WHERE state > 0 AND expires_at IS NOT NULL
            AND (expires_at, seq) > (?1, ?2) AND expires_at <= ?4
        ORDER BY expires_at, seq
        LIMIT ?3";

    pub(in super::super) const EXPIRED_NEWEST: &str = "
        SELECT expires_at, seq FROM onceward_record INDEXED BY onceward_record_expiry
        WHERE state > 0 AND expires_at IS NOT NULL
            AND (expires_at, seq) < (?1, ?2)
        ORDER BY expires_at DESC, seq DESC
        LIMIT ?3";

    pub(in super::super) const OLDER: &str = "
        SELECT started_at, seq FROM onceward_record INDEXED BY onceward_record_started
        WHERE (started_at, seq) > (?1, ?2) AND started_at <= ?4
        ORDER BY started_at, seq
        LIMIT ?3";

    pub(in super::super) const OLDER_NEWEST: &str = "
        SELECT started_at, seq FROM onceward_record INDEXED BY onceward_record_started
        WHERE (started_at, seq) < (?1, ?2)
        ORDER BY started_at DESC, seq DESC
        LIMIT ?3";

    /// A block is 4096 rows, as in the index.
    pub(in super::super) const BLOCK_AFTER: &str = "
        SELECT seq / 4096 FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 > ?1
        ORDER BY seq / 4096
        LIMIT 1";

    pub(in super::super) const BLOCK_BEFORE: &str = "
        SELECT seq / 4096 FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 < ?1
        ORDER BY seq / 4096 DESC
        LIMIT 1";

    pub(in super::super) const OPERATION_AFTER: &str = "
        SELECT operation FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 = ?1 AND operation > ?2
        ORDER BY operation
        LIMIT 1";

    pub(in super::super) const OF_OPERATION: &str = "
        SELECT seq FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 = ?1 AND operation = ?2";

    pub(in super::super) const OF_GROUP: &str = "
        SELECT seq FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 = ?1 AND operation = ?2 AND scope = ?3";

    pub(in super::super) const GROUPS: &str = "
        SELECT DISTINCT operation, scope FROM onceward_record INDEXED BY onceward_record_group
        WHERE seq / 4096 = ?1";

    pub(in super::super) const OF_DIGEST: &str = "
        SELECT seq FROM onceward_record WHERE digest = ?1";
}

/// Everything that is open or may be run again; the states are those of the partial index.
pub(super) const OPEN: &str = "
    SELECT digest, fence, started_at, updated_at, expires_at, body
    FROM onceward_record INDEXED BY onceward_record_state
    WHERE state <> 3 AND state < 3";

pub(super) const ROUTES: &str = "
    SELECT template, path, operation, parts, key_source, upstream FROM onceward_route ORDER BY template";

/// Without a row it is made; a row that is not the expected one stays.
pub(super) const KEEP_ROUTE: &str = "
    INSERT INTO onceward_route (template, path, operation, parts, key_source, upstream)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (template) DO UPDATE
    SET path = excluded.path, operation = excluded.operation, parts = excluded.parts,
        key_source = excluded.key_source, upstream = excluded.upstream
    WHERE path = ?7 AND operation = ?8 AND parts = ?9 AND key_source = ?10 AND upstream = ?11";

/// The second column says whether the record lives. A body is not read: it comes last in its row.
pub(super) const LIVING: &str = "
    SELECT seq, state <> 5 AND (state = 0 OR expires_at IS NULL OR expires_at > ?3), operation, scope
    FROM onceward_record
    WHERE seq > ?1
    ORDER BY seq
    LIMIT ?2";

pub(super) const LAST_WRITE: &str = "
    SELECT updated_at FROM onceward_record WHERE seq = (SELECT max(seq) FROM onceward_record)";

pub(super) const HAS_SCHEMA: &str = "
    SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'onceward_schema')";

pub(super) const SCHEMA_COUNT: &str = "SELECT count(*) FROM sqlite_schema";

pub(super) const CREATE_SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS onceward_schema (
        version    INTEGER PRIMARY KEY,
        applied_at INTEGER NOT NULL
    ) STRICT";

pub(super) const SCHEMA_VERSION: &str = "SELECT coalesce(max(version), 0) FROM onceward_schema";

pub(super) const APPLIED: &str = "
    INSERT INTO onceward_schema (version, applied_at) VALUES (?1, ?2)";

pub(super) const READ_MARK: &str = "SELECT mark FROM onceward_mark WHERE one = 1";

pub(super) const WRITE_MARK: &str = "
    INSERT INTO onceward_mark (one, mark) VALUES (1, ?1)
    ON CONFLICT (one) DO UPDATE SET mark = excluded.mark";

pub(super) const ACCEPT_LOSS: &str = "
    INSERT INTO onceward_loss (at, known, found, reason) VALUES (?1, ?2, ?3, ?4)";

/// Its first complaint, or `ok`.
pub(super) const INTEGRITY: &str = "PRAGMA main.integrity_check(1)";

/// How far the log reaches and how much of it is in the database file; does nothing.
pub(super) const LOG_POSITION: &str = "PRAGMA main.wal_checkpoint(NOOP)";
pub(super) const CHECKPOINT: &str = "PRAGMA main.wal_checkpoint(PASSIVE)";
pub(super) const RESTART_LOG: &str = "PRAGMA main.wal_checkpoint(RESTART)";
