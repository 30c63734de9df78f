package shard

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/shard/clock"
)

// Config says how a node is run. Zero values mean the defaults named beside them.
type Config struct {
	// Dir holds everything the node must not forget: the cluster's identity, the write-ahead log
	// and the snapshots. Required.
	Dir string

	// Shards is fixed when the cluster is made. 0 means what the directory says, or 8 for a new
	// one; anything else must agree with it. At most 1,024.
	Shards int

	// Listen is where other nodes reach this one; default 127.0.0.1:0, for a node alone.
	Listen string

	// Conn is where the shards take their requests. Required. The node does not close it.
	Conn *nats.Conn

	// Clock is the node's log time. Required.
	Clock *clock.Clock

	// OnFault is told, once, why the process must end: the storage failed or stalled, or a
	// replica can no longer be trusted. It must not call Close. Required.
	OnFault func(error)

	// ElectionTimeout is how long a follower waits for its leader; default 1 s. A node alone
	// elects itself after one to two of it.
	ElectionTimeout time.Duration

	// QueueLength bounds the commands that wait to be proposed, per shard; default 8,192. About
	// 300 bytes each.
	QueueLength int

	// QueueWait bounds how long they wait; default 2 s.
	QueueWait time.Duration

	// BatchCommands and BatchBytes bound one log entry; defaults 512 and 256 KiB. What waits should be
	// several entries, so that one is applied and another synced meanwhile.
	BatchCommands int
	BatchBytes    int

	// InFlight is how many entries of a shard may be proposed and have not reached the engine yet;
	// default 2. More hide more of the replication's latency; fewer make larger entries.
	InFlight int

	// SnapshotBytes and SnapshotEntries are how much log is kept for replay at a restart before a
	// snapshot is taken; defaults 128 MiB and 65,536. If the last snapshot was larger than SnapshotBytes,
	// it is in proportion more of both, up to 8 times.
	SnapshotBytes   int
	SnapshotEntries int

	// MinFreeBytes is the free space of Dir's file system below which nothing is proposed any
	// more; default 256 MiB.
	MinFreeBytes uint64

	// MemTableBytes is that of the write-ahead log; default 64 MiB.
	MemTableBytes uint64

	Actors     int                   // per shard; default 2
	Limits     inventory.Limits      // default inventory.DefaultLimits
	FS         vfs.FS                // of the write-ahead log; default the operating system's
	Logger     *slog.Logger          // default slog.Default
	Registerer prometheus.Registerer // nil: metrics are kept and not shown

	// What only tests set.
	freeBytes func(dir string) (uint64, error) // default freeBytes
	voters    []raft.Server                    // of a new cluster; default this node alone
	identity  *identity                        // of a new cluster; default one of its own
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, time.Second)
	c.QueueLength = cmp.Or(c.QueueLength, 8192)
	c.QueueWait = cmp.Or(c.QueueWait, 2*time.Second)
	c.BatchCommands = cmp.Or(c.BatchCommands, 512)
	c.BatchBytes = cmp.Or(c.BatchBytes, 256<<10)
	c.InFlight = cmp.Or(c.InFlight, 2)
	c.SnapshotBytes = cmp.Or(c.SnapshotBytes, 128<<20)
	c.SnapshotEntries = cmp.Or(c.SnapshotEntries, 65536)
	c.MinFreeBytes = cmp.Or(c.MinFreeBytes, 256<<20)
	c.Actors = cmp.Or(c.Actors, 2)
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Limits == (inventory.Limits{}) {
		c.Limits = inventory.DefaultLimits()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.freeBytes == nil {
		c.freeBytes = freeBytes
	}
	if tell := c.OnFault; tell != nil {
		var once sync.Once
		c.OnFault = func(err error) { once.Do(func() { tell(err) }) }
	}
	return c
}

// mostShards bounds Config.Shards: each is a raft group with a dozen goroutines.
const mostShards = 1024

func (c *Config) validate() error {
	switch {
	case c.Dir == "":
		return fmt.Errorf("%w: no data directory", ErrConfig)
	case c.Conn == nil || c.Clock == nil || c.OnFault == nil:
		return fmt.Errorf("%w: Conn, Clock and OnFault are required", ErrConfig)
	case c.Shards < 0 || c.Shards > mostShards:
		return fmt.Errorf("%w: %d shards, not 1 to %d", ErrConfig, c.Shards, mostShards)
	case c.QueueLength < 1 || c.BatchCommands < 1 || c.BatchBytes < 1 || c.InFlight < 1 ||
		c.SnapshotBytes < 1 || c.SnapshotEntries < 1 || c.QueueWait < 0 || c.ElectionTimeout < 0:
		return fmt.Errorf("%w: a bound below 1", ErrConfig)
	case c.BatchBytes > 512<<10:
		return fmt.Errorf("%w: a log entry has at most 512 KiB", ErrConfig)
	}
	return nil
}
