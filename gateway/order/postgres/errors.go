package postgres

import "errors"

var (
	// ErrNoOrder is returned when there is no row of an order: it is newer than the rows, or it
	// never existed.
	ErrNoOrder = errors.New("postgres: no row of this order")

	// ErrAnotherEngine is returned when the rows are a copy of another engine's orders: the DSN is
	// that of another system, or its engine was made anew.
	ErrAnotherEngine = errors.New("postgres: the rows belong to another engine")

	// ErrEngineBehind is returned when the rows contain events that the engine does not have: it
	// was restored from an older copy. What it has lost is in the rows only, so they are kept.
	ErrEngineBehind = errors.New("postgres: the engine is older than the rows")

	// errStandby is returned when another follower of the same database is at work.
	errStandby = errors.New("postgres: another follower writes the rows")

	// errMoved is returned when somebody else has changed the offsets, as a restore does.
	errMoved = errors.New("postgres: the offsets are not where they were")

	// errTrimmed is returned when the outbox no longer keeps what the rows need next.
	errTrimmed = errors.New("postgres: the outbox no longer keeps what comes next")
)
