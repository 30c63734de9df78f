-- +goose Up

-- What a value can be is said by domains: they are checked when a value is written, while a CHECK of
-- a table is parsed and evaluated again at every update of its rows, whatever it changes. An update
-- of a payment took 0.4 ms with CHECKs alone.
CREATE DOMAIN payment_id AS text CHECK (VALUE ~ '^[!-~]{1,64}$');
CREATE DOMAIN idempotency_key AS text CHECK (VALUE ~ '^[!-~]{1,255}$');
CREATE DOMAIN fingerprint AS bytea CHECK (length(VALUE) = 32);
CREATE DOMAIN currency AS text CHECK (VALUE ~ '^[A-Z]{3}$');
CREATE DOMAIN payment_method AS text CHECK (VALUE IN ('card', 'pix'));
CREATE DOMAIN capture_at AS text CHECK (VALUE IN ('confirmation', 'shipping'));
CREATE DOMAIN late_payment AS text CHECK (VALUE IN ('reclaim', 'refund'));
CREATE DOMAIN payment_status AS text CHECK (VALUE IN (
    'created', 'begun', 'cleared', 'review', 'pending', 'authorised', 'settled', 'confirmed',
    'capturing', 'captured', 'lapsed', 'voiding', 'surplus', 'refunding', 'declined', 'withdrawn',
    'returned', 'rejected', 'refused', 'voided', 'refunded'));
CREATE DOMAIN refund_status AS text CHECK (VALUE IN ('requested', 'pending', 'done', 'failed'));
CREATE DOMAIN payment_event AS text CHECK (VALUE ~ '^(payment|refund)\.[a-z_]+$');

-- Attempts to pay. Not partitioned: an order has few, and one of it is looked for by several keys.
CREATE TABLE payments (
    id              payment_id  NOT NULL PRIMARY KEY,
    tenant          text        NOT NULL,
    order_day       date        NOT NULL,
    order_id        uuid        NOT NULL,
    buyer           text        NOT NULL,
    key             idempotency_key NOT NULL, -- of the request that made it
    fingerprint     fingerprint NOT NULL, -- of that request's body
    method          payment_method NOT NULL,
    provider        text,                 -- NULL: there is nothing to pay
    account         text        NOT NULL,
    reference       text,                 -- the provider's id of the charge
    capture_at      capture_at  NOT NULL,
    late            late_payment NOT NULL,
    currency        currency    NOT NULL,
    amount          bigint      NOT NULL,
    captured        bigint      NOT NULL DEFAULT 0,
    refunding       bigint      NOT NULL DEFAULT 0,
    refunded        bigint      NOT NULL DEFAULT 0,
    status          payment_status NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    return_to_stock boolean     NOT NULL DEFAULT false,
    action          jsonb,
    declined_by     text        NOT NULL DEFAULT '',
    expires_at      timestamptz NOT NULL,
    lapses_at       timestamptz,
    due_at          timestamptz,          -- NULL: nobody has to look after it, or its job does
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT payments_order FOREIGN KEY (order_day, order_id) REFERENCES orders (day, id),
    CONSTRAINT payments_once_per_key UNIQUE (order_id, key),
    CONSTRAINT payments_provider_where_money CHECK ((provider IS NULL) = (amount = 0)),
    CONSTRAINT payments_money CHECK (
        0 <= refunding AND 0 <= refunded AND refunding + refunded <= captured
        AND captured <= amount AND amount <= 9007199254740992),
    CONSTRAINT payments_captured_whole CHECK (
        status NOT IN ('settled', 'captured', 'surplus', 'refunding') OR captured = amount),
    CONSTRAINT payments_not_captured CHECK (
        captured = 0 OR status NOT IN ('created', 'begun', 'cleared', 'review', 'pending',
            'authorised', 'confirmed', 'capturing', 'lapsed', 'voiding', 'rejected'))
);

-- Money has moved, or will, for at most one payment that its order is paid by.
CREATE UNIQUE INDEX payments_one_pays ON payments (order_id)
    WHERE status IN ('confirmed', 'capturing', 'captured', 'lapsed', 'refunding');
CREATE UNIQUE INDEX payments_one_per_charge ON payments (provider, reference);
CREATE INDEX payments_due ON payments (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX payments_by_day ON payments (created_at);

-- For admins, who look for what did not go well; without it 100,000 payments are 23 ms of reading. It
-- leaves out the way of a sale, whose two statements it would cost 10 µs of 92: so it costs nothing
-- that can be measured. Of that way the ends are found at once, since they are most of all payments;
-- what is under way just now is looked for among all. payment.go names the same statuses.
CREATE INDEX payments_off_the_way ON payments (status, id) WHERE status NOT IN ('created', 'begun',
    'cleared', 'pending', 'authorised', 'settled', 'confirmed', 'capturing', 'captured');

-- The table of order.Status, and that of refunds; a test compares the first. In a function, whose
-- expressions are prepared once per session.
-- +goose StatementBegin
CREATE FUNCTION check_payment_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status || '>' || NEW.status = ANY (ARRAY[
        'created>begun', 'created>cleared', 'created>review', 'created>rejected',
        'created>pending', 'created>authorised', 'created>settled', 'created>declined',
        'created>captured',
        'begun>cleared', 'begun>review', 'begun>rejected', 'begun>pending', 'begun>authorised',
        'begun>settled', 'begun>declined',
        'cleared>rejected', 'cleared>pending', 'cleared>authorised', 'cleared>settled',
        'cleared>declined',
        'review>cleared', 'review>declined',
        'pending>authorised', 'pending>settled', 'pending>declined', 'pending>voiding',
        'authorised>confirmed', 'authorised>capturing', 'authorised>captured',
        'authorised>lapsed', 'authorised>voiding',
        'settled>captured', 'settled>surplus',
        'confirmed>capturing', 'confirmed>captured', 'confirmed>lapsed', 'confirmed>voiding',
        'capturing>captured', 'capturing>lapsed',
        'captured>refunding',
        'lapsed>captured', 'lapsed>withdrawn',
        'voiding>withdrawn', 'voiding>settled',
        'surplus>returned',
        'refunding>returned',
        'declined>refused',
        'withdrawn>voided',
        'returned>refunded',
        'refused>settled', 'refused>voiding',
        'voided>settled', 'voided>voiding'
    ]) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'payment % cannot become % from %', OLD.id, NEW.status, OLD.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_transition';
END
$$;
CREATE FUNCTION check_refund_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status || '>' || NEW.status = ANY (ARRAY[
        'requested>pending', 'requested>done', 'requested>failed', 'pending>done', 'pending>failed'
    ]) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'refund % cannot become % from %', OLD.id, NEW.status, OLD.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'refunds_transition';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER payments_transition BEFORE UPDATE ON payments FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION check_payment_transition();

-- Personal data and what stands for a card. It may be deleted when its payment rests for good. Written
-- by the statement that makes its payment, so that a foreign key would find, and lock, what has just
-- been written: half of what it costs to make a payment.
CREATE TABLE payers (
    payment    text NOT NULL PRIMARY KEY,
    card_token text NOT NULL,
    name       text NOT NULL,
    email      text NOT NULL,
    document   text NOT NULL,
    phone      text NOT NULL
);

CREATE TABLE refunds (
    id          text        NOT NULL PRIMARY KEY,
    payment     text        NOT NULL REFERENCES payments (id),
    provider    text        NOT NULL,
    key         idempotency_key,       -- NULL: nobody has asked for it
    fingerprint fingerprint,
    reference   text,
    currency    currency    NOT NULL,
    amount      bigint      NOT NULL,
    whole       boolean     NOT NULL,
    reason      text        NOT NULL,
    asked_by    text        NOT NULL,
    status      refund_status NOT NULL,
    due_at      timestamptz,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT refunds_once_per_key UNIQUE (payment, key),
    CONSTRAINT refunds_amount CHECK (amount > 0 OR (amount = 0 AND whole AND status = 'done')),
    CONSTRAINT refunds_fingerprint CHECK ((key IS NULL) = (fingerprint IS NULL))
);
CREATE UNIQUE INDEX refunds_one_whole ON refunds (payment) WHERE whole AND status <> 'failed';
CREATE UNIQUE INDEX refunds_one_per_reference ON refunds (provider, reference);
CREATE INDEX refunds_due ON refunds (due_at) WHERE due_at IS NOT NULL;

CREATE TRIGGER refunds_transition BEFORE UPDATE ON refunds FOR EACH ROW
    WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION check_refund_transition();

-- Everything that a provider has answered, whole. It may hold personal data. Written with a change of
-- its payment only, so that a foreign key would find what has just been found.
CREATE TABLE provider_answers (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment text        NOT NULL,
    call    text        NOT NULL,
    body    jsonb       NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX provider_answers_by_payment ON provider_answers (payment);

-- Webhooks, stored before they are acted on.
CREATE TABLE webhook_events (
    tenant      text        NOT NULL,
    provider    text        NOT NULL,
    event       text        NOT NULL CHECK (event <> ''),
    type        text        NOT NULL,
    payment     text        NOT NULL, -- as the provider says: it may be unknown
    reference   text        NOT NULL,
    account     text        NOT NULL,
    status      text        NOT NULL,
    refunded    bigint      NOT NULL,
    body        bytea       NOT NULL CHECK (length(body) <= 65536),
    at          timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    acted_at    timestamptz,
    due_at      timestamptz,
    PRIMARY KEY (tenant, provider, event)
);
CREATE INDEX webhook_events_due ON webhook_events (due_at) WHERE due_at IS NOT NULL;

-- What others are told of payments: written with the change, deleted when it is published.
CREATE TABLE payment_events (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind     payment_event NOT NULL,
    payment  text        NOT NULL,
    order_id uuid        NOT NULL,
    tenant   text        NOT NULL,
    currency text        NOT NULL,
    amount   bigint      NOT NULL,
    captured bigint      NOT NULL,
    refunded bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);
