package wal

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

const (
	testDir   = "node"
	testOwner = "shop/node-1"
)

// testConfig is a small store in fs. A fault fails the test unless it replaces OnFault.
func testConfig(t testing.TB, fs vfs.FS) Config {
	return Config{
		Dir:           testDir,
		Owner:         testOwner,
		FS:            fs,
		MemTableBytes: 1 << 20,
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
		OnFault:       func(err error) { t.Errorf("unexpected fault: %v", err) },
	}
}

func created(t testing.TB, config Config) *Store {
	t.Helper()
	config.Create = true
	s, err := Open(config)
	require.NoError(t, err)
	return s
}

func reopened(t testing.TB, config Config) *Store {
	t.Helper()
	s, err := Open(config)
	require.NoError(t, err)
	return s
}

func groupOf(t testing.TB, s *Store, id uint16) *Group {
	t.Helper()
	g, err := s.Group(id)
	require.NoError(t, err)
	return g
}

// entriesOf returns entries first to last of a term, whose data can be told by index and term.
func entriesOf(term, first, last uint64) []*raft.Log {
	var entries []*raft.Log
	for index := first; index <= last; index++ {
		data := fmt.Appendf(nil, "entry %d of term %d", index, term)
		entries = append(entries, &raft.Log{Index: index, Term: term, Data: data})
	}
	return entries
}

// requireLog checks bounds and content; terms maps every index to its term.
func requireLog(t testing.TB, g *Group, terms map[uint64]uint64) {
	t.Helper()
	first, last := uint64(0), uint64(0)
	for index := range terms {
		if first == 0 || index < first {
			first = index
		}
		last = max(last, index)
	}
	gotFirst, err := g.FirstIndex()
	require.NoError(t, err)
	gotLast, err := g.LastIndex()
	require.NoError(t, err)
	require.Equal(t, [2]uint64{first, last}, [2]uint64{gotFirst, gotLast})
	for index := range terms {
		var got raft.Log
		require.NoError(t, g.GetLog(index, &got))
		require.Equal(t, *entriesOf(terms[index], index, index)[0], got)
	}
	var got raft.Log
	require.Equal(t, raft.ErrLogNotFound, g.GetLog(first-1, &got))
	require.Equal(t, raft.ErrLogNotFound, g.GetLog(last+1, &got))
}

func termsOf(term, first, last uint64) map[uint64]uint64 {
	terms := make(map[uint64]uint64)
	for index := first; index <= last; index++ {
		terms[index] = term
	}
	return terms
}

func merged(parts ...map[uint64]uint64) map[uint64]uint64 {
	all := make(map[uint64]uint64)
	for _, part := range parts {
		for index, term := range part {
			all[index] = term
		}
	}
	return all
}

// fromEnvironment returns the number that a variable holds, or the default.
func fromEnvironment(t testing.TB, name string, number uint64) uint64 {
	if text := os.Getenv(name); text != "" {
		var err error
		number, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	return number
}

// seeded returns a source of the seed in WAL_SEED, or of a fixed one, and prints the seed when
// the test fails.
func seeded(t testing.TB) *rand.Rand {
	seed := fromEnvironment(t, "WAL_SEED", 20261129)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("run again with WAL_SEED=%d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func TestFirstBootIsToldApart(t *testing.T) {
	fs := vfs.NewMem()
	config := testConfig(t, fs)

	_, err := Open(config)
	require.ErrorIs(t, err, ErrNotCreated)
	names, _ := fs.List(testDir)
	require.Empty(t, names, "a refused start leaves nothing behind")

	require.NoError(t, created(t, config).Close())
	require.NoError(t, reopened(t, config).Close())

	again := config
	again.Create = true
	_, err = Open(again)
	require.ErrorIs(t, err, ErrAlreadyCreated)

	other := config
	other.Owner = "shop/node-2"
	_, err = Open(other)
	require.ErrorIs(t, err, ErrWrongOwner)
}

func TestOnlyOneProcessOpensAStore(t *testing.T) {
	config := testConfig(t, vfs.NewMem())
	require.NoError(t, created(t, config).Close())
	s := reopened(t, config)
	_, err := Open(config)
	require.Error(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, reopened(t, config).Close())
}

func TestEverythingSurvivesReopening(t *testing.T) {
	config := testConfig(t, nil)
	config.FS, config.Dir = vfs.Default, t.TempDir()
	s := created(t, config)
	for id := range uint16(3) {
		g := groupOf(t, s, id)
		require.NoError(t, g.StoreLogs(entriesOf(1, 1, 10+uint64(id))))
		require.NoError(t, g.SetUint64([]byte("CurrentTerm"), uint64(id)))
	}
	require.NoError(t, s.Close())

	s = reopened(t, config)
	for id := range uint16(3) {
		g := groupOf(t, s, id)
		requireLog(t, g, termsOf(1, 1, 10+uint64(id)))
		term, err := g.GetUint64([]byte("CurrentTerm"))
		require.NoError(t, err)
		require.EqualValues(t, id, term)
	}
	require.NoError(t, s.Close())
}

func TestNothingWorksAfterClose(t *testing.T) {
	config := testConfig(t, vfs.NewMem())
	s := created(t, config)
	g := groupOf(t, s, 1)
	require.NoError(t, g.StoreLogs(entriesOf(1, 1, 1)))
	require.NoError(t, s.Close())

	require.ErrorIs(t, s.Close(), ErrClosed)
	require.ErrorIs(t, g.StoreLogs(entriesOf(1, 2, 2)), ErrClosed)
	require.ErrorIs(t, g.Set([]byte("k"), nil), ErrClosed)
	require.ErrorIs(t, g.DeleteRange(1, 1), ErrClosed)
	require.ErrorIs(t, g.GetLog(1, new(raft.Log)), ErrClosed)
	_, err := s.Group(2)
	require.ErrorIs(t, err, ErrClosed)
	require.EqualValues(t, 1, s.Stats().Commits)
}

func TestConfigIsValidated(t *testing.T) {
	good := testConfig(t, vfs.NewMem())
	good.Create = true
	for name, spoil := range map[string]func(*Config){
		"no dir":       func(c *Config) { c.Dir = "" },
		"no owner":     func(c *Config) { c.Owner = "" },
		"no OnFault":   func(c *Config) { c.OnFault = nil },
		"tiny table":   func(c *Config) { c.MemTableBytes = 1 },
		"negative":     func(c *Config) { c.MinSyncInterval = -1 },
		"hasty limit":  func(c *Config) { c.StallLimit = 1 },
		"endless name": func(c *Config) { c.Owner = string(make([]byte, 256)) },
	} {
		bad := good
		spoil(&bad)
		_, err := Open(bad)
		require.Error(t, err, name)
	}
}
