-- +goose Up

-- Which engine the rows are a copy of. Another engine counts its events from 1 again, and its rows
-- would never look newer than those that are there.
CREATE TABLE engine (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    cluster text    NOT NULL CHECK (cluster <> '')
);

-- How far the rows follow each shard: they contain every event up to sequence. NULL: they have to
-- be scanned.
CREATE TABLE shard_offsets (
    shard      integer     PRIMARY KEY CHECK (shard BETWEEN 0 AND 65535),
    sequence   bigint      CHECK (sequence >= 0),
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- Moves offsets that are where they are expected to be, or fails with NU001 and moves none.
-- +goose StatementBegin
CREATE FUNCTION move_offsets(shards integer[], origins bigint[], targets bigint[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    moved integer;
BEGIN
    UPDATE shard_offsets AS s SET sequence = m.target, updated_at = now()
    FROM unnest(shards, origins, targets) AS m (shard, origin, target)
    WHERE s.shard = m.shard AND s.sequence IS NOT DISTINCT FROM m.origin;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved <> cardinality(shards) THEN
        RAISE EXCEPTION 'offsets are not where they were left' USING ERRCODE = 'NU001';
    END IF;
END
$$;
-- +goose StatementEnd

-- Orders as the engine has them, or had them not long ago. day and shard are those in the id, so
-- that (day, id) is as unique as id.
CREATE TABLE orders (
    day        date        NOT NULL,
    id         uuid        NOT NULL,
    shard      integer     NOT NULL,
    status     text        NOT NULL,
    overdue    boolean     NOT NULL,
    buyer      text        NOT NULL,
    payment    text,
    total      bigint      NOT NULL,
    currency   text        NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    changed    bigint      NOT NULL, -- the sequence of its last event: only a newer row replaces it
    PRIMARY KEY (day, id),
    CONSTRAINT orders_shard_is_in_id CHECK (
        shard = get_byte(uuid_send(id), 0) * 256 + get_byte(uuid_send(id), 1)),
    CONSTRAINT orders_day_is_in_id CHECK (
        day = date '1970-01-01' + get_byte(uuid_send(id), 2) * 256 + get_byte(uuid_send(id), 3)),
    CONSTRAINT orders_created_on_day CHECK ((created_at AT TIME ZONE 'UTC')::date = day),
    CONSTRAINT orders_expire_after_creation CHECK (expires_at > created_at),
    CONSTRAINT orders_status_known CHECK (status IN (
        'reserved', 'paying', 'paid', 'shipped',
        'expired', 'released', 'refused', 'refund_pending', 'refunded')),
    CONSTRAINT orders_only_paying_is_overdue CHECK (NOT overdue OR status = 'paying'),
    CONSTRAINT orders_payment_where_paid CHECK (
        payment IS NOT NULL OR status IN ('reserved', 'expired', 'released')),
    CONSTRAINT orders_no_payment_before CHECK (payment IS NULL OR status <> 'reserved'),
    CONSTRAINT orders_payment_form CHECK (payment ~ '^[!-~]{1,64}$'),
    CONSTRAINT orders_buyer_form CHECK (buyer ~ '^[!-~]{1,64}$'),
    CONSTRAINT orders_money CHECK (total BETWEEN 0 AND 9007199254740992 AND currency ~ '^[A-Z]{3}$'),
    CONSTRAINT orders_changed CHECK (changed > 0)
) PARTITION BY RANGE (day);

-- What an order has of each product, in the order's own currency. Numbers are ranges: one unbroken
-- run is one range whatever its length, and the database itself can tell overlaps (&&) and who has
-- a number (numbers @> 17::bigint). Items are written with their order and never change.
CREATE TABLE order_items (
    day        date            NOT NULL,
    order_id   uuid            NOT NULL,
    position   smallint        NOT NULL CHECK (position >= 0), -- as the buyer mentioned it
    product    text            NOT NULL CHECK (product ~ '^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})?$'),
    unit_price bigint          NOT NULL CHECK (unit_price >= 0),
    quantity   integer         NOT NULL CHECK (quantity BETWEEN 1 AND 1000),
    numbers    int8multirange  NOT NULL CHECK (
        NOT isempty(numbers) AND lower(numbers) >= 0 AND upper(numbers) <= 4294967296),
    PRIMARY KEY (day, order_id, product),
    FOREIGN KEY (day, order_id) REFERENCES orders (day, id) ON DELETE CASCADE
) PARTITION BY RANGE (day);

-- make_order_day makes the partitions of one day, if they do not exist. They are made apart and
-- then attached, which waits for neither readers nor writers of the other days.
-- +goose StatementBegin
CREATE FUNCTION make_order_day(d date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    suffix text := to_char(d, 'YYYYMMDD');
    name   text;
BEGIN
    IF to_regclass('order_items_' || suffix) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('numera make_order_day'));
    -- A query, not to_regclass, which may remember from above that there was none.
    IF EXISTS (SELECT FROM pg_class WHERE relname = 'order_items_' || suffix
            AND relnamespace = current_schema()::regnamespace) THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY ARRAY['orders', 'order_items'] LOOP
        -- Room for the newer versions of a row beside it, so that no index has to follow.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)'
            ' WITH (fillfactor = %s)', name || '_' || suffix, name,
            CASE name WHEN 'orders' THEN 70 ELSE 100 END);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
            name, name || '_' || suffix, d, d + 1);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- What somebody has to look at: a difference between the engine, these rows and the providers that
-- has no one right answer. No personal data: subject is the id of an order, payment or product.
CREATE TABLE findings (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind        text        NOT NULL CHECK (kind ~ '^[a-z_]{1,64}$'),
    subject     text        NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
    detail      text        NOT NULL,
    found_at    timestamptz NOT NULL DEFAULT now(),
    seen_at     timestamptz NOT NULL DEFAULT now(), -- last
    resolved_at timestamptz CHECK (resolved_at >= found_at)
);
CREATE UNIQUE INDEX findings_open ON findings (kind, subject) WHERE resolved_at IS NULL;
