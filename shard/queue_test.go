package shard

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// disk is a file system whose syncs can be held up and made to fail.
type disk struct {
	mu      sync.Mutex
	stuck   chan struct{} // not nil: syncs wait until it is closed
	failure error
}

func (d *disk) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		default:
			return nil
		}
		d.mu.Lock()
		stuck := d.stuck
		d.mu.Unlock()
		if stuck != nil {
			<-stuck
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.failure
	}))
}

// hold makes syncs wait until the function that it returns is called.
func (d *disk) hold() (release func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	stuck := make(chan struct{})
	d.stuck = stuck
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.stuck = nil
		close(stuck)
	}
}

func (d *disk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failure = err
}

// asked is a proposal and what it was answered.
type asked struct {
	Proposal
	times   atomic.Int64
	done    chan struct{} // closed by the first answer
	outcome *inventory.Outcome
	err     error
}

// openOnDisk opens a shard that sells product a, on a disk that can be held up.
func openOnDisk(t *testing.T, set func(*Config)) (*Shard, *disk) {
	t.Helper()
	d := new(disk)
	config := testConfig(t, t.TempDir())
	config.FS = d.wrap(vfs.Default)
	set(&config)
	n := openNode(t, config)
	t.Cleanup(func() { n.Close() })
	s := n.Shard(0)
	do(t, s, product("a", 1000))
	return s, d
}

func ask(s *Shard, key string, deadline time.Time) *asked {
	a := &asked{done: make(chan struct{})}
	a.Proposal = Proposal{
		Entry: inventory.Entry{Command: reserve(key, "b")}, Deadline: deadline,
		Done: func(o *inventory.Outcome, err error) {
			if a.times.Add(1) == 1 {
				a.outcome, a.err = o.Clone(), err
				close(a.done)
			}
		},
	}
	s.Propose(&a.Proposal)
	return a
}

func (a *asked) answered() bool { return a.times.Load() > 0 }

func (a *asked) wait() error {
	<-a.done
	return a.err
}

func count(t *testing.T, c prometheus.Counter) float64 {
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// TestFullQueue holds up the disk until the queue is full: what is refused is refused at once, and
// has not acted.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	const inFlight = 2
	s, d := openOnDisk(t, func(c *Config) { c.QueueLength, c.InFlight = 10, inFlight })

	release := d.hold()
	var waiting []*asked
	for i := 0; len(waiting) < 12; i++ { // until both entries are under way and the queue is full
		a := ask(s, fmt.Sprint("early", i), time.Time{})
		require.False(t, a.answered())
		waiting = append(waiting, a)
		if n := int64(len(waiting)); n <= inFlight {
			eventually(t, func() bool { return s.underWay.Load() == n }, "proposed")
		}
	}
	began := time.Now()
	const late = 1000
	for i := range late {
		a := ask(s, fmt.Sprint("late", i), time.Time{})
		require.True(t, a.answered())
		require.ErrorIs(t, a.err, ErrOverloaded)
	}
	t.Logf("a refusal for a full queue took %v", time.Since(began)/late)
	release()
	for _, a := range waiting {
		require.NoError(t, a.wait())
		require.Equal(t, inventory.CodeOK, a.outcome.Code)
	}
	require.EqualValues(t, len(waiting), reserved(s))
	for _, counted := range []struct {
		err  error
		want float64
	}{{ErrOverloaded, late}, {ErrExpired, 0}} {
		require.Equal(t, counted.want, count(t, s.stats.failures[counted.err]))
	}
}

// TestLateInQueue lets deadlines, and the patience of the queue, pass while the disk is held up.
func TestLateInQueue(t *testing.T) {
	t.Parallel()
	s, d := openOnDisk(t, func(c *Config) { c.QueueWait, c.InFlight = 100*time.Millisecond, 1 })

	release := d.hold()
	first := ask(s, "first", time.Time{})
	eventually(t, func() bool { return s.underWay.Load() == 1 }, "proposed")
	expired := ask(s, "expired", time.Now().Add(50*time.Millisecond))
	patient := ask(s, "patient", time.Now().Add(time.Hour))
	gone := ask(s, "gone", time.Now().Add(-time.Millisecond))
	time.Sleep(s.config.QueueWait + time.Millisecond) // nothing tells that it is over
	release()
	require.NoError(t, first.wait())
	require.ErrorIs(t, expired.wait(), ErrExpired)
	require.ErrorIs(t, gone.wait(), ErrExpired)
	require.ErrorIs(t, patient.wait(), ErrOverloaded)
	eventually(t, func() bool { // it, too, may wait for longer than the queue lets it
		return ask(s, "again", time.Now().Add(time.Hour)).wait() == nil
	}, "sold again")
	require.EqualValues(t, 2, reserved(s))
	require.Equal(t, 2.0, count(t, s.stats.failures[ErrExpired]))
	for _, a := range []*asked{first, expired, gone, patient} {
		require.EqualValues(t, 1, a.times.Load())
	}
}

// TestAnsweredOnce opens and closes a node under commands and reads: each is answered once, and the
// outcomes are those of the log.
func TestAnsweredOnce(t *testing.T) {
	config := testConfig(t, t.TempDir())
	config.QueueLength = 64
	accepted := int64(0)
	for round := range 6 {
		n := openNode(t, config)
		s := n.Shard(0)
		if round == 0 {
			do(t, s, product("a", 1_000_000))
		}
		require.EqualValues(t, accepted, reserved(s), "round %d", round)
		stop := make(chan struct{})
		var askers sync.WaitGroup
		var all [8][]*asked
		var reads, answers atomic.Int64
		for asker := range all {
			askers.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					a := ask(s, fmt.Sprint(round, "-", asker, "-", i), time.Time{})
					all[asker] = append(all[asker], a)
					reads.Add(1)
					s.Order(inventory.OnOrder{}, func(*inventory.Outcome, error) { answers.Add(1) })
					if i%50 == 0 { // so that the shard gets somewhere
						<-a.done
					}
				}
			})
		}
		eventually(t, func() bool { return reserved(s) > uint32(accepted)+100 }, "selling")
		require.NoError(t, n.Close())
		_, err := s.Do(context.Background(), inventory.Entry{Command: reserve("x", "b")})
		require.ErrorIs(t, err, ErrUnavailable)
		_, err = readOrder(s, inventory.OrderID{})
		require.ErrorIs(t, err, ErrUnavailable)
		close(stop)
		askers.Wait()

		unknown := 0
		for _, asked := range all {
			for _, a := range asked {
				require.EqualValues(t, 1, a.times.Load())
				switch {
				case a.err == nil && a.outcome.Code == inventory.CodeOK:
					accepted++
				case a.err == ErrOutcomeUnknown:
					unknown++
				case a.err == ErrUnavailable || a.err == ErrOverloaded || a.err == ErrNotLeader:
				default:
					t.Fatal(a.err, a.outcome)
				}
			}
		}
		require.Zero(t, unknown, "a planned stop answers what it has proposed")
		require.Equal(t, reads.Load(), answers.Load())
	}
}

// TestAskedWhileClosing puts on each queue what was admitted just before the shard stopped, after
// everybody has left.
func TestAskedWhileClosing(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t, t.TempDir()))
	s := n.Shard(0)
	require.NoError(t, n.Close())
	got := make(chan error, 1)
	for _, put := range []func(){
		func() { s.enqueue(&Proposal{Done: func(_ *inventory.Outcome, err error) { got <- err }}) },
		func() { s.enqueueRead(read{func(err error) { got <- err }}) },
		func() {
			s.server.outbox.ask(query{answer: func(_ *wire.Response, err error) { got <- err }})
		},
	} {
		put()
		select {
		case err := <-got:
			require.ErrorIs(t, err, ErrUnavailable)
		default:
			t.Fatal("not answered")
		}
	}
}

// TestOneKey reserves with one key from fifty goroutines, and again after a restart and a snapshot.
func TestOneKey(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	do(t, n.Shard(0), product("a", 1000))
	var order *inventory.OrderView
	for round := range 3 {
		s := n.Shard(0)
		var mu sync.Mutex
		fresh := 0
		var buyers sync.WaitGroup
		for range 50 {
			buyers.Go(func() {
				o := do(t, s, reserve("key", "b"))
				mu.Lock()
				defer mu.Unlock()
				if !o.Replay {
					fresh++
				}
				if order == nil {
					order = o.Order
				}
				require.Equal(t, order.ID, o.Order.ID)
				require.Equal(t, order.Items, o.Order.Items)
			})
		}
		buyers.Wait()
		require.EqualValues(t, 1, reserved(s))
		require.Equal(t, round == 0, fresh == 1)
		if round == 1 {
			require.NoError(t, s.Snapshot())
		}
		require.NoError(t, n.Close())
		n = openNode(t, config)
	}
	require.NoError(t, n.Close())
}
