-- Run once by the owner of billing's database, after `onceward migrate`.
CREATE TABLE entry (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- To see with your own eyes that nothing is billed twice: there is no unique constraint.
    order_number bigint     NOT NULL,
    kind        text        NOT NULL CHECK (kind IN ('invoice', 'credit note')),
    pieces      integer     NOT NULL
);

-- Deliveries that changed nothing, so that the ledger can say how many there were.
CREATE TABLE repeated (
    message_id  text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);

-- The service may call onceward.first_time, and cannot read the inbox.
CREATE ROLE billing LOGIN PASSWORD 'billing';
GRANT onceward_app TO billing;
GRANT SELECT, INSERT ON entry, repeated TO billing;
