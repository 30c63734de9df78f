-- +goose Up

-- Attempts to pay. Not partitioned: an order has few, and one of it is looked for by several keys.
CREATE TABLE payments (
    id              text        NOT NULL PRIMARY KEY,
    tenant          text        NOT NULL,
    order_day       date        NOT NULL,
    order_id        uuid        NOT NULL,
    buyer           text        NOT NULL,
    key             text        NOT NULL, -- of the request that made it
    fingerprint     bytea       NOT NULL, -- of that request's body
    method          text        NOT NULL,
    provider        text,                 -- NULL: there is nothing to pay
    account         text        NOT NULL,
    reference       text,                 -- the provider's id of the charge
    capture_at      text        NOT NULL,
    late            text        NOT NULL,
    currency        text        NOT NULL,
    amount          bigint      NOT NULL,
    captured        bigint      NOT NULL DEFAULT 0,
    refunding       bigint      NOT NULL DEFAULT 0,
    refunded        bigint      NOT NULL DEFAULT 0,
    status          text        NOT NULL,
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
    CONSTRAINT payments_id_form CHECK (id ~ '^[!-~]{1,64}$'),
    CONSTRAINT payments_key_form CHECK (key ~ '^[!-~]{1,255}$'),
    CONSTRAINT payments_fingerprint CHECK (length(fingerprint) = 32),
    CONSTRAINT payments_method_known CHECK (method IN ('card', 'pix')),
    CONSTRAINT payments_capture_known CHECK (capture_at IN ('confirmation', 'shipping')),
    CONSTRAINT payments_late_known CHECK (late IN ('reclaim', 'refund')),
    CONSTRAINT payments_currency CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT payments_provider_where_money CHECK ((provider IS NULL) = (amount = 0)),
    CONSTRAINT payments_money CHECK (
        0 <= refunding AND 0 <= refunded AND refunding + refunded <= captured
        AND captured <= amount AND amount <= 9007199254740992),
    CONSTRAINT payments_status_known CHECK (status IN (
        'created', 'begun', 'cleared', 'review', 'pending', 'authorised', 'settled', 'confirmed',
        'capturing', 'captured', 'lapsed', 'voiding', 'surplus', 'refunding', 'declined',
        'withdrawn', 'returned', 'rejected', 'refused', 'voided', 'refunded')),
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

-- +goose StatementBegin
CREATE FUNCTION refuse_payment_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'payment % cannot become % from %', OLD.id, NEW.status, OLD.status
        USING ERRCODE = 'check_violation', CONSTRAINT = 'payments_transition';
END
$$;
-- +goose StatementEnd

-- The condition is the table of order.Status; a test compares them. It is evaluated without calling
-- the function, so that a legal update costs a few comparisons.
CREATE TRIGGER payments_transition BEFORE UPDATE ON payments FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('created', 'begun'), ('created', 'cleared'), ('created', 'review'),
        ('created', 'rejected'), ('created', 'pending'), ('created', 'authorised'),
        ('created', 'settled'), ('created', 'declined'),
        ('begun', 'cleared'), ('begun', 'review'), ('begun', 'rejected'), ('begun', 'pending'),
        ('begun', 'authorised'), ('begun', 'settled'), ('begun', 'declined'),
        ('cleared', 'rejected'), ('cleared', 'pending'), ('cleared', 'authorised'),
        ('cleared', 'settled'), ('cleared', 'declined'),
        ('review', 'cleared'), ('review', 'declined'),
        ('pending', 'authorised'), ('pending', 'settled'), ('pending', 'declined'),
        ('pending', 'voiding'),
        ('authorised', 'confirmed'), ('authorised', 'capturing'), ('authorised', 'voiding'),
        ('settled', 'captured'), ('settled', 'surplus'),
        ('confirmed', 'capturing'), ('confirmed', 'captured'), ('confirmed', 'lapsed'),
        ('confirmed', 'voiding'),
        ('capturing', 'captured'), ('capturing', 'lapsed'),
        ('captured', 'refunding'),
        ('lapsed', 'captured'), ('lapsed', 'withdrawn'),
        ('voiding', 'withdrawn'), ('voiding', 'settled'),
        ('surplus', 'returned'), ('refunding', 'returned'),
        ('declined', 'refused'), ('withdrawn', 'voided'), ('returned', 'refunded'),
        ('refused', 'settled'), ('refused', 'voiding'),
        ('voided', 'settled'), ('voided', 'voiding')))
    EXECUTE FUNCTION refuse_payment_transition();

-- Personal data and what stands for a card. It may be deleted when its payment rests for good.
CREATE TABLE payers (
    payment    text NOT NULL PRIMARY KEY REFERENCES payments (id) ON DELETE CASCADE,
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
    key         text,                  -- NULL: nobody has asked for it
    fingerprint bytea,
    reference   text,
    currency    text        NOT NULL,
    amount      bigint      NOT NULL,
    whole       boolean     NOT NULL,
    reason      text        NOT NULL,
    asked_by    text        NOT NULL,
    status      text        NOT NULL,
    due_at      timestamptz,
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT refunds_once_per_key UNIQUE (payment, key),
    CONSTRAINT refunds_amount CHECK (amount > 0 OR (amount = 0 AND whole AND status = 'done')),
    CONSTRAINT refunds_fingerprint CHECK ((key IS NULL) = (fingerprint IS NULL)),
    CONSTRAINT refunds_status_known CHECK (status IN ('requested', 'pending', 'done', 'failed'))
);
CREATE UNIQUE INDEX refunds_one_whole ON refunds (payment) WHERE whole AND status <> 'failed';
CREATE UNIQUE INDEX refunds_one_per_reference ON refunds (provider, reference);
CREATE INDEX refunds_due ON refunds (due_at) WHERE due_at IS NOT NULL;

CREATE TRIGGER refunds_transition BEFORE UPDATE ON refunds FOR EACH ROW
    WHEN (OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
        ('requested', 'pending'), ('requested', 'done'), ('requested', 'failed'),
        ('pending', 'done'), ('pending', 'failed')))
    EXECUTE FUNCTION refuse_payment_transition();

-- Everything that a provider has answered, whole. It may hold personal data.
CREATE TABLE provider_answers (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payment text        NOT NULL REFERENCES payments (id),
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
    kind     text        NOT NULL CHECK (kind ~ '^(payment|refund)\.[a-z_]+$'),
    payment  text        NOT NULL,
    order_id uuid        NOT NULL,
    tenant   text        NOT NULL,
    currency text        NOT NULL,
    amount   bigint      NOT NULL,
    captured bigint      NOT NULL,
    refunded bigint      NOT NULL,
    at       timestamptz NOT NULL DEFAULT now()
);
