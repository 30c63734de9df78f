package order

import (
	"encoding/base32"
	"time"

	"github.com/google/uuid"

	"numera/engine/inventory"
	"numera/gateway/payment"
)

// Payment is one attempt to pay one order, as its row was read. It holds no personal data.
type Payment struct {
	ID          inventory.PaymentID
	Tenant      string
	Order       inventory.OrderID
	Buyer       inventory.BuyerID
	Key         string // of the request that made it: one payment per order and key
	Fingerprint []byte // of that request's body, 32 bytes

	Method    payment.Method
	Provider  string // chosen before it was asked, and never changed; "" if there is nothing to pay
	Account   string // of ours at the provider, as its charges should name it; "" is not compared
	Reference string // the provider's id of the charge; "" until it has answered
	Policy    Policy

	Amount    payment.Money // the order's price when it was reserved
	Captured  int64         // of Amount, in its minor units, as are the next two
	Refunding int64         // of Captured: asked to go back
	Refunded  int64         // of Captured: has gone back

	Status  Status
	Version int64 // rises with every change

	// ReturnToStock says what happens to the numbers when the whole payment is refunded.
	ReturnToStock bool

	Action     payment.Action // what the buyer has to do; with StatusPending
	DeclinedBy string         // the provider's reason, for operators
	ExpiresAt  time.Time      // after it the buyer should not be able to pay at the provider any more
	LapsesAt   time.Time      // of an authorisation; zero: not known
	DueAt      time.Time      // when a worker has to look after it; zero: nobody has to
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// CaptureAt is when authorised money is taken.
type CaptureAt string

// When authorised money is taken.
const (
	CaptureAtConfirmation CaptureAt = "confirmation"
	CaptureAtShipping     CaptureAt = "shipping"
)

// Late is what happens to money that arrives when its order has already ended.
type Late string

// What happens to late money.
const (
	LateReclaim Late = "reclaim" // the same numbers if all are free, else it goes back
	LateRefund  Late = "refund"  // it goes back
)

// Policy is what a product says of its payments. The zero Policy is capture at confirmation, and
// reclaim.
type Policy struct {
	CaptureAt CaptureAt
	Late      Late
}

// join is the policy of a basket: the more careful of two.
func (p Policy) join(q Policy) Policy {
	if p.CaptureAt == "" {
		p.CaptureAt = CaptureAtConfirmation
	}
	if p.Late == "" {
		p.Late = LateReclaim
	}
	if q.CaptureAt == CaptureAtShipping {
		p.CaptureAt = CaptureAtShipping
	}
	if q.Late == LateRefund {
		p.Late = LateRefund
	}
	return p
}

// Refund is money of a payment that goes back. A whole one ends its order too.
type Refund struct {
	ID          string
	Payment     inventory.PaymentID
	Key         string // of the request; "" if nobody asked: surplus, or made at the provider
	Fingerprint []byte
	Reference   string // the provider's id; "" until it has answered
	Amount      payment.Money
	Whole       bool
	Reason      string
	By          string // who asked for it
	Status      RefundStatus
	DueAt       time.Time // as in Payment; of one that is not whole, which goes on by itself
	CreatedAt   time.Time
}

// RefundStatus is where a refund stands.
type RefundStatus string

// The statuses of a refund.
const (
	RefundRequested RefundStatus = "requested" // the provider has to be asked
	RefundPending   RefundStatus = "pending"   // it has accepted, and takes its time
	RefundDone      RefundStatus = "done"
	RefundFailed    RefundStatus = "failed" // no money has gone back, for good
)

// ended says that the refund will not change any more.
func (s RefundStatus) ended() bool { return s == RefundDone || s == RefundFailed }

// shortText is how ids are written: 26 characters for 16 bytes, in the order of the bytes. The
// engine keeps payment ids in memory, so short is good.
var shortText = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// newID makes an id that sorts by age, so that indexes grow at one end.
func newID() string {
	id := uuid.Must(uuid.NewV7())
	return shortText.EncodeToString(id[:])
}
