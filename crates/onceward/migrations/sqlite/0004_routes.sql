-- Under which names the routes of a gateway keep their records: one row for each method and path, without the
-- names of its parameters. `path` has those names as they were when the row was written; `operation` is
-- empty where each path is a name of its own; `parts` are the names of the scope's parts, empty for a route that
-- takes no keys. `key_source` is where its clients put keys, `upstream` that of the gateway that wrote the row last;
-- empty: not known. No record changes.
CREATE TABLE onceward_route (
    template   TEXT PRIMARY KEY,
    path       TEXT NOT NULL,
    operation  TEXT NOT NULL,
    parts      TEXT NOT NULL,
    key_source TEXT NOT NULL DEFAULT '',
    upstream   TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- At most one row, written again and again by processes that suspect the clock: nobody sweeps meanwhile.
CREATE TABLE onceward_clock (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    suspected_at INTEGER NOT NULL
) STRICT;
