package shards

import (
	"fmt"
	"math"
	"time"

	"numera/shard/wire"
)

// Config is how patient and how large a Client is. Zero members take the default.
type Config struct {
	// Timeout bounds every call; the deadline of its context may be sooner. Default 5 s.
	Timeout time.Duration
	// AttemptTimeout is how long one attempt may stay unanswered before the next is made: longer
	// than a commit takes under load, shorter than Timeout. Default 2 s.
	AttemptTimeout time.Duration
	// InfoTimeout is how long New waits for a cluster. Default 10 s.
	InfoTimeout time.Duration

	// Queue is how many calls to one shard may wait to be sent, here, for the first time or
	// again. One more is overloaded. Default 4096.
	Queue int
	// InFlight is how many calls to one shard may be sent and not answered. Each takes room in
	// the shard's own queue. Default 4096; with Queue at most 65,536.
	InFlight int

	// BatchRequests and BatchBytes bound one message. Default 256, and 256 KiB; at least 64 KiB,
	// and at most what the NATS server takes.
	BatchRequests int
	BatchBytes    int

	// PartBytes is how much memory incomplete large answers may take together. Beyond it their
	// calls end as overloaded. Default 256 MiB.
	PartBytes int64
}

const minBatchBytes = 64 << 10 // more than the largest command takes

func (c Config) withDefaults() Config {
	setDefault(&c.Timeout, 5*time.Second)
	setDefault(&c.AttemptTimeout, 2*time.Second)
	setDefault(&c.InfoTimeout, 10*time.Second)
	setDefault(&c.Queue, 4096)
	setDefault(&c.InFlight, 4096)
	setDefault(&c.BatchRequests, 256)
	setDefault(&c.BatchBytes, 256<<10)
	setDefault(&c.PartBytes, 256<<20)
	return c
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// validate checks a Config that has its defaults.
func (c Config) validate() error {
	switch {
	case c.Timeout < time.Millisecond || c.Timeout > wire.MaxRemaining,
		c.AttemptTimeout < time.Millisecond, c.InfoTimeout < time.Millisecond:
		return fmt.Errorf("shards: timeouts must be between 1 ms and %v", wire.MaxRemaining)
	case c.Queue < 1 || c.InFlight < 1 || c.Queue > maxSlots || c.InFlight > maxSlots-c.Queue:
		return fmt.Errorf("shards: Queue and InFlight must be at least 1, together at most %d",
			maxSlots)
	case c.BatchRequests < 1 || c.BatchRequests > wire.MaxItems:
		return fmt.Errorf("shards: BatchRequests must be 1 to %d", wire.MaxItems)
	case c.BatchBytes < minBatchBytes || c.PartBytes < 1:
		return fmt.Errorf("shards: BatchBytes must be at least %d, PartBytes 1", minBatchBytes)
	}
	return nil
}

// maxSlots is how many calls the ids of one shard can tell apart, see callID.
const maxSlots = math.MaxUint16 + 1
