-- Everything of Onceward is in one schema of its own; no other is touched.
-- These files are plain SQL: `psql -1 -v ON_ERROR_STOP=1 -f FILE` does what `onceward migrate` does.

CREATE SCHEMA IF NOT EXISTS onceward;

-- It may have been made by an administrator for this role; somebody else's is not used.
ALTER SCHEMA onceward OWNER TO CURRENT_USER;

-- `needs` is the oldest version that software must know to work with the tables as they are after this
-- one, so that older processes can be started during an upgrade; null: this very version.
CREATE TABLE onceward.migration (
    version integer     PRIMARY KEY,
    needs   integer,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row for each operation. `body` is the record as `onceward_core::wire` writes it, checksum
-- included. What is compared or computed with is a column of its own, so that a damaged body can
-- still be fenced. States: 0 in progress, 1 unknown, 2 failed but may be run again, 3 succeeded,
-- 4 failed for good, 5 released. `retain` is how long the end of a claim will be remembered.
--
-- No column that a completion changes is in an index, so that it is a heap-only update: `sweep_after`
-- is written with the claim, and a sweep that comes too early puts it off. Pages are filled by half,
-- because an ended record is about twice as large as its claim.
CREATE TABLE onceward.record (
    digest      bytea       PRIMARY KEY,
    fence       uuid        NOT NULL,
    execution   uuid        NOT NULL,
    state       smallint    NOT NULL,
    started_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    expires_at  timestamptz,
    sweep_after timestamptz NOT NULL,
    retain      interval    NOT NULL,
    scope       text        NOT NULL,
    operation   text        NOT NULL,
    body        bytea       NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX record_sweep_after ON onceward.record (sweep_after);

-- What has not ended: running, interrupted, unknown, failed but to be run again. A small table and not
-- a partial index, which would keep completions from being heap-only.
CREATE TABLE onceward.open (
    digest bytea PRIMARY KEY
);

-- Exceptional changes, written in the same transaction as the change. They outlive their record.
CREATE TABLE onceward.trail (
    seq       bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    digest    bytea       NOT NULL,
    at        timestamptz NOT NULL,
    kind      text        NOT NULL,
    execution uuid        NOT NULL,
    actor     text,
    reason    text
);

CREATE INDEX trail_digest ON onceward.trail (digest, seq);

-- The chunks of answers that are too large for a record. `fence` is that of the ended record.
CREATE TABLE onceward.spool (
    digest bytea       NOT NULL,
    fence  uuid        NOT NULL,
    chunk  integer     NOT NULL,
    at     timestamptz NOT NULL,
    bytes  bytea       NOT NULL,
    PRIMARY KEY (digest, fence, chunk)
);

-- Finds chunks whose record was never written.
CREATE INDEX spool_at ON onceward.spool (at);

INSERT INTO onceward.migration (version, needs) VALUES (1, 1);
