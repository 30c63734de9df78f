package shard

import "errors"

var (
	// ErrNotLeader is returned when another node leads the shard, or none does. Nothing was done.
	ErrNotLeader = errors.New("shard: not the leader")

	// ErrOverloaded is returned when the queue is full, or the command has waited in it for
	// longer than Config.QueueWait. Nothing was done.
	ErrOverloaded = errors.New("shard: overloaded")

	// ErrExpired is returned when the asker's deadline came before the command was proposed.
	// Nothing was done.
	ErrExpired = errors.New("shard: deadline passed in the queue")

	// ErrUnavailable is returned when the shard is stopping, or short of disk space. Nothing was
	// done.
	ErrUnavailable = errors.New("shard: unavailable")

	// ErrOutcomeUnknown is returned when leadership was lost, or nothing was heard, after the
	// command was proposed: it may or may not have acted. Asking again with the same key tells.
	ErrOutcomeUnknown = errors.New("shard: outcome unknown")

	// ErrConfig is returned when a Config cannot be used; the text says why.
	ErrConfig = errors.New("shard: unusable config")

	// ErrCluster is returned when the data directory belongs to another cluster, was made with
	// another number of shards, or lacks a part that it should have.
	ErrCluster = errors.New("shard: data directory does not fit")
)
