-- Run once by the owner of the database, after `onceward migrate`: the service's own table and role.
CREATE TABLE payment (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cents       bigint      NOT NULL,
    -- To see with your own eyes that nothing is charged twice: there is no unique constraint.
    execution   text        NOT NULL,
    charged_at  timestamptz NOT NULL DEFAULT now()
);

-- The service may call onceward.complete, and cannot read or change a record.
CREATE ROLE shop LOGIN PASSWORD 'shop';
GRANT onceward_app TO shop;
GRANT SELECT, INSERT ON payment TO shop;
