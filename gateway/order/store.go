package order

import (
	"context"
	"encoding/json"
	"time"

	"numera/engine/inventory"
	"numera/gateway/payment"
	"numera/shard/wire"
)

// Engine is what checkout needs of the shards: see gateway/shards.Client for the contract.
type Engine interface {
	Do(ctx context.Context, e inventory.Entry) (*inventory.Outcome, error)
	Order(ctx context.Context, q wire.OrderQuery) (*inventory.Outcome, error)
}

// Store keeps payments. Every method that writes is one transaction, and safe to repeat after an
// error that leaves open whether it was committed.
type Store interface {
	// Create stores a new payment with its secret, and the order's row where there is none yet. If
	// the order and key have a payment already, that one comes back; its id tells.
	// ErrTooManyAttempts: the order has MaxAttempts that may still pay it.
	Create(ctx context.Context, p Payment, s Secret, o *inventory.OrderView) (Created, error)

	// Payment reads one, or ErrPaymentNotFound, as ByKey and ByReference do.
	Payment(ctx context.Context, id inventory.PaymentID) (Payment, error)
	ByKey(ctx context.Context, order inventory.OrderID, key string) (Payment, error)
	ByReference(ctx context.Context, provider, reference string) (Payment, error)
	// OfOrder reads all payments of an order, oldest first.
	OfOrder(ctx context.Context, order inventory.OrderID) ([]Payment, error)
	// Secret reads what was stored with the payment.
	Secret(ctx context.Context, id inventory.PaymentID) (Secret, error)

	// Save writes a change if the payment's row has the version that it was read with, and returns
	// the row; else ErrConflict, and nothing is written.
	Save(ctx context.Context, c Change) (Payment, error)

	// Refunds reads all refunds of a payment, oldest first; Refund reads one.
	Refunds(ctx context.Context, id inventory.PaymentID) ([]Refund, error)
	Refund(ctx context.Context, id string) (Refund, error)

	// Receive stores a webhook; fresh is false if its event is stored already.
	Receive(ctx context.Context, w Webhook) (fresh bool, err error)
	// Webhook reads one, or ErrPaymentNotFound.
	Webhook(ctx context.Context, id WebhookID) (Webhook, error)
	// Sift notes that nothing has to be done about those webhooks that tell nothing which the row of
	// their payment does not say already. Of the others it returns those whose payment somebody moves
	// just now, as it does not rest and has changed since then, and those to be acted on.
	Sift(ctx context.Context, ids []WebhookID, since time.Time) (moving, news []WebhookID, err error)
	// Acted notes that nothing more has to be done about it.
	Acted(ctx context.Context, id WebhookID) error

	// Raise records what a person has to look at, once while it is open.
	Raise(ctx context.Context, f Finding) error
}

// Created is what a Store has for an order and a key.
type Created struct {
	Payment Payment
	Alone   bool // it is new, and the order has no other that may still pay it
}

// MaxAttempts is how many payments of one order may be under way at once.
const MaxAttempts = 10

// Secret is personal data and what stands for a card: it is kept apart, and in no other place.
type Secret struct {
	Payer     payment.Payer
	CardToken string
}

// Change is all that one step writes.
type Change struct {
	Payment Payment  // as it should be; its Version is the one that was read
	Answers []Answer // what the provider said, if it was asked
	Events  []Event
	Refunds []Refund // new ones, and changed ones
	// WakeSiblings makes the order's other payments due that wait for the buyer: they can no longer
	// pay it.
	WakeSiblings bool
	// Resolves is the kind of a finding about the payment that no longer holds, or "".
	Resolves string
}

// Answer is a provider's whole answer to one call.
type Answer struct {
	Call string          `json:"call"` // authorise, capture, void, refund, look_up
	Body json.RawMessage `json:"body"`
}

// Event is what the rest of the world is told of a payment, in the vocabulary of the engine's
// events.
type Event string

// The events. The engine's own payment.started, payment.approved and payment.refused are not among
// them.
const (
	EventAuthorised Event = "payment.authorised"
	EventCaptured   Event = "payment.captured"
	EventVoided     Event = "payment.voided"
	EventLapsed     Event = "payment.lapsed"
	EventReview     Event = "payment.review"
	EventSurplus    Event = "payment.surplus"
	EventRefunded   Event = "payment.refunded" // all of it
	EventRefund     Event = "refund.done"      // some of it
	EventRefundFail Event = "refund.failed"
)

// Finding is a difference that has no one right answer, or something that somebody should know of.
// It holds no personal data.
type Finding struct {
	Kind    string // of [a-z_]
	Subject string // the id of a payment or order
	Detail  string
}

// WebhookID names a stored webhook.
type WebhookID struct{ Tenant, Provider, Event string }

// Webhook is a verified notice of a provider, with its raw body.
type Webhook struct {
	WebhookID
	Type      string
	Payment   string // as the provider names it; "" if it does not
	Reference string
	Account   string
	Status    payment.Status // of the charge, where the event carries it
	Refunded  int64          // of the charge, likewise
	Body      []byte
	At        time.Time // as the provider says
	Received  time.Time
	Acted     time.Time // zero: not yet
}
