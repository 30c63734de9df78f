package wal

import (
	"bytes"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// eachBoot runs check on the group now and after the store was opened again.
func eachBoot(t *testing.T, s *Store, check func(g *Group)) {
	t.Helper()
	config := s.config
	config.Create = false
	check(groupOf(t, s, 1))
	require.NoError(t, s.Close())
	s = reopened(t, config)
	check(groupOf(t, s, 1))
	require.NoError(t, s.Close())
}

func TestLogIsWhatWasStoredAndNotDeleted(t *testing.T) {
	store := func(term, first, last uint64) func(*Group) error {
		return func(g *Group) error { return g.StoreLogs(entriesOf(term, first, last)) }
	}
	remove := func(from, to uint64) func(*Group) error {
		return func(g *Group) error { return g.DeleteRange(from, to) }
	}
	for name, test := range map[string]struct {
		steps []func(*Group) error
		want  map[uint64]uint64
	}{
		"empty":                   {nil, nil},
		"one batch":               {steps(store(1, 1, 5)), termsOf(1, 1, 5)},
		"starts after a snapshot": {steps(store(7, 900, 905)), termsOf(7, 900, 905)},
		"append":                  {steps(store(1, 1, 5), store(1, 6, 9)), termsOf(1, 1, 9)},
		"prefix deleted":          {steps(store(1, 1, 9), remove(1, 4)), termsOf(1, 5, 9)},
		"prefix from below":       {steps(store(1, 5, 9), remove(1, 6)), termsOf(1, 7, 9)},
		"suffix deleted":          {steps(store(1, 1, 9), remove(6, 9)), termsOf(1, 1, 5)},
		"suffix to above":         {steps(store(1, 1, 9), remove(6, 99)), termsOf(1, 1, 5)},
		"all deleted":             {steps(store(1, 1, 9), remove(1, 9)), nil},
		"all discarded":           {steps(store(1, 1, 9), (*Group).DiscardLog), nil},
		"outside the log": {
			steps(store(1, 5, 9), remove(1, 4), remove(10, 12)), termsOf(1, 5, 9),
		},
		"long prefix": {steps(store(1, 1, 900), remove(1, 800)), termsOf(1, 801, 900)},
		"long suffix": {steps(store(1, 1, 900), remove(101, 900)), termsOf(1, 1, 100)},
		"long range, stored again": {
			steps(store(1, 1, 900), remove(9, 900), store(2, 9, 700)),
			merged(termsOf(1, 1, 8), termsOf(2, 9, 700)),
		},
		"stored again after all": {
			steps(store(1, 1, 9), remove(1, 9), store(2, 10, 12)), termsOf(2, 10, 12),
		},
		"conflict replaced": {
			steps(store(1, 1, 9), remove(6, 9), store(2, 6, 7)),
			merged(termsOf(1, 1, 5), termsOf(2, 6, 7)),
		},
		"overwritten, what follows goes": {
			steps(store(1, 1, 9), store(2, 4, 5)), merged(termsOf(1, 1, 3), termsOf(2, 4, 5)),
		},
		"overwritten from the first": {steps(store(1, 3, 9), store(2, 3, 4)), termsOf(2, 3, 4)},
		"begins anew after a gap":    {steps(store(1, 1, 9), store(2, 50, 51)), termsOf(2, 50, 51)},
		"begins anew before":         {steps(store(1, 50, 60), store(2, 9, 10)), termsOf(2, 9, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			s := created(t, testConfig(t, vfs.NewMem()))
			for _, step := range test.steps {
				require.NoError(t, step(groupOf(t, s, 1)))
			}
			eachBoot(t, s, func(g *Group) {
				requireLog(t, g, test.want)
				require.Equal(t, len(test.want), storedRecords(t, g), "nothing is left behind")
			})
		})
	}
}

// storedRecords counts the records of a group in the database, also those outside its log.
func storedRecords(t *testing.T, g *Group) int {
	iter, err := g.store.db.NewIter(&pebble.IterOptions{
		LowerBound: recordKey(g.id, 0), UpperBound: recordKey(g.id, math.MaxUint64),
	})
	require.NoError(t, err)
	count := 0
	for valid := iter.First(); valid; valid = iter.Next() {
		count++
	}
	require.NoError(t, iter.Close())
	return count
}

func steps(s ...func(*Group) error) []func(*Group) error { return s }

func TestHolesAreRefused(t *testing.T) {
	s := created(t, testConfig(t, vfs.NewMem()))
	g := groupOf(t, s, 1)
	require.NoError(t, g.StoreLogs(entriesOf(1, 1, 9)))

	require.ErrorIs(t, g.DeleteRange(4, 5), ErrInnerRange)
	holed := append(entriesOf(2, 10, 11), entriesOf(2, 13, 13)...)
	require.ErrorIs(t, g.StoreLogs(holed), ErrNotConsecutive)
	require.ErrorIs(t, g.StoreLog(&raft.Log{Index: 0}), ErrNotConsecutive)
	require.ErrorIs(t, g.StoreLog(&raft.Log{Index: math.MaxUint64}), ErrNotConsecutive)
	huge := &raft.Log{Index: 10, Data: make([]byte, recordMaxBytes+1)}
	require.ErrorIs(t, g.StoreLog(huge), ErrTooLarge)
	require.NoError(t, g.StoreLogs(nil))

	eachBoot(t, s, func(g *Group) { requireLog(t, g, termsOf(1, 1, 9)) })
}

func TestEntryComesBackWhole(t *testing.T) {
	s := created(t, testConfig(t, vfs.NewMem()))
	entries := []*raft.Log{
		{Index: 1, Term: 3, Type: raft.LogConfiguration, Data: []byte("data"), Extensions: []byte("ext")},
		{Index: 2, Term: 3, Type: raft.LogNoop, AppendedAt: time.Unix(12, 34).UTC()},
		{Index: 3, Term: math.MaxUint64, Type: raft.LogBarrier, Extensions: []byte("only")},
		{Index: 4, Term: 3, Data: bytes.Repeat([]byte("large"), 1<<18)}, // beyond the memtable
	}
	require.NoError(t, groupOf(t, s, 1).StoreLogs(entries))
	eachBoot(t, s, func(g *Group) {
		for _, want := range entries {
			got := raft.Log{Data: []byte("of an earlier call")}
			require.NoError(t, g.GetLog(want.Index, &got))
			require.Equal(t, *want, got)
		}
	})
}

func TestStableValues(t *testing.T) {
	s := created(t, testConfig(t, vfs.NewMem()))
	g := groupOf(t, s, 1)
	_, err := g.Get([]byte("LastVoteCand"))
	require.EqualError(t, err, "not found")
	_, err = g.GetUint64([]byte("LastVoteTerm"))
	require.EqualError(t, err, "not found")

	// As raft votes: the term first, then the candidate, and neither touches the log.
	require.NoError(t, g.StoreLogs(entriesOf(1, 1, 3)))
	require.NoError(t, g.SetUint64([]byte("LastVoteTerm"), 7))
	require.NoError(t, g.Set([]byte("LastVoteCand"), []byte("node-1")))
	require.NoError(t, g.Set([]byte("LastVoteCand"), []byte("node-2")))
	require.NoError(t, g.Set([]byte("Empty"), nil))
	require.ErrorIs(t, g.Set([]byte("big"), make([]byte, stateMaxBytes)), ErrTooLarge)
	require.NoError(t, g.DiscardLog())
	require.NoError(t, groupOf(t, s, 2).SetUint64([]byte("LastVoteTerm"), 9))

	eachBoot(t, s, func(g *Group) {
		requireLog(t, g, nil)
		term, err := g.GetUint64([]byte("LastVoteTerm"))
		require.NoError(t, err)
		require.EqualValues(t, 7, term)
		candidate, err := g.Get([]byte("LastVoteCand"))
		require.NoError(t, err)
		require.Equal(t, "node-2", string(candidate))
		empty, err := g.Get([]byte("Empty"))
		require.NoError(t, err)
		require.Empty(t, empty)
		_, err = g.Get([]byte("big"))
		require.Equal(t, ErrKeyNotFound, err)
	})
}

func TestStoreIsNotMonotonic(t *testing.T) {
	s := created(t, testConfig(t, vfs.NewMem()))
	require.False(t, groupOf(t, s, 1).IsMonotonic())
	require.NoError(t, s.Close())
}

// A reader that runs into a deletion must hear "not found", not "corrupt".
func TestReadersMeetWriters(t *testing.T) {
	s := created(t, testConfig(t, vfs.NewMem()))
	g := groupOf(t, s, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 16 { // more than processors, so that they are interrupted
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for index := uint64(1); index <= 40; index++ {
					var got raft.Log
					err := g.GetLog(index, &got)
					if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
						t.Errorf("index %d: %v", index, err)
						return
					}
				}
			}
		})
	}
	for round := range uint64(150) {
		require.NoError(t, g.StoreLogs(entriesOf(round, 1, 40)))
		require.NoError(t, g.DeleteRange(20, 40))
		require.NoError(t, g.DeleteRange(1, 10))
	}
	close(stop)
	readers.Wait()
	require.NoError(t, s.Close())
}

func TestGroupsCommitAtOnce(t *testing.T) {
	config := testConfig(t, vfs.NewMem())
	s := created(t, config)
	var writers sync.WaitGroup
	for id := range uint16(8) {
		g := groupOf(t, s, id)
		writers.Go(func() {
			for index := uint64(1); index <= 50; index++ {
				if err := g.StoreLogs(entriesOf(uint64(id), index, index)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stats := s.Stats()
	require.EqualValues(t, 400, stats.Commits)
	require.EqualValues(t, 400, stats.Records)
	require.Positive(t, stats.Syncs)
	require.NoError(t, s.Close())

	s = reopened(t, config)
	for id := range uint16(8) {
		requireLog(t, groupOf(t, s, id), termsOf(uint64(id), 1, 50))
	}
	require.NoError(t, s.Close())
}
