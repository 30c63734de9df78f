// Package payment is how numera speaks to payment providers: one interface, one vocabulary, and a
// folder per provider below.
//
// A provider is asked with a key that is stored before it is asked, and asked again with the same
// key and the same parameters until it has answered. A provider that does not answer has neither
// accepted nor refused: [ErrUnknown], and [Provider.LookUp] tells. Amounts are in minor units.
// Implementations are safe for any number of goroutines, honour the context, keep nothing that a
// restart would lose, and never log a body.
package payment

import (
	"context"
	"time"
)

// Money is an amount in minor units of an ISO 4217 currency.
type Money struct {
	Amount   int64
	Currency string
}

// Method is how a buyer pays.
type Method string

// The methods.
const (
	MethodCard Method = "card" // authorised, then captured
	MethodPix  Method = "pix"  // settled by the buyer's bank, at any time after it was asked for
)

// Provider is one account at one payment provider.
type Provider interface {
	// Name is stable and short: it stands in rows, metrics and the path of webhooks.
	Name() string

	// Authorise asks for the money. The charge may come back in any status: a Pix and a card that
	// needs another step are StatusPending with an Action.
	Authorise(ctx context.Context, a Authorisation) (Charge, error)

	// Capture takes what was authorised, whole. Capturing twice is one capture.
	Capture(ctx context.Context, c Capture) (Charge, error)

	// Void gives an authorisation, or a charge that nobody has paid yet, back. A charge that has
	// settled meanwhile comes back as StatusCaptured: it has to be refunded instead.
	Void(ctx context.Context, v Void) (Charge, error)

	// Refund returns settled money, all or a part. It may be RefundPending for days.
	Refund(ctx context.Context, r RefundRequest) (Refund, error)

	// LookUp tells a charge's true state with all its refunds, by Reference if it is known and by
	// Payment if not. ErrNotFound: the provider has never heard of it, and will not act on it
	// later unless it is asked again.
	LookUp(ctx context.Context, r Reference) (Charge, error)

	// ParseWebhook verifies the signature over the raw body, and reads it. ErrSignature: it is
	// forged, or older than the provider's tolerance at now. ErrIgnored: it is genuine and not
	// about a charge or a refund.
	ParseWebhook(header func(name string) string, body []byte, now time.Time) (Notice, error)
}

// Reference names a charge. Payment is ours and always known; Provider is the provider's own id.
type Reference struct {
	Payment  string // the payment's id: the provider keeps it as our reference
	Provider string // "" until the provider has answered
}

// Authorisation is what a provider is asked for. Everything in it is stored before it is asked, so
// that a repeat is the same.
type Authorisation struct {
	Key         string // idempotency key: one per attempt
	Payment     string
	Order       string
	Amount      Money
	Method      Method
	CaptureNow  bool      // take the money at once where the method can: policy "at confirmation" keeps it false
	CardToken   string    // with MethodCard: what the provider's page gave the browser. Never a card number
	ExpiresAt   time.Time // after it the buyer cannot pay any more; before the order's own deadline
	Description string
	Payer       Payer
}

// Payer is personal data: it goes to the provider and to Postgres, and nowhere else.
type Payer struct {
	Name, Email, Document, Phone string
}

// Capture, Void and RefundRequest name a charge with the key of this call.
type (
	Capture struct {
		Key string
		Reference
		Amount Money
	}
	Void struct {
		Key string
		Reference
	}
	RefundRequest struct {
		Key    string
		Refund string // our id of the refund: the provider keeps it as our reference
		Reference
		Amount Money
		Reason string
	}
)

// Status of a charge, in the words of every provider.
type Status string

// The statuses.
const (
	StatusPending    Status = "pending"    // waits for the buyer: see Action
	StatusAuthorised Status = "authorised" // reserved until LapsesAt
	StatusCaptured   Status = "captured"   // settled; Refunded of it has gone back
	StatusDeclined   Status = "declined"   // for good: it will never settle
	StatusVoided     Status = "voided"     // given back, or expired unpaid; a Pix may still settle late
	StatusLapsed     Status = "lapsed"     // the authorisation ran out before it was captured
)

// Charge is what a provider says of a payment.
type Charge struct {
	Reference
	Status     Status
	Amount     Money
	Captured   Money
	Refunded   Money // of Captured; confirmed refunds only
	Refunds    []Refund
	Method     Method
	Account    string    // whose money it is at the provider; compared with the configured one
	LapsesAt   time.Time // of an authorisation; zero: not known
	Action     Action
	DeclinedBy string // the provider's reason, for operators; never shown to a buyer
	Raw        []byte // the whole answer, as JSON: it is kept
}

// Action is what a buyer has to do. Zero: nothing.
type Action struct {
	Kind      ActionKind
	PixCode   string    // ActionPix: the copy-paste text (EMV, with its checksum)
	URL       string    // ActionRedirect
	ClientKey string    // ActionConfirm: what the provider's page in the browser needs
	ExpiresAt time.Time // of the Pix
}

// ActionKind names an Action.
type ActionKind string

// The kinds.
const (
	ActionNone     ActionKind = ""
	ActionPix      ActionKind = "pix"
	ActionRedirect ActionKind = "redirect"
	ActionConfirm  ActionKind = "confirm"
)

// RefundStatus of a refund.
type RefundStatus string

// The statuses of a refund.
const (
	RefundPending RefundStatus = "pending"
	RefundDone    RefundStatus = "done"
	RefundFailed  RefundStatus = "failed"
)

// Refund is what a provider says of a refund.
type Refund struct {
	ID       string // ours, "" if it was made by hand at the provider
	Provider string // the provider's id
	Amount   Money
	Status   RefundStatus
	Raw      []byte
}

// Notice is a webhook's content. It is a hint to look, never the truth by itself: events repeat,
// come late and in any order.
type Notice struct {
	Event string // the provider's id of the event: the same for every repetition
	Reference
	Type    string // as the provider names it
	Account string
	At      time.Time
	Charge  *Charge // where the event itself carries the charge
}
