package wal

import (
	"math/bits"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// CommitBuckets is the number of buckets of Stats.CommitLatency.
const CommitBuckets = 24

// Stats is what a store has done since it was opened. Counters only grow.
type Stats struct {
	Commits     uint64 // acknowledged commits of all groups
	CommitNanos uint64 // their latencies, added up: encode, queue, fsync, receipt
	// CommitLatency counts commits by latency: bucket i those below 2^i microseconds and not
	// below half of that; the last bucket also those above.
	CommitLatency [CommitBuckets]uint64
	Records       uint64 // log records stored
	RecordBytes   uint64 // their frames
	Deleted       uint64 // log records deleted

	Syncs          uint64 // fsyncs of the write-ahead log
	SyncNanos      uint64 // time spent in them
	WALBytes       uint64 // size of the write-ahead log files that are live
	DiskBytes      uint64 // size of all files of the database
	WriteStalls    uint64 // times Pebble held writes back
	SlowOperations uint64 // file operations above 5 s
	// BackgroundErrors counts failed flushes and compactions. Pebble tries them again and no
	// record is lost, but the write-ahead log grows: alarm.
	BackgroundErrors uint64
}

// counters are the parts of Stats that the store itself counts.
type counters struct {
	commits, commitNanos, records, recordBytes, deleted atomic.Uint64
	writeStalls, slowOperations, backgroundErrors       atomic.Uint64
	commitLatency                                       [CommitBuckets]atomic.Uint64
}

func (c *counters) committed(latency time.Duration) {
	c.commits.Add(1)
	c.commitNanos.Add(uint64(latency))
	c.commitLatency[commitBucket(latency)].Add(1)
}

func commitBucket(latency time.Duration) int {
	return min(bits.Len64(uint64(latency/time.Microsecond)), CommitBuckets-1)
}

// Stats reads the counters. It may be called from any goroutine, at the pace of a metrics scrape:
// it takes locks inside Pebble. After Close it returns the store's own counters only.
func (s *Store) Stats() Stats {
	c := &s.counters
	stats := Stats{
		Commits:          c.commits.Load(),
		CommitNanos:      c.commitNanos.Load(),
		Records:          c.records.Load(),
		RecordBytes:      c.recordBytes.Load(),
		Deleted:          c.deleted.Load(),
		WriteStalls:      c.writeStalls.Load(),
		SlowOperations:   c.slowOperations.Load(),
		BackgroundErrors: c.backgroundErrors.Load(),
	}
	for i := range stats.CommitLatency {
		stats.CommitLatency[i] = c.commitLatency[i].Load()
	}
	s.lifetime.RLock()
	defer s.lifetime.RUnlock()
	if s.closed || s.fault.err() != nil {
		return stats
	}
	metrics := s.db.Metrics()
	var sync dto.Metric
	if err := metrics.LogWriter.FsyncLatency.Write(&sync); err == nil {
		stats.Syncs = sync.GetHistogram().GetSampleCount()
		stats.SyncNanos = uint64(sync.GetHistogram().GetSampleSum())
	}
	stats.WALBytes = metrics.WAL.PhysicalSize
	stats.DiskBytes = metrics.DiskSpaceUsage()
	return stats
}
