-- Under which names the routes of a gateway keep their records: one row for each method and path, without the
-- names of its parameters. `path` has those names as they were when the row was written; `operation` is
-- empty where each path is a name of its own; `parts` are the names of the scope's parts, empty for a route that
-- takes no keys. `key_source` is where its clients put keys, `upstream` that of the gateway that wrote the row last;
-- empty: not known. No record changes.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE onceward.route (
    template   text PRIMARY KEY,
    path       text NOT NULL,
    operation  text NOT NULL,
    parts      text NOT NULL,
    key_source text NOT NULL DEFAULT '',
    upstream   text NOT NULL DEFAULT ''
);

REVOKE ALL ON TABLE onceward.route FROM PUBLIC;

-- At most one row, written again and again by processes that suspect the server's clock: nobody sweeps meanwhile.
CREATE TABLE onceward.clock (
    one          int2        PRIMARY KEY CHECK (one = 1),
    suspected_at timestamptz NOT NULL
);

REVOKE ALL ON TABLE onceward.clock FROM PUBLIC;

INSERT INTO onceward.migration (version, needs) VALUES (5, 1);
