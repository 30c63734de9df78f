package wire

import "errors"

var (
	// ErrMalformed is returned when bytes are not what was expected: a wrong checksum, another
	// version or kind, cut, trailing, not in the one canonical form, or part of another body.
	ErrMalformed = errors.New("wire: malformed message")

	// ErrTooLarge is returned when an answer is larger than MaxBody.
	ErrTooLarge = errors.New("wire: answer too large")
)
