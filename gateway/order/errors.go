package order

import (
	"errors"
	"fmt"

	"numera/engine/inventory"
)

var (
	// ErrOrderNotFound is returned when there is no such order, or it is another buyer's.
	ErrOrderNotFound = errors.New("order: no such order")

	// ErrPaymentNotFound is returned when there is no such payment, or none that fits: a refund of
	// an order that no payment has paid.
	ErrPaymentNotFound = errors.New("order: no such payment")

	// ErrOrderStatus is returned when the order's status does not allow it: a *StatusError.
	ErrOrderStatus = errors.New("order: not possible in this status")

	// ErrKeyReused is returned when the idempotency key was used for another body.
	ErrKeyReused = errors.New("order: idempotency key reused")

	// ErrInProgress is returned when the first request of this key, or another one that has to come
	// first, is still being worked on.
	ErrInProgress = errors.New("order: in progress")

	// ErrMethod is returned when no account of the tenant takes this method.
	ErrMethod = errors.New("order: no provider for this method of payment")

	// ErrTooManyAttempts is returned when an order already has MaxAttempts payments that may still
	// pay it.
	ErrTooManyAttempts = errors.New("order: too many attempts to pay")

	// ErrAmount is returned when a refund is not positive, in another currency, or more than what
	// was captured and has not gone back.
	ErrAmount = errors.New("order: amount out of bounds")

	// ErrLapsed is returned when the order's authorisation has run out before it was captured:
	// there is no money, and nothing must be shipped.
	ErrLapsed = errors.New("order: authorisation has lapsed")

	// ErrProvider is returned when a webhook names a provider that the tenant does not have.
	ErrProvider = errors.New("order: no such provider")

	// ErrConflict is returned by a Store when the row has changed since it was read: read again.
	ErrConflict = errors.New("order: changed meanwhile")

	// ErrMismatch is returned when the provider's charge is not what the payment asked for: another
	// amount, currency or account. It is raised, and a person has to decide.
	ErrMismatch = errors.New("order: the charge differs from the payment")

	// ErrEngine is returned when the engine gave an answer that no payment can be at fault for,
	// like a halted product. It is raised, and the step is done again later.
	ErrEngine = errors.New("order: refused by the engine")
)

// StatusError is ErrOrderStatus, and says which status it was.
type StatusError struct{ Status inventory.Status }

func (e *StatusError) Error() string { return fmt.Sprintf("%v: %v", ErrOrderStatus, e.Status) }

// Is makes errors.Is(e, ErrOrderStatus) true.
func (e *StatusError) Is(target error) bool { return target == ErrOrderStatus }
