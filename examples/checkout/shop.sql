-- Run once by the owner of the shop's database, after `onceward migrate`.
CREATE TABLE stock (
    product     text        PRIMARY KEY,
    pieces      integer     NOT NULL CHECK (pieces >= 0)
);

CREATE TABLE orders (
    number      bigint      PRIMARY KEY,
    product     text        NOT NULL REFERENCES stock,
    pieces      integer     NOT NULL CHECK (pieces > 0),
    state       text        NOT NULL DEFAULT 'placed'
);

-- What the examples sell: enough books, and three lamps.
INSERT INTO stock VALUES ('book', 1000), ('lamp', 3);

-- The service may call onceward.enqueue, and cannot read a message.
CREATE ROLE shop LOGIN PASSWORD 'shop';
GRANT onceward_app TO shop;
GRANT SELECT, INSERT, UPDATE ON orders TO shop;
GRANT SELECT, UPDATE ON stock TO shop;
