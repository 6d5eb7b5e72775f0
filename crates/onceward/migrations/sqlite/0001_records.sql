-- Times are microseconds since 1970 by the clock of the host that wrote them.
-- Every name begins with `onceward_`: the tables may live beside those of the application.

-- One row for each operation. `body` is the record as `onceward_core::wire` writes it, checksum
-- included. What is compared or computed with is a column of its own, so that a damaged body can
-- still be fenced. States: 0 in progress, 1 unknown, 2 failed but may be run again, 3 succeeded,
-- 4 failed for good, 5 released; the order lets the indexes select by one comparison.
CREATE TABLE onceward_record (
    seq        INTEGER PRIMARY KEY,
    digest     BLOB    NOT NULL,
    fence      BLOB    NOT NULL,
    state      INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    scope      TEXT    NOT NULL,
    operation  TEXT    NOT NULL,
    body       BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX onceward_record_digest ON onceward_record (digest);

-- What a sweep may delete, oldest first. A claim is not in it: its lease ends, its row stays.
CREATE INDEX onceward_record_expiry ON onceward_record (expires_at)
    WHERE state > 0 AND expires_at IS NOT NULL;

-- What an operator looks for: everything that may be running, interrupted or unknown by now.
CREATE INDEX onceward_record_open ON onceward_record (seq)
    WHERE state < 3;

-- Exceptional changes, written in the same transaction as the change. They outlive their record.
CREATE TABLE onceward_trail (
    seq       INTEGER PRIMARY KEY,
    digest    BLOB    NOT NULL,
    at        INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    execution BLOB    NOT NULL,
    actor     TEXT,
    reason    TEXT
) STRICT;

CREATE INDEX onceward_trail_digest ON onceward_trail (digest);

-- The chunks of answers that are too large for a record. `fence` is that of the ended record.
CREATE TABLE onceward_spool (
    seq    INTEGER PRIMARY KEY,
    digest BLOB    NOT NULL,
    fence  BLOB    NOT NULL,
    chunk  INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    bytes  BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX onceward_spool_chunk ON onceward_spool (digest, fence, chunk);

-- Finds chunks whose record was never written, without reading any chunk.
CREATE INDEX onceward_spool_age ON onceward_spool (at, seq, digest, fence);
