-- How far the store has come, so that a file that lacks acknowledged commits is recognised: see ADR 0030.

-- One row. `mark` names the store and counts its commits; `onceward::stores::sqlite` writes it, with a
-- checksum. Each commit of the store replaces it, so that the log has every value.
CREATE TABLE onceward_mark (
    one  INTEGER PRIMARY KEY CHECK (one = 1),
    mark BLOB    NOT NULL
) STRICT;

-- Losses that an operator has accepted: the last commit that was known, the last one that was there.
CREATE TABLE onceward_loss (
    seq    INTEGER PRIMARY KEY,
    at     INTEGER NOT NULL,
    known  INTEGER NOT NULL,
    found  INTEGER,
    reason TEXT    NOT NULL
) STRICT;
