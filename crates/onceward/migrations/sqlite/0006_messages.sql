-- Messages that leave with a commit, and messages that came. SQLite has one writer at a time, so that the numbers
-- of messages are in the order of their commits: `seq` is the cursor. AUTOINCREMENT gives none a second time.

-- `lane` is the first byte of SHA-256(aggregate) & 63. Software that has no SHA-256 leaves it out, and `aggregate` too
-- for a message without an order: a relay fills them in before it reads on. `id` is a UUID, `headers` are JSON:
-- [["name", "value"], …]. Rows do not change after that.
CREATE TABLE onceward_message (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    lane       INTEGER,
    id         BLOB    NOT NULL,
    topic      TEXT    NOT NULL,
    aggregate  TEXT,
    at         INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)),
    not_before INTEGER,
    expires_at INTEGER,
    operation  BLOB,
    trace      TEXT,
    headers    TEXT    NOT NULL DEFAULT '[]',
    body       BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX onceward_message_id ON onceward_message (id);

-- In the order of `seq`, which every index ends with.
CREATE INDEX onceward_message_lane ON onceward_message (lane);

-- What the library checks before it writes a message, for all others: a relay must be able to read it.
CREATE TRIGGER onceward_message_check BEFORE INSERT ON onceward_message WHEN NEW.lane IS NULL
BEGIN
    SELECT raise(ABORT, 'a message has an id of 16 bytes, no operation or its digest of 32, a body of at most 1048576, and expires after its not_before; nothing was enqueued')
    WHERE length(NEW.id) <> 16 OR length(NEW.operation) <> 32 OR length(NEW.body) > 1048576
        OR NEW.expires_at <= NEW.not_before;
    SELECT raise(ABORT, 'topic, aggregate and trace of a message have 1 to 255 bytes and no control characters; nothing was enqueued')
    FROM (SELECT NEW.topic AS name UNION ALL SELECT NEW.aggregate UNION ALL SELECT NEW.trace)
    WHERE length(CAST(name AS BLOB)) NOT BETWEEN 1 AND 255 OR instr(CAST(name AS BLOB), X'00')
        OR name GLOB '*[' || char(1) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
    SELECT raise(ABORT, 'the headers of a message are JSON of at most 32768 bytes: [["name", "value"], …]; nothing was enqueued')
    WHERE NOT json_valid(NEW.headers) OR json_type(NEW.headers) <> 'array' OR length(CAST(NEW.headers AS BLOB)) > 32768;
    SELECT raise(ABORT, 'a header line is ["name", "value"]: a name without spaces or colons, and a value without control characters; nothing was enqueued')
    FROM json_each(NEW.headers) AS line
    WHERE line.type <> 'array' OR json_array_length(line.value) <> 2
        OR json_type(line.value, '$[0]') <> 'text' OR json_type(line.value, '$[1]') <> 'text'
        OR json_extract(line.value, '$[0]') GLOB '*[^-!#$%&''*+.^_`|~0-9A-Za-z]*' OR json_extract(line.value, '$[0]') = ''
        OR instr(CAST(json_extract(line.value, '$[0]') || json_extract(line.value, '$[1]') AS BLOB), X'00')
        OR json_extract(line.value, '$[1]') GLOB
            '*[' || char(1) || '-' || char(8) || char(10) || '-' || char(31) || char(127) || '-' || char(159) || ']*';
END;

-- Where messages go. A sink gets what is behind `begins_behind`; the number of a removed one is not given again.
CREATE TABLE onceward_sink (
    sink          INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL,
    begins_behind INTEGER NOT NULL,
    opened_at     INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX onceward_sink_name ON onceward_sink (name);

-- Relays that live, each until its lease ends unrenewed.
CREATE TABLE onceward_relay (
    sink  INTEGER NOT NULL,
    relay BLOB    NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (sink, relay)
) STRICT, WITHOUT ROWID;

-- How far a sink is in a lane, and the relay that holds the lane while it lives. Each change is a step: it expects the
-- step before it and has a fence of its own. `fences` are those of the last steps, the newest first.
CREATE TABLE onceward_lane (
    sink   INTEGER NOT NULL,
    lane   INTEGER NOT NULL,
    step   INTEGER NOT NULL,
    fences BLOB    NOT NULL,
    cursor INTEGER NOT NULL,
    relay  BLOB,
    PRIMARY KEY (sink, lane)
) STRICT, WITHOUT ROWID;

-- Messages that a lane has passed without delivering them. States: 0 waiting, 1 held, 2 dead, 3 scheduled, 4 dead
-- and skipped, 5 expired, 6 discarded; those below 3 block their aggregate. `due` is when it may be tried by its own
-- time, the last time there is if by none. `try_at` is the same where a relay looks for it: in scheduled ones, and in
-- the first one that blocks its aggregate.
CREATE TABLE onceward_parked (
    sink      INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    lane      INTEGER NOT NULL,
    aggregate TEXT    NOT NULL,
    state     INTEGER NOT NULL,
    attempts  INTEGER NOT NULL,
    due       INTEGER NOT NULL,
    try_at    INTEGER,
    at        INTEGER NOT NULL,
    why       TEXT    NOT NULL,
    PRIMARY KEY (sink, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_parked_try ON onceward_parked (sink, lane, try_at) WHERE try_at IS NOT NULL;
CREATE INDEX onceward_parked_state ON onceward_parked (state, seq);

-- What blocks an aggregate: in its order, by its time, and as it is looked for.
CREATE INDEX onceward_parked_chain ON onceward_parked (sink, aggregate, seq) WHERE state < 3;
CREATE INDEX onceward_parked_late ON onceward_parked (sink, aggregate, due) WHERE state < 3;
CREATE INDEX onceward_parked_head ON onceward_parked (sink, aggregate) WHERE state = 0 AND try_at IS NOT NULL;
CREATE INDEX onceward_parked_scheduled ON onceward_parked (sink, aggregate, due) WHERE state = 3;

-- What operators changed. It outlives the messages.
CREATE TABLE onceward_message_trail (
    seq    INTEGER PRIMARY KEY,
    id     BLOB    NOT NULL,
    sink   TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    kind   TEXT    NOT NULL,
    actor  TEXT,
    reason TEXT    NOT NULL
) STRICT;

CREATE INDEX onceward_message_trail_id ON onceward_message_trail (id);

-- Which messages a consumer has applied, each written in the commit that applied it.
CREATE TABLE onceward_inbox (
    consumer    TEXT    NOT NULL,
    message_id  TEXT    NOT NULL,
    received_at INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (consumer, message_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX onceward_inbox_expiry ON onceward_inbox (expires_at);
