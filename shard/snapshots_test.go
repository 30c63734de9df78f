package shard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/wal"
)

// TestSnapshotWhileWriting takes a snapshot every few entries under load, and restarts from what
// that leaves.
func TestSnapshotWhileWriting(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	config.SnapshotEntries = 5
	n := openNode(t, config)
	do(t, n.Shard(0), product("a", 100_000))
	for round := range 3 {
		var writers sync.WaitGroup
		for b := range 4 {
			writers.Go(func() {
				for k := range 100 {
					o := do(t, n.Shard(0), reserve(fmt.Sprint(round, "-", k), fmt.Sprint("b", b)))
					require.Equal(t, inventory.CodeOK, o.Code)
				}
			})
		}
		writers.Wait()
		s := n.Shard(0)
		digest := s.Digest()
		require.NoError(t, n.Close())
		kept, err := s.snapshots.kept()
		require.NoError(t, err)
		require.Len(t, kept, keptSnapshots)

		n = openNode(t, config)
		require.Equal(t, digest, n.Shard(0).Digest())
		require.EqualValues(t, 400*(round+1), n.Shard(0).engine.Product("a").Counters.Reserved)
		first, err := n.Shard(0).logs.FirstIndex()
		require.NoError(t, err)
		require.Greater(t, first, uint64(1), "the log was cut")
	}
	require.NoError(t, n.Close())
}

// TestSnapshotsInProportion: the larger the last snapshot was, also before a restart, the more log has
// to gather for the next.
func TestSnapshotsInProportion(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	do(t, n.Shard(0), product("a", 1000))
	for k := range 20 {
		do(t, n.Shard(0), reserve(fmt.Sprint(k), "b"))
	}
	require.NoError(t, n.Shard(0).Snapshot())
	_, state, err := newest(n.Shard(0).snapshots)
	require.NoError(t, err)
	written, err := io.ReadAll(state)
	require.NoError(t, err)
	require.NoError(t, state.Close())
	require.EqualValues(t, len(written), n.Shard(0).fsm.state.Load())
	require.NoError(t, n.Close())
	n = openNode(t, config)
	require.EqualValues(t, len(written), n.Shard(0).fsm.state.Load())
	require.NoError(t, n.Close())

	var f fsm
	f.limits.bytes, f.limits.entries = 100, 10
	for _, c := range []struct {
		state, bytes, entries int64
		large                 bool
	}{
		{0, 99, 9, false},
		{0, 100, 1, true},
		{0, 1, 10, true},
		{50, 99, 9, false},
		{50, 100, 1, true},
		{300, 299, 29, false},
		{300, 300, 1, true},
		{300, 1, 30, true},
		{1 << 40, 799, 79, false},
		{1 << 40, 800, 1, true},
		{1 << 40, 1, 80, true},
	} {
		f.state.Store(c.state)
		f.bytes.Store(c.bytes)
		f.entries.Store(c.entries)
		require.Equal(t, c.large, f.large(), "%+v", c)
	}
}

func newest(s *snapshots) (*raft.SnapshotMeta, io.ReadCloser, error) {
	all, err := s.kept()
	if err != nil {
		return nil, nil, err
	}
	return s.Open(all[0].name)
}

// TestUnreadableSnapshot damages the newest snapshot: the node starts with all that it had, by the
// older one and the log, and goes on from there.
func TestUnreadableSnapshot(t *testing.T) {
	t.Parallel()
	config, files := snapshotted(t)
	n := openNode(t, config)
	digest := n.Shard(0).Digest()
	require.NoError(t, n.Close())
	for name, damage := range map[string]func(t *testing.T, newest string){
		"flip": func(t *testing.T, newest string) {
			change(t, filepath.Join(newest, "state.bin"), func(text []byte) []byte {
				text[len(text)/2] ^= 1
				return text
			})
		},
		"cut": func(t *testing.T, newest string) {
			change(t, filepath.Join(newest, "state.bin"), func(text []byte) []byte {
				return text[:len(text)/2]
			})
		},
		"description cut": func(t *testing.T, newest string) {
			change(t, filepath.Join(newest, "meta.json"), func(text []byte) []byte { return nil })
		},
		"index": func(t *testing.T, newest string) { // no checksum of raft's covers it
			change(t, filepath.Join(newest, "meta.json"), func(text []byte) []byte {
				return bytes.Replace(text, []byte(`"Index":`), []byte(`"Index":1`), 1)
			})
		},
		"half written": func(t *testing.T, newest string) {
			require.NoError(t, os.Rename(newest, newest+".tmp"))
		},
		"gone": func(t *testing.T, newest string) { require.NoError(t, os.RemoveAll(newest)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := copyOf(t, config)
			kept, err := files(config).kept()
			require.NoError(t, err)
			damage(t, filepath.Join(files(config).files(), kept[0].name))

			n := openNode(t, config)
			require.Equal(t, digest, n.Shard(0).Digest())
			require.NoDirExists(t, filepath.Join(files(config).files(), kept[0].name+".tmp"))
			do(t, n.Shard(0), reserve("again", "b"))
			after := n.Shard(0).Digest()
			require.NoError(t, n.Close())
			n = openNode(t, config)
			require.Equal(t, after, n.Shard(0).Digest())
			require.NoError(t, n.Close())
		})
	}
}

// TestUnreadableSnapshots damages both: the node refuses to start, and leaves them as they are.
func TestUnreadableSnapshots(t *testing.T) {
	t.Parallel()
	config, files := snapshotted(t)
	kept, err := files(config).kept()
	require.NoError(t, err)
	for _, k := range kept {
		path := filepath.Join(files(config).files(), k.name, "state.bin")
		change(t, path, func(text []byte) []byte { return text[1:] })
	}
	_, err = Open(config)
	require.ErrorIs(t, err, ErrCluster)
	still, err := files(config).kept()
	require.NoError(t, err)
	require.Equal(t, kept, still)
}

// TestSnapshotDescription flips a bit of every byte of the description: it is found, or means the
// same.
func TestSnapshotDescription(t *testing.T) {
	t.Parallel()
	config, files := snapshotted(t)
	f := files(config)
	kept, err := f.kept()
	require.NoError(t, err)
	want, state, err := f.Open(kept[0].name)
	require.NoError(t, err)
	require.NoError(t, state.Close())
	path := filepath.Join(f.files(), kept[0].name, "meta.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	refused := 0
	for i := range text {
		change(t, path, func([]byte) []byte {
			flipped := bytes.Clone(text)
			flipped[i] ^= 1 << (i % 5) // the lower bits make another digit of a digit
			return flipped
		})
		meta, state, err := f.Open(kept[0].name)
		if err != nil {
			refused++
			continue
		}
		require.NoError(t, state.Close())
		// Raft reads the first two never, and compares the size with what it sends.
		meta.Version, meta.Peers, meta.Size = want.Version, want.Peers, want.Size
		require.Equal(t, want, meta, "byte %d", i)
	}
	require.Greater(t, refused, len(text)/2)
}

// TestDivergedLog has another entry in the log where the snapshot ends: a replica among several
// discards the log, a replica alone refuses the snapshot.
func TestDivergedLog(t *testing.T) {
	store, err := wal.Open(wal.Config{
		Dir: t.TempDir(), Owner: "x", Create: true, OnFault: func(err error) { panic(err) },
	})
	require.NoError(t, err)
	defer store.Close()
	alone := raft.Configuration{Servers: []raft.Server{{ID: "a", Address: "a"}}}
	three := raft.Configuration{Servers: []raft.Server{
		{ID: "a", Address: "a"}, {ID: "b", Address: "b"}, {ID: "c", Address: "c"},
	}}
	for i, c := range []struct {
		name        string
		term, index uint64
		voters      raft.Configuration
		want        error
		last        uint64
	}{
		{"same term", 2, 5, three, nil, 9},
		{"another term", 3, 5, three, nil, 0},
		{"after the end, with a gap", 3, 20, three, nil, 9},
		{"alone", 3, 5, alone, ErrCluster, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			logs, err := store.Group(uint16(i))
			require.NoError(t, err)
			for index := range uint64(9) {
				require.NoError(t, logs.StoreLog(&raft.Log{Index: index + 1, Term: 2}))
			}
			quiet := slog.New(slog.DiscardHandler)
			f, err := openSnapshots(t.TempDir(), quiet, raftLogger(quiet))
			require.NoError(t, err)
			_, trans := raft.NewInmemTransport("a")
			sink, err := f.Create(1, c.index, c.term, c.voters, 1, trans)
			require.NoError(t, err)
			_, err = sink.Write([]byte("state"))
			require.NoError(t, err)
			require.NoError(t, sink.Close())

			var state []byte
			err = f.restore(logs, func(r io.ReadCloser) error {
				state, err = io.ReadAll(r)
				return errors.Join(err, r.Close())
			})
			require.ErrorIs(t, err, c.want)
			require.Equal(t, "state", string(state))
			last, err := logs.LastIndex()
			require.NoError(t, err)
			require.Equal(t, c.last, last)
		})
	}
}

// snapshotted makes a node that has taken snapshots and cut its log, and written on, and closes it.
// files gives its snapshot files, or a copy's.
func snapshotted(t *testing.T) (config Config, files func(Config) *snapshots) {
	config = testConfig(t, t.TempDir())
	n := openNode(t, config)
	s := n.Shard(0)
	do(t, s, product("a", 100_000))
	for round := range 3 {
		for k := range 30 {
			do(t, s, reserve(fmt.Sprint(round, "-", k), "b"))
		}
		require.NoError(t, s.Snapshot())
	}
	do(t, s, reserve("after", "b"))
	kept, err := s.snapshots.kept()
	require.NoError(t, err)
	require.Len(t, kept, keptSnapshots)
	first, err := s.logs.FirstIndex()
	require.NoError(t, err)
	require.Equal(t, kept[1].index, first, "the log goes on from the older snapshot, and no longer")
	require.NoError(t, n.Close())
	return config, func(c Config) *snapshots {
		f, err := openSnapshots(filepath.Join(c.Dir, "snapshots", "0"), c.Logger, raftLogger(c.Logger))
		require.NoError(t, err)
		return f
	}
}

// copyOf copies a closed node.
func copyOf(t *testing.T, config Config) Config {
	dir := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(dir, os.DirFS(config.Dir)))
	config.Dir = dir
	return config
}

func change(t *testing.T, path string, how func([]byte) []byte) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, how(text), 0o600))
}
