package payment

import "errors"

var (
	// ErrUnknown is returned when the provider may have acted: a timeout, a broken connection
	// after the request was written, a 5xx. Look up, then ask again with the same key.
	ErrUnknown = errors.New("payment: outcome unknown at the provider")

	// ErrUnavailable is returned when the provider has certainly not acted: no connection, or it
	// said that it is too busy. Ask again later with the same key.
	ErrUnavailable = errors.New("payment: provider unavailable")

	// ErrRejected is returned when the provider refuses the request itself (wrong key, wrong
	// parameters, an amount above what was captured): asking again will not help, an operator has
	// to look.
	ErrRejected = errors.New("payment: request rejected by the provider")

	// ErrNotFound is returned by LookUp when the provider knows no such charge.
	ErrNotFound = errors.New("payment: no such charge at the provider")

	// ErrSignature is returned when a webhook is forged, or too old.
	ErrSignature = errors.New("payment: webhook signature is not valid")

	// ErrIgnored is returned when a genuine webhook is about nothing that concerns payments.
	ErrIgnored = errors.New("payment: webhook of no concern")
)
