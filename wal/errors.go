package wal

import "errors"

var (
	// ErrCorrupt is returned when stored bytes don't verify, when the log of a group has a
	// hole, or when a write that was acknowledged is missing. The node must not start: it would
	// vote and answer from a history that is not the one it promised.
	ErrCorrupt = errors.New("wal: corrupt")

	// ErrFaulted is returned by everything after the first storage error. Whether the write
	// that met the error is on disk is unknown until the next start.
	ErrFaulted = errors.New("wal: stopped by a storage fault")

	// ErrStalled is wrapped in the fault when a write was in flight for longer than
	// Config.StallLimit.
	ErrStalled = errors.New("wal: write stalled")

	// ErrClosed is returned when a method is called after Close.
	ErrClosed = errors.New("wal: closed")

	// ErrNotCreated is returned when the directory holds no initialised store and
	// Config.Create is false: a wrong mount must not pass for an empty node.
	ErrNotCreated = errors.New("wal: no store in this directory")

	// ErrAlreadyCreated is returned when Config.Create is true and the directory holds a store.
	ErrAlreadyCreated = errors.New("wal: directory already holds a store")

	// ErrWrongOwner is returned when the store in the directory was created for another
	// Config.Owner.
	ErrWrongOwner = errors.New("wal: store belongs to another owner")

	// ErrNotConsecutive is returned when the records of one batch don't have consecutive
	// indexes starting above 0. Nothing was written.
	ErrNotConsecutive = errors.New("wal: indexes are not consecutive")

	// ErrInnerRange is returned when DeleteRange would leave records on both sides of a hole.
	// Nothing was deleted.
	ErrInnerRange = errors.New("wal: range inside the log")

	// ErrTooLarge is returned when a record or the stable values of a group exceed their limit.
	// Nothing was written.
	ErrTooLarge = errors.New("wal: too large")

	// ErrKeyNotFound is returned when a stable key was never set. Raft compares its text, which
	// is part of the contract.
	ErrKeyNotFound = errors.New("not found")
)
