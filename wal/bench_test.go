package wal

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"
	"github.com/stretchr/testify/require"
)

// benchStore is on the real file system, below WAL_BENCH_DIR when that is set.
func benchStore(b *testing.B, change func(*Config)) *Store {
	config := testConfig(b, vfs.Default)
	dir, err := os.MkdirTemp(os.Getenv("WAL_BENCH_DIR"), "wal-bench-")
	require.NoError(b, err)
	config.Dir, config.MemTableBytes = dir, 0
	if change != nil {
		change(&config)
	}
	s := created(b, config)
	b.Cleanup(func() {
		require.NoError(b, s.Close())
		require.NoError(b, os.RemoveAll(dir))
	})
	return s
}

// appender stores batches at the end of a group's log, and keeps the log short as raft does.
type appender struct {
	group   *Group
	entries []*raft.Log
	next    uint64
}

func newAppender(b *testing.B, s *Store, id uint16, count, dataBytes int) *appender {
	a := &appender{group: groupOf(b, s, id), next: 1}
	for range count {
		a.entries = append(a.entries, &raft.Log{Term: 1, Data: make([]byte, dataBytes)})
	}
	return a
}

func (a *appender) store(b *testing.B) {
	const keep, drop = 10_000, 5_000
	for _, entry := range a.entries {
		entry.Index = a.next
		a.next++
	}
	require.NoError(b, a.group.StoreLogs(a.entries))
	first, err := a.group.FirstIndex()
	require.NoError(b, err)
	if a.next-first > keep {
		require.NoError(b, a.group.DeleteRange(first, first+drop))
	}
}

func BenchmarkStoreLogs(b *testing.B) {
	for _, size := range []struct{ count, dataBytes int }{
		{1, 64}, {1024, 64}, {1, 64 << 10}, {1, 512 << 10},
	} {
		b.Run(fmt.Sprintf("%dx%dB", size.count, size.dataBytes), func(b *testing.B) {
			s := benchStore(b, nil)
			a := newAppender(b, s, 1, size.count, size.dataBytes)
			b.SetBytes(int64(size.count * size.dataBytes))
			b.ReportAllocs()
			for b.Loop() {
				a.store(b)
			}
		})
	}
}

// BenchmarkGroups measures how many fsyncs a commit costs when groups commit at once, each as
// fast as it can, and what a minimum interval between fsyncs does to that.
func BenchmarkGroups(b *testing.B) {
	for _, interval := range []time.Duration{0, 100 * time.Microsecond, 500 * time.Microsecond} {
		for _, groups := range []int{1, 8, 32} {
			b.Run(fmt.Sprintf("%s/%d", interval, groups), func(b *testing.B) {
				s := benchStore(b, func(c *Config) { c.MinSyncInterval = interval })
				before := s.Stats()
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				b.ResetTimer()
				for id := range groups {
					a := newAppender(b, s, uint16(id), 1, 16<<10)
					all.Go(func() {
						for left.Add(-1) >= 0 {
							a.store(b)
						}
					})
				}
				all.Wait()
				after := s.Stats()
				commits := float64(after.Commits - before.Commits)
				b.ReportMetric(float64(after.Syncs-before.Syncs)/commits, "fsyncs/commit")
				b.ReportMetric(float64(after.CommitNanos-before.CommitNanos)/commits/1e3, "µs/commit")
			})
		}
	}
}

// BenchmarkPebbleCommit is the floor: one synced batch of the same size, nothing of ours.
func BenchmarkPebbleCommit(b *testing.B) {
	s := benchStore(b, nil)
	value := make([]byte, 64)
	for b.Loop() {
		require.NoError(b, s.db.Set([]byte{0xff}, value, pebble.Sync))
	}
}

func BenchmarkOpen(b *testing.B) {
	const batches, count, dataBytes = 20, 500, 16 << 10
	config := testConfig(b, vfs.Default)
	config.Dir, config.MemTableBytes = b.TempDir(), 0
	s := created(b, config)
	a := newAppender(b, s, 1, count, dataBytes)
	for range batches {
		a.store(b)
	}
	require.NoError(b, s.Close())
	b.SetBytes(batches * count * dataBytes)
	for b.Loop() {
		require.NoError(b, reopened(b, config).Close())
	}
}

// BenchmarkRaft runs raft's own benchmarks of a store, those whose logs begin at 1 without gaps.
func BenchmarkRaft(b *testing.B) {
	for name, run := range map[string]func(*testing.B, raft.LogStore){
		"FirstIndex": raftbench.FirstIndex,
		"LastIndex":  raftbench.LastIndex,
		"GetLog":     raftbench.GetLog,
		"StoreLogs":  raftbench.StoreLogs,
	} {
		b.Run(name, func(b *testing.B) { run(b, groupOf(b, benchStore(b, nil), 1)) })
	}
	for name, run := range map[string]func(*testing.B, raft.StableStore){
		"Set": raftbench.Set, "Get": raftbench.Get,
		"SetUint64": raftbench.SetUint64, "GetUint64": raftbench.GetUint64,
	} {
		b.Run(name, func(b *testing.B) { run(b, groupOf(b, benchStore(b, nil), 1)) })
	}
}
