package shards

import "numera/engine/inventory"

// Stats are what a Client counts. Those that say so are gauges, the others only rise.
type Stats struct {
	Malformed uint64 // messages that were not understood
	PartBytes int64  // gauge: bytes of incomplete large answers
	Shards    []ShardStats
}

// ShardStats are what a Client counts for one shard.
type ShardStats struct {
	Shard    inventory.ShardID
	Live     int // gauge: calls that have not ended, wherever they are
	Queued   int // gauge: of these, to be sent now
	InFlight int // gauge: of these, sent and not yet answered
	Delayed  int // gauge: of these, to be sent again after a pause

	Calls           uint64 // admitted
	Batches         uint64 // messages sent
	BatchedRequests uint64 // in these: divided by Batches, the size of a batch
	Retries         uint64 // attempts that were not the first of their call
	NoResponders    uint64 // messages that found no leader
	Unanswered      uint64 // attempts given up after Config.AttemptTimeout
	Late            uint64 // responses to an attempt that had been given up
	Ignored         uint64 // responses that no call waited for, or that it had not asked for

	// Calls that ended with the error of this name.
	Overloaded  uint64
	Unavailable uint64
	Unknown     uint64
}

// Stats reads the counters into s, reusing its memory.
func (c *Client) Stats(s *Stats) {
	s.Malformed, s.PartBytes = c.malformed.Load(), c.parts.Load()
	s.Shards = s.Shards[:0]
	for _, l := range c.lanes {
		l.mu.Lock()
		shard := l.stats
		shard.Live, shard.Queued = l.live.len, l.queued.len
		shard.InFlight, shard.Delayed = l.sent.len, l.delayed.len
		l.mu.Unlock()
		s.Shards = append(s.Shards, shard)
	}
}
