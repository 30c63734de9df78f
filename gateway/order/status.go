package order

import "slices"

// Status is where a payment stands: its recovery point.
type Status string

// The statuses of a payment. The comment says what the next step does, or why it rests.
const (
	StatusCreated    Status = "created"    // begin the payment in the engine
	StatusBegun      Status = "begun"      // ask anti-fraud
	StatusCleared    Status = "cleared"    // ask the provider for the money
	StatusReview     Status = "review"     // rests until an admin decides
	StatusPending    Status = "pending"    // rests until the buyer acts, or the time for it is over
	StatusAuthorised Status = "authorised" // confirm the order
	StatusSettled    Status = "settled"    // the money is here already: confirm the order
	StatusConfirmed  Status = "confirmed"  // rests: the order is paid, captured when it is shipped
	StatusCapturing  Status = "capturing"  // capture
	StatusCaptured   Status = "captured"   // rests: the order is paid
	StatusLapsed     Status = "lapsed"     // rests, raised: paid, and the money is not there
	StatusVoiding    Status = "voiding"    // give back what is not captured
	StatusSurplus    Status = "surplus"    // refund: the money has no order
	StatusRefunding  Status = "refunding"  // refund: somebody asked for it
	StatusDeclined   Status = "declined"   // end the order in the engine, then refused
	StatusWithdrawn  Status = "withdrawn"  // likewise, then voided
	StatusReturned   Status = "returned"   // likewise, then refunded
	StatusRejected   Status = "rejected"   // rests: the order could not be paid; no provider was asked
	StatusRefused    Status = "refused"    // rests
	StatusVoided     Status = "voided"     // rests
	StatusRefunded   Status = "refunded"   // rests
)

// Queue is who looks after payments that do not move on their own.
type Queue string

// The queues.
const (
	QueuePayment      Queue = "payment"
	QueueWebhook      Queue = "webhook"
	QueueCompensation Queue = "compensation"
	QueueCapture      Queue = "capture"
	QueueExpiry       Queue = "expiry"
)

// Queues are all queues.
func Queues() []Queue {
	return []Queue{QueuePayment, QueueWebhook, QueueCompensation, QueueCapture, QueueExpiry}
}

// rule is what there is to know of a status.
type rule struct {
	rests  bool
	mayPay bool // the order may still be paid by a payment in it
	queue  Queue
	next   []Status
}

// asked is what may come of asking the provider.
var asked = []Status{StatusPending, StatusAuthorised, StatusSettled, StatusDeclined}

// rules is the state machine. What has become of the provider's side while ours was elsewhere is in
// it too: a Pix can settle after it was voided.
var rules = map[Status]rule{
	// A card's sale is one step from here, if nothing comes between: see walk.keep.
	StatusCreated: {false, true, QueuePayment, append([]Status{
		StatusBegun, StatusCleared, StatusReview, StatusRejected, StatusCaptured,
	}, asked...)},
	StatusBegun: {
		false, true, QueuePayment,
		append([]Status{StatusCleared, StatusReview, StatusRejected}, asked...),
	},
	StatusCleared: {false, true, QueuePayment, append([]Status{StatusRejected}, asked...)},
	StatusReview:  {true, true, QueuePayment, []Status{StatusCleared, StatusDeclined}},
	StatusPending: {true, true, QueueExpiry, []Status{StatusAuthorised, StatusSettled, StatusDeclined, StatusVoiding}},
	StatusAuthorised: {false, true, QueuePayment, []Status{
		StatusConfirmed, StatusCapturing, StatusCaptured, StatusLapsed, StatusVoiding,
	}},
	StatusSettled:   {false, true, QueuePayment, []Status{StatusCaptured, StatusSurplus}},
	StatusConfirmed: {true, false, QueueCapture, []Status{StatusCapturing, StatusCaptured, StatusLapsed, StatusVoiding}},
	StatusCapturing: {false, false, QueueCapture, []Status{StatusCaptured, StatusLapsed}},
	StatusCaptured:  {true, false, QueueCompensation, []Status{StatusRefunding}},
	StatusLapsed:    {true, false, QueueCapture, []Status{StatusCaptured, StatusWithdrawn}},
	StatusVoiding:   {false, false, QueueCompensation, []Status{StatusWithdrawn, StatusSettled}},
	StatusSurplus:   {false, false, QueueCompensation, []Status{StatusReturned}},
	StatusRefunding: {false, false, QueueCompensation, []Status{StatusReturned}},
	StatusDeclined:  {false, false, QueueCompensation, []Status{StatusRefused}},
	StatusWithdrawn: {false, false, QueueCompensation, []Status{StatusVoided}},
	StatusReturned:  {false, false, QueueCompensation, []Status{StatusRefunded}},
	StatusRejected:  {rests: true, queue: QueuePayment},
	StatusRefused:   {true, false, QueueCompensation, []Status{StatusSettled, StatusVoiding}},
	StatusVoided:    {true, false, QueueCompensation, []Status{StatusSettled, StatusVoiding}},
	StatusRefunded:  {rests: true, queue: QueueCompensation},
}

// Statuses are all statuses, sorted.
func Statuses() []Status {
	var all []Status
	for status := range rules {
		all = append(all, status)
	}
	slices.Sort(all)
	return all
}

// Next are the statuses that may follow s. It is the only place that knows; the database has a
// copy, and a test compares them.
func (s Status) Next() []Status { return slices.Clone(rules[s].next) }

// Rests says that nothing has to be done for a payment in s before somebody acts from outside.
func (s Status) Rests() bool { return rules[s].rests }

// MayPay says that a payment in s can still turn out to pay its order.
func (s Status) MayPay() bool { return rules[s].mayPay }

// Queue is where a payment that stands still in s is looked after.
func (s Status) Queue() Queue { return rules[s].queue }

// may says whether next may follow s. A row may always be written again in its status.
func (s Status) may(next Status) bool { return s == next || slices.Contains(rules[s].next, next) }
