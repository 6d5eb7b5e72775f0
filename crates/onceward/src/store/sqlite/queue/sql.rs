//! Every statement about messages, in full. The names say `main` where they are sent on connections of the user's own.

pub(super) const ENQUEUE: &str = "
    INSERT INTO main.onceward_message
        (lane, id, topic, aggregate, at, not_before, expires_at, operation, trace, headers, body)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// A row whose time is over counts as none.
pub(super) const FIRST_TIME: &str = "
    INSERT INTO main.onceward_inbox (consumer, message_id, received_at, expires_at)
    VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (consumer, message_id) DO UPDATE
    SET received_at = excluded.received_at, expires_at = excluded.expires_at
    WHERE expires_at < excluded.received_at";

pub(super) const SINK: &str = "SELECT sink FROM onceward_sink WHERE name = ?1";

pub(super) const SINK_EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM onceward_sink WHERE sink = ?1)";

/// With 0 it begins with the oldest message.
pub(super) const OPEN_SINK: &str = "
    INSERT INTO onceward_sink (name, begins_behind, opened_at) VALUES (?1, ?2, ?3) RETURNING sink";

pub(super) const OPEN_LANE: &str = "
    INSERT INTO onceward_lane (sink, lane, step, fences, cursor) VALUES (?1, ?2, 0, ?3, ?4)";

/// The last number that was given, also to a message that is gone.
pub(super) const LAST_NUMBER: &str = "
    SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'onceward_message'), 0)";

pub(super) const LAST_CURSOR: &str =
    "SELECT coalesce(max(cursor), 0) FROM onceward_lane WHERE sink = ?1";

pub(super) const RELAY_LIVES: &str = "
    INSERT INTO onceward_relay (sink, relay, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (sink, relay) DO UPDATE SET until = excluded.until";

pub(super) const FORGET_RELAYS: &str = "DELETE FROM onceward_relay WHERE sink = ?1 AND until <= ?2";

pub(super) const FORGET_RELAY: &str = "DELETE FROM onceward_relay WHERE sink = ?1 AND relay = ?2";

pub(super) const COUNT_RELAYS: &str = "SELECT count(*) FROM onceward_relay WHERE sink = ?1";

pub(super) const HELD_LANES: &str = "
    SELECT lane, step, fences, cursor, relay FROM onceward_lane WHERE sink = ?1 AND relay = ?2 ORDER BY lane";

/// Relays that do not live any more were forgotten before.
pub(super) const FREE_LANES: &str = "
    SELECT lane, step, fences, cursor, relay FROM onceward_lane AS lane
    WHERE sink = ?1 AND NOT EXISTS (
        SELECT 1 FROM onceward_relay AS relay WHERE relay.sink = lane.sink AND relay.relay = lane.relay)
    ORDER BY lane
    LIMIT ?2";

pub(super) const GIVE_LANE_TO: &str = "
    UPDATE onceward_lane SET relay = ?3 WHERE sink = ?1 AND lane = ?2";

pub(super) const GIVE_BACK_ALL: &str = "
    UPDATE onceward_lane SET relay = NULL WHERE sink = ?1 AND relay = ?2";

pub(super) const LANE: &str = "
    SELECT lane, step, fences, cursor, relay FROM onceward_lane WHERE sink = ?1 AND lane = ?2";

pub(super) const STEP: &str = "
    UPDATE onceward_lane SET step = step + 1, fences = ?3, cursor = ?4
    WHERE sink = ?1 AND lane = ?2";

pub(super) const HAS_NO_LANE: &str = "
    SELECT EXISTS (SELECT 1 FROM onceward_message WHERE lane IS NULL)";

pub(super) const NO_LANE: &str = "
    SELECT seq, id, aggregate FROM onceward_message WHERE lane IS NULL ORDER BY seq LIMIT ?1";

pub(super) const GIVE_LANE: &str = "
    UPDATE onceward_message SET lane = ?2, aggregate = ?3 WHERE seq = ?1";

/// Whether a lane has new messages, or parked ones that may be tried. What lies behind a message without a lane
/// waits until that one has its own: it may be this one.
pub(super) const WAITING: &str = "
    SELECT EXISTS (
        SELECT 1 FROM onceward_message AS message INDEXED BY onceward_message_lane
        WHERE message.lane = ?2 AND message.seq > ?3 AND message.seq < coalesce(
            (SELECT seq FROM onceward_message WHERE lane IS NULL ORDER BY seq LIMIT 1), 9223372036854775807)
    ) OR EXISTS (
        SELECT 1 FROM onceward_parked AS parked INDEXED BY onceward_parked_try
        WHERE parked.sink = ?1 AND parked.lane = ?2 AND parked.try_at IS NOT NULL AND parked.try_at <= ?4
            AND (parked.state = 0 OR NOT EXISTS (
                SELECT 1 FROM onceward_parked AS late INDEXED BY onceward_parked_late
                WHERE late.sink = parked.sink AND late.aggregate = parked.aggregate AND late.state < 3
                    AND late.due > ?4))
    )";

/// The aggregates that have something to try: the first one that blocks is due, or a scheduled one is and nothing that
/// blocks is not.
pub(super) const DUE: &str = "
    SELECT parked.aggregate
    FROM onceward_parked AS parked INDEXED BY onceward_parked_try
    WHERE parked.sink = ?1 AND parked.lane = ?2 AND parked.try_at IS NOT NULL AND parked.try_at <= ?3
        AND (parked.state = 0 OR NOT EXISTS (
            SELECT 1 FROM onceward_parked AS late INDEXED BY onceward_parked_late
            WHERE late.sink = parked.sink AND late.aggregate = parked.aggregate AND late.state < 3
                AND late.due > ?3))
    ORDER BY parked.try_at
    LIMIT ?4";

/// What blocks an aggregate, in its order, and whether its time has come.
pub(super) const CHAIN: &str = "
    SELECT seq, attempts, due <= ?3
    FROM onceward_parked INDEXED BY onceward_parked_chain
    WHERE sink = ?1 AND aggregate = ?2 AND state < 3
    ORDER BY seq
    LIMIT ?4";

/// The scheduled ones of an aggregate whose time has come, unless something blocks it that is not due.
pub(super) const SCHEDULED: &str = "
    SELECT seq, attempts
    FROM onceward_parked INDEXED BY onceward_parked_scheduled
    WHERE sink = ?1 AND aggregate = ?2 AND state = 3 AND due <= ?3 AND NOT EXISTS (
        SELECT 1 FROM onceward_parked AS late INDEXED BY onceward_parked_late
        WHERE late.sink = ?1 AND late.aggregate = ?2 AND late.state < 3 AND late.due > ?3)
    ORDER BY seq
    LIMIT ?4";

pub(super) const MESSAGE: &str = "
    SELECT id, topic, aggregate, at, not_before, expires_at, operation, trace, headers, body
    FROM onceward_message
    WHERE seq = ?1";

/// With the last parked one that blocks its aggregate.
pub(super) const FRESH: &str = "
    SELECT id, topic, aggregate, at, not_before, expires_at, operation, trace, headers, body, seq, (
            SELECT max(parked.seq) FROM onceward_parked AS parked INDEXED BY onceward_parked_chain
            WHERE parked.sink = ?1 AND parked.aggregate = message.aggregate AND parked.state < 3)
    FROM onceward_message AS message INDEXED BY onceward_message_lane
    WHERE message.lane = ?2 AND message.seq > ?3 AND message.seq < coalesce(
        (SELECT seq FROM onceward_message WHERE lane IS NULL ORDER BY seq LIMIT 1), 9223372036854775807)
    ORDER BY message.seq
    LIMIT ?4";

/// A scheduled one is due at its `not_before`.
pub(super) const PARK: &str = "
    INSERT INTO onceward_parked (sink, seq, lane, aggregate, state, attempts, due, try_at, at, why)
    SELECT ?1, seq, lane, aggregate, ?4, ?5,
        CASE WHEN ?4 = 3 THEN not_before ELSE ?6 END, CASE WHEN ?4 = 3 THEN not_before END, ?7, ?8
    FROM onceward_message
    WHERE seq = ?2 AND id = ?3
    ON CONFLICT (sink, seq) DO NOTHING";

/// Only what a relay may still try: what an operator has changed meanwhile stays so.
pub(super) const PARK_AGAIN: &str = "
    UPDATE onceward_parked
    SET state = ?4, attempts = ?5, at = ?7, why = ?8,
        due = CASE WHEN ?4 = 3 THEN message.not_before ELSE ?6 END,
        try_at = CASE WHEN ?4 = 3 THEN message.not_before END
    FROM onceward_message AS message
    WHERE sink = ?1 AND onceward_parked.seq = ?2 AND state IN (0, 3) AND message.seq = ?2 AND message.id = ?3";

pub(super) const UNPARK: &str = "
    DELETE FROM onceward_parked
    WHERE sink = ?1 AND seq = ?2 AND state IN (0, 3)
        AND EXISTS (SELECT 1 FROM onceward_message WHERE seq = ?2 AND id = ?3)";

pub(super) const HEAD: &str = "
    SELECT min(seq) FROM onceward_parked INDEXED BY onceward_parked_chain
    WHERE sink = ?1 AND aggregate = ?2 AND state < 3";

/// Only the first one of an aggregate is found by its time.
pub(super) const CLEAR_OTHER_HEADS: &str = "
    UPDATE onceward_parked INDEXED BY onceward_parked_head SET try_at = NULL
    WHERE sink = ?1 AND aggregate = ?2 AND state = 0 AND try_at IS NOT NULL AND seq <> ?3";

pub(super) const SET_HEAD: &str = "
    UPDATE onceward_parked SET try_at = due WHERE sink = ?1 AND seq = ?2 AND state = 0";

/// One piece of a sweep: the oldest messages behind a number, and whether each may go. It may not while a sink has
/// not passed it, or has parked it and not ended it.
pub(super) const SWEEPABLE: &str = "
    SELECT seq, at < ?2, lane IS NOT NULL
        AND NOT EXISTS (
            SELECT 1 FROM onceward_lane AS lane
            WHERE lane.sink IN (SELECT sink FROM onceward_sink) AND lane.lane = message.lane
                AND lane.cursor < message.seq)
        AND NOT EXISTS (
            SELECT 1 FROM onceward_parked AS parked
            WHERE parked.sink IN (SELECT sink FROM onceward_sink) AND parked.seq = message.seq AND parked.state < 5)
    FROM onceward_message AS message
    WHERE seq > ?1
    ORDER BY seq
    LIMIT ?3";

pub(super) const HAS_SINK: &str = "SELECT EXISTS (SELECT 1 FROM onceward_sink)";

pub(super) const DELETE_MESSAGE: &str = "DELETE FROM onceward_message WHERE seq = ?1";

pub(super) const FORGET_PARKED: &str = "
    DELETE FROM onceward_parked WHERE sink IN (SELECT sink FROM onceward_sink) AND seq = ?1";

/// What a list goes through: each message once for every sink that it is for. The body is not read. The tables are
/// joined in this order, which is that of the list, so that no page sorts all.
pub(super) const LIST: &str = "
    SELECT message.seq, sink.sink, message.topic, message.aggregate, message.at, lane.cursor >= message.seq, parked.state
    FROM onceward_message AS message
    CROSS JOIN onceward_sink AS sink
    CROSS JOIN onceward_lane AS lane ON lane.sink = sink.sink AND lane.lane = message.lane
    LEFT JOIN onceward_parked AS parked ON parked.sink = sink.sink AND parked.seq = message.seq
    WHERE message.seq >= ?1 AND sink.begins_behind < message.seq
    ORDER BY message.seq, sink.sink";

pub(super) const LIST_LANE: &str = "
    SELECT message.seq, sink.sink, message.topic, message.aggregate, message.at, lane.cursor >= message.seq, parked.state
    FROM onceward_message AS message INDEXED BY onceward_message_lane
    CROSS JOIN onceward_sink AS sink
    CROSS JOIN onceward_lane AS lane ON lane.sink = sink.sink AND lane.lane = message.lane
    LEFT JOIN onceward_parked AS parked ON parked.sink = sink.sink AND parked.seq = message.seq
    WHERE message.lane = ?2 AND message.seq >= ?1 AND sink.begins_behind < message.seq
    ORDER BY message.seq, sink.sink";

/// Dead letters have two states.
pub(super) const LIST_PARKED: &str = "
    SELECT parked.seq, parked.sink, message.topic, message.aggregate, message.at, 1, parked.state
    FROM onceward_parked AS parked INDEXED BY onceward_parked_state
    CROSS JOIN onceward_message AS message ON message.seq = parked.seq
    WHERE parked.state = ?2 AND parked.seq >= ?1
    UNION ALL
    SELECT parked.seq, parked.sink, message.topic, message.aggregate, message.at, 1, parked.state
    FROM onceward_parked AS parked INDEXED BY onceward_parked_state
    CROSS JOIN onceward_message AS message ON message.seq = parked.seq
    WHERE parked.state = ?3 AND parked.seq >= ?1
    ORDER BY 1, 2";

/// A message as one sink has it.
pub(super) const SHOWN: &str = "
    SELECT message.id, message.topic, message.aggregate, message.at, message.not_before, message.expires_at,
        message.operation, message.trace, message.headers, message.body,
        sink.name, lane.cursor >= message.seq, parked.state, parked.attempts, parked.due, parked.why
    FROM onceward_message AS message
    CROSS JOIN onceward_sink AS sink
    CROSS JOIN onceward_lane AS lane ON lane.sink = sink.sink AND lane.lane = message.lane
    LEFT JOIN onceward_parked AS parked ON parked.sink = sink.sink AND parked.seq = message.seq
    WHERE message.seq = ?1 AND sink.sink = ?2";

pub(super) const SINKS_OF: &str = "
    SELECT message.seq, sink.sink
    FROM onceward_message AS message
    CROSS JOIN onceward_sink AS sink ON sink.begins_behind < message.seq
    WHERE message.id = ?1
    ORDER BY sink.sink";

/// Where a message is, and what became of it at a sink.
pub(super) const FIND: &str = "
    SELECT message.seq, message.lane, message.aggregate, lane.cursor >= message.seq, parked.state
    FROM onceward_message AS message
    CROSS JOIN onceward_sink AS sink ON sink.begins_behind < message.seq
    CROSS JOIN onceward_lane AS lane ON lane.sink = sink.sink AND lane.lane = message.lane
    LEFT JOIN onceward_parked AS parked ON parked.sink = sink.sink AND parked.seq = message.seq
    WHERE message.id = ?1 AND sink.sink = ?2";

pub(super) const REDRIVE: &str = "
    UPDATE onceward_parked SET state = 0, attempts = 0, due = ?3, try_at = NULL, at = ?3, why = ''
    WHERE sink = ?1 AND seq = ?2";

pub(super) const DISCARD: &str = "
    UPDATE onceward_parked SET state = 6, due = 9223372036854775807, try_at = NULL, at = ?3
    WHERE sink = ?1 AND seq = ?2";

pub(super) const NOTE: &str = "
    INSERT INTO onceward_message_trail (id, sink, at, kind, actor, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

pub(super) const REMOVE_SINK: [&str; 4] = [
    "DELETE FROM onceward_sink WHERE sink = ?1",
    "DELETE FROM onceward_lane WHERE sink = ?1",
    "DELETE FROM onceward_relay WHERE sink = ?1",
    "DELETE FROM onceward_parked WHERE sink = ?1",
];

pub(super) const COUNT_MESSAGES: &str = "
    SELECT count(*), (SELECT at FROM onceward_message ORDER BY seq LIMIT 1)
    FROM (SELECT 1 FROM onceward_message LIMIT ?1)";

pub(super) const SINKS: &str = "SELECT sink, name FROM onceward_sink ORDER BY sink";

pub(super) const LANES: &str = "
    SELECT lane.lane, lane.cursor, relay.relay
    FROM onceward_lane AS lane
    LEFT JOIN onceward_relay AS relay
        ON relay.sink = lane.sink AND relay.relay = lane.relay AND relay.until > ?2
    WHERE lane.sink = ?1
    ORDER BY lane.lane";

pub(super) const COUNT_AHEAD: &str = "
    SELECT count(*), (
        SELECT at FROM onceward_message INDEXED BY onceward_message_lane
        WHERE lane = ?1 AND seq > ?2 ORDER BY seq LIMIT 1)
    FROM (
        SELECT 1 FROM onceward_message INDEXED BY onceward_message_lane
        WHERE lane = ?1 AND seq > ?2 LIMIT ?3)";

pub(super) const COUNT_PARKED: &str = "
    SELECT counted.sink, counted.entries, message.at
    FROM (
        SELECT sink, count(*) AS entries, min(seq) AS first
        FROM (
            SELECT sink, seq FROM onceward_parked INDEXED BY onceward_parked_state
            WHERE state = ?1 ORDER BY seq LIMIT ?2)
        GROUP BY sink) AS counted
    LEFT JOIN onceward_message AS message ON message.seq = counted.first";
