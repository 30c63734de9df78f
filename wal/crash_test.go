package wal

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// crash is the file system as a crash left it, and between which numbers of acknowledged steps
// that was.
type crash struct {
	fs              *vfs.MemFS
	atLeast, atMost int64
}

// cloneable is a file system that can be cloned while it is used. Pebble's own deadlocks when a
// clone is asked for during the two operations below, which take its lock twice.
type cloneable struct {
	*vfs.MemFS
	mu sync.Mutex
}

func (c *cloneable) Link(oldName, newName string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.MemFS.Link(oldName, newName)
}

func (c *cloneable) ReuseForWrite(
	oldName, newName string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.MemFS.ReuseForWrite(oldName, newName, category)
}

func (c *cloneable) CrashClone(config vfs.CrashCloneCfg) *vfs.MemFS {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.MemFS.CrashClone(config)
}

// crashes takes clones of a file system before each of its operations that write.
type crashes struct {
	fs  *cloneable
	run *scriptRun

	mu   sync.Mutex
	rng  *rand.Rand
	seen []crash
}

func (c *crashes) String() string { return "crash points" }

func (c *crashes) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, unsyncedPercent := range []int{0, 50, 100} {
		atLeast := c.run.acknowledged.Load()
		fs := c.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: c.rng})
		// The step that was going on may be there as a whole, or not at all.
		c.seen = append(c.seen, crash{fs, atLeast, c.run.acknowledged.Load() + 1})
	}
	return nil
}

// Whatever instant the power fails at, with whatever part of the unsynced data on disk, every
// acknowledged step is there after the next start, and the one in flight is whole or absent.
func TestEveryWriteIsACrashPoint(t *testing.T) {
	rng := seeded(t)
	sc := newScript(rng, fromEnvironment(t, "WAL_STEPS", 11))
	fs := &cloneable{MemFS: vfs.NewCrashableMem()}
	points := &crashes{fs: fs, run: &scriptRun{}, rng: rng}
	points.run.config = testConfig(t, errorfs.Wrap(fs, points))
	require.NoError(t, points.run.play(sc))
	require.Greater(t, len(points.seen), 200)

	for i, c := range points.seen {
		s := recovered(t, sc, c)
		if i%10 == 0 {
			requireWrites(t, s)
		}
		require.NoError(t, s.Close())
	}
	t.Logf("%d crashes", len(points.seen))
}

func recovered(t *testing.T, sc *script, c crash) *Store {
	t.Helper()
	config := testConfig(t, c.fs)
	s, err := Open(config)
	if errors.Is(err, ErrNotCreated) && c.atLeast == 0 {
		config.Create = true // the first boot was interrupted: repeat it
		s, err = Open(config)
	}
	require.NoError(t, err)
	sc.requireHeld(t, s, c.atLeast, c.atMost)
	return s
}

// requireWrites checks that a recovered store is as good as new: it keeps what it is given now,
// in a second crash.
func requireWrites(t *testing.T, s *Store) {
	require.NoError(t, groupOf(t, s, 0).Set([]byte("after"), []byte("crash")))
	again := s.config
	again.Create = false
	again.FS = s.config.FS.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{})
	second := reopened(t, again)
	value, err := groupOf(t, second, 0).Get([]byte("after"))
	require.NoError(t, err)
	require.Equal(t, "crash", string(value))
	require.NoError(t, second.Close())
}
