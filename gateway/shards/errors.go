package shards

import (
	"errors"
	"time"
)

var (
	// ErrOverloaded is returned when nothing was done because a queue was full, here or at the
	// shard, or because the request waited in one until its deadline: an *OverloadedError.
	ErrOverloaded = errors.New("shards: overloaded")

	// ErrUnavailable is returned when the shard could not serve the request until its deadline,
	// and nothing was done: an *UnavailableError. Of a query also when it was not answered.
	ErrUnavailable = errors.New("shards: shard unavailable")

	// ErrOutcomeUnknown is returned when the command may have acted, and no outcome came until
	// its deadline.
	ErrOutcomeUnknown = errors.New("shards: outcome unknown")

	// ErrRejected is returned when the shard made no sense of the request: nothing was done. One
	// of the two runs an older version, or a limit of a query is out of bounds.
	ErrRejected = errors.New("shards: request rejected")

	// ErrInvalid is returned when the request cannot be sent as it is: it names no shard, or one
	// that does not exist, or its texts are longer than the shard would read.
	ErrInvalid = errors.New("shards: invalid request")

	// ErrClosed is returned when the Client is closed, or was closed before the request was sent.
	ErrClosed = errors.New("shards: client closed")

	// ErrNoCluster is returned by New when no node of a cluster said what it is in time.
	ErrNoCluster = errors.New("shards: no cluster found")
)

// OverloadedError is ErrOverloaded, and says when it may be worth while to try again.
type OverloadedError struct{ RetryAfter time.Duration }

func (e *OverloadedError) Error() string { return ErrOverloaded.Error() }

// Is makes errors.Is(e, ErrOverloaded) true.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// UnavailableError is ErrUnavailable, and says when it may be worth while to try again.
type UnavailableError struct{ RetryAfter time.Duration }

func (e *UnavailableError) Error() string { return ErrUnavailable.Error() }

// Is makes errors.Is(e, ErrUnavailable) true.
func (e *UnavailableError) Is(target error) bool { return target == ErrUnavailable }
