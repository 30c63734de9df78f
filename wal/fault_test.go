package wal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// failing makes the operations from one number on fail, so many of them.
type failing struct {
	operations  atomic.Int64
	from, count int64
}

func (f *failing) String() string { return fmt.Sprint("fail from ", f.from) }

func (f *failing) MaybeError(errorfs.Op) error {
	if n := f.operations.Add(1) - 1; n >= f.from && n-f.from < f.count {
		return errorfs.ErrInjected
	}
	return nil
}

// Every file operation fails in turn: it alone, or, for every fifth, all that follow too. The step
// that meets the error says so or is done all the same; every acknowledged step is there after the
// next start.
func TestEveryFileOperationFails(t *testing.T) {
	for name, test := range map[string]struct{ count, stride int64 }{
		"once": {1, 1}, "for good": {math.MaxInt32, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := seeded(t)
			sc := newScript(rng, fromEnvironment(t, "WAL_STEPS", 7))
			failures := 0
			for from, met := int64(0), true; met; from += test.stride {
				injector := &failing{from: from, count: test.count}
				if err := requireSurvives(t, sc, injector, rng); err != nil {
					failures++
				}
				met = injector.operations.Load() > from
			}
			t.Logf("%d failures reached the caller", failures)
			require.Greater(t, failures, 20)
		})
	}
}

// requireSurvives plays the script on failing files and opens what is left on good ones.
func requireSurvives(t *testing.T, sc *script, injector *failing, rng *rand.Rand) error {
	t.Helper()
	fs := &cloneable{MemFS: vfs.NewCrashableMem()}
	run := &scriptRun{config: testConfig(t, errorfs.Wrap(fs, injector))}
	var faults atomic.Int64
	run.config.OnFault = func(error) { faults.Add(1) }
	err := run.play(sc)
	acknowledged := run.acknowledged.Load()
	if err == nil {
		require.EqualValues(t, len(sc.steps), acknowledged)
	}
	require.LessOrEqual(t, faults.Load(), int64(1))

	for _, unsyncedPercent := range []int{0, 100} {
		config := testConfig(t, fs.CrashClone(
			vfs.CrashCloneCfg{UnsyncedDataPercent: unsyncedPercent, RNG: rng}))
		initialised, err := (&Store{config: config}).initialised()
		require.NoError(t, err)
		config.Create = !initialised
		require.True(t, initialised || acknowledged == 0)
		s, err := Open(config)
		require.NoError(t, err, "operations from %d", injector.from)
		sc.requireHeld(t, s, acknowledged, acknowledged+1)
		require.NoError(t, s.Close())
	}
	return err
}

// onlySyncsFail makes syncs of the write-ahead log fail while it is on.
type onlySyncsFail struct{ on atomic.Bool }

func (f *onlySyncsFail) String() string { return "syncs fail" }

func (f *onlySyncsFail) MaybeError(op errorfs.Op) error {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
	if f.on.Load() && sync && strings.HasSuffix(op.Path, ".log") {
		return errorfs.ErrInjected
	}
	return nil
}

// Pebble turns a failed sync into a success when its logger's Fatalf returns.
func TestFailedSyncIsNeverASuccess(t *testing.T) {
	injector := &onlySyncsFail{}
	config := testConfig(t, errorfs.Wrap(vfs.NewMem(), injector))
	faults := make(chan error, 2)
	config.OnFault = func(err error) { faults <- err }
	s := created(t, config)
	g := groupOf(t, s, 1)
	require.NoError(t, g.StoreLogs(entriesOf(1, 1, 3)))

	injector.on.Store(true)
	require.ErrorIs(t, g.StoreLogs(entriesOf(1, 4, 4)), ErrFaulted)
	require.ErrorContains(t, <-faults, "injected error")
	injector.on.Store(false)

	// raft tries again. The disk works by now, but nobody knows what it has dropped.
	require.ErrorIs(t, g.StoreLogs(entriesOf(1, 4, 4)), ErrFaulted)
	require.ErrorIs(t, groupOf(t, s, 2).Set([]byte("k"), nil), ErrFaulted)
	require.ErrorIs(t, g.GetLog(1, new(raft.Log)), ErrFaulted)
	_, err := g.LastIndex()
	require.ErrorIs(t, err, ErrFaulted)
	_, err = g.Get([]byte("k"))
	require.ErrorIs(t, err, ErrFaulted)
	require.ErrorIs(t, s.Fault(), ErrFaulted)
	require.ErrorIs(t, s.Close(), ErrFaulted)
	require.Empty(t, faults, "told once")
}

// hangingSyncs makes syncs of the write-ahead log wait while there is a gate.
type hangingSyncs struct {
	gate    atomic.Pointer[chan struct{}]
	waiting chan struct{}
}

func (h *hangingSyncs) String() string { return "syncs hang" }

func (h *hangingSyncs) MaybeError(op errorfs.Op) error {
	sync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
	if gate := h.gate.Load(); gate != nil && sync && strings.HasSuffix(op.Path, ".log") {
		h.waiting <- struct{}{}
		<-*gate
	}
	return nil
}

func TestHangingWriteIsAFault(t *testing.T) {
	hanging := &hangingSyncs{waiting: make(chan struct{}, 9)}
	config := testConfig(t, errorfs.Wrap(vfs.NewMem(), hanging))
	config.StallLimit = time.Hour // this test ticks by itself
	faults := make(chan error, 2)
	config.OnFault = func(err error) { faults <- err }
	s := created(t, config)
	g := groupOf(t, s, 1)

	gate := make(chan struct{})
	defer close(gate)
	hanging.gate.Store(&gate)
	result := make(chan error, 1)
	go func() { result <- g.StoreLogs(entriesOf(1, 1, 1)) }()
	<-hanging.waiting

	// A process that was stopped for a day has no right to blame the disk.
	s.tick(24 * time.Hour)
	require.NoError(t, s.Fault())
	ticks := 0
	for ; s.Fault() == nil; ticks++ {
		s.tick(s.watchInterval())
	}
	require.InDelta(t, time.Hour/s.watchInterval(), ticks, 2)
	require.ErrorIs(t, <-faults, ErrStalled)
	require.ErrorIs(t, <-result, ErrFaulted)
	require.ErrorIs(t, s.Close(), ErrStalled)
}

func TestPanicInPebbleIsAFault(t *testing.T) {
	f := newFault()
	require.ErrorIs(t, f.guard(func() error { panic("pebble: not reached") }), ErrFaulted)
	require.ErrorContains(t, f.err(), "not reached")
}

// A Fatalf that returned would let the commit that called it go on to its success.
func TestFatalfNeverReturns(t *testing.T) {
	f := newFault()
	var returned atomic.Bool
	err := f.guard(func() error {
		pebbleLogger{testConfig(t, nil).Logger, f}.Fatalf("commit %d failed", 7)
		returned.Store(true)
		return nil
	})
	require.ErrorIs(t, err, ErrFaulted)
	require.ErrorContains(t, err, "commit 7 failed")
	for range 10_000 { // "never" can't be waited for: give it every chance
		runtime.Gosched()
	}
	require.False(t, returned.Load())
}
