package wal

import (
	"errors"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config says where a Store lives and how it behaves. The zero value of every optional field
// means the default named beside it.
type Config struct {
	// Dir is the directory of the store, alone its own. Required.
	Dir string

	// Owner names the node the store belongs to, at most 255 bytes. It is written on the first
	// boot and compared on every later one, so that another node's volume is refused. Required.
	Owner string

	// Create says that this is the node's first boot: the store is initialised, and a directory
	// that holds one already is refused. A first boot that was interrupted is repeated with
	// Create. False on every later boot: a directory without a store is refused then.
	Create bool

	// FS is the file system. Nil means the operating system's.
	FS vfs.FS

	// MemTableBytes is the size at which the in-memory table is flushed to a file. Log records
	// that are compacted away before are never written twice. Four tables may exist at once.
	// Zero means 64 MiB.
	MemTableBytes uint64

	// MinSyncInterval delays an fsync until this long after the one before, so that more
	// commits share it. Costs up to as much latency. Zero means no delay: commits that arrive
	// during an fsync share the next one anyway. What was measured does not settle it (see
	// DESIGN.md).
	MinSyncInterval time.Duration

	// StallLimit is how long a write may be in flight before it is a fault. Time in which the
	// process itself did not run is not counted. Zero means 5 s; less than 100 ms is refused.
	StallLimit time.Duration

	// Logger receives what the operator should know. Nil means slog.Default().
	Logger *slog.Logger

	// OnFault is called at most once, from a goroutine of the store, with the first storage
	// error: a failed or stalled write, or a record that does not verify. The store is dead from
	// then on and the process must end, since goroutines may be stuck in the failed write for
	// good. It must not call Close. An error while opening is Open's result instead. Required.
	OnFault func(error)
}

const (
	defaultMemTableBytes = 64 << 20
	defaultStallLimit    = 5 * time.Second
	minStallLimit        = 100 * time.Millisecond
	ownerMaxBytes        = 255
)

func (c Config) withDefaults() Config {
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = defaultMemTableBytes
	}
	if c.StallLimit == 0 {
		c.StallLimit = defaultStallLimit
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("wal: Config.Dir is empty")
	case c.Owner == "" || len(c.Owner) > ownerMaxBytes:
		return errors.New("wal: Config.Owner must have 1 to 255 bytes")
	case c.OnFault == nil:
		return errors.New("wal: Config.OnFault is nil")
	case c.MemTableBytes < 1<<20 || c.MemTableBytes > 1<<30:
		return errors.New("wal: Config.MemTableBytes must be 1 MiB to 1 GiB")
	case c.MinSyncInterval < 0 || c.MinSyncInterval > 10*time.Millisecond:
		return errors.New("wal: Config.MinSyncInterval must be 0 to 10 ms")
	case c.StallLimit < minStallLimit:
		return errors.New("wal: Config.StallLimit must be at least 100 ms")
	}
	return nil
}
