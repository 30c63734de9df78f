package bench

import "errors"

var (
	// ErrConfig is returned when a Config cannot be run; the text says why.
	ErrConfig = errors.New("bench: unusable config")

	// ErrViolated is returned when the oracle found a promise broken; the text says which.
	ErrViolated = errors.New("bench: promise broken")

	// ErrIncomplete is returned when a run could not be carried out or read back, so that nothing
	// is known of the promises.
	ErrIncomplete = errors.New("bench: run incomplete")
)
