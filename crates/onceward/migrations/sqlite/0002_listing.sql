-- What operators list by; ADR 0016 has what each index costs a claim. No row is changed.

-- Everything that is not simply done: running, unknown, failed, released. Replaces
-- `onceward_record_open`, which could not tell these states apart and knew nothing of refusals.
CREATE INDEX onceward_record_state ON onceward_record (state)
    WHERE state <> 3;

DROP INDEX onceward_record_open;

-- Whose operation it is. It begins with a coarse number of the row, so that what comes together is
-- written together: without it every claim would touch a page of its own. Whoever looks for a scope
-- asks once for each 4096 rows.
CREATE INDEX onceward_record_group ON onceward_record (seq / 4096, operation, scope);

-- How old it is.
CREATE INDEX onceward_record_started ON onceward_record (started_at);
