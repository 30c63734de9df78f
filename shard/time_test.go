package shard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/clock"
)

// epoch is where manual clocks start: a Monday.
const epoch = 1_700_000_000_000

// manualConfig is testConfig with a clock that stands still until it is moved.
func manualConfig(t testing.TB, dir string) (Config, *clock.Manual) {
	config := testConfig(t, dir)
	source := clock.NewManual(epoch)
	config.Clock = clock.New(source, slog.New(slog.DiscardHandler))
	return config, source
}

// held makes product "a" with a hold.
func held(count uint32, hold time.Duration) *inventory.PutProduct {
	p := product("a", count)
	p.Settings.HoldSeconds = int64(hold / time.Second)
	p.Settings.HoldMaxSeconds = p.Settings.HoldSeconds
	return p
}

func reserved(s *Shard) uint32 { return s.engine.FreshProduct("a").Counters.Reserved }

// eventually waits for something that no channel tells: a state that readers see.
func eventually(t testing.TB, condition func() bool, format string, args ...any) {
	t.Helper()
	require.Eventually(
		t, condition, patience, time.Millisecond, append([]any{format}, args...)...)
}

// patience is how long a test waits for what must happen, on a machine with much else to do.
const patience = time.Minute

// TestIdleExpiry lets reservations expire on the real clock with no request arriving. One round of
// a few must have been in time: a machine with much else to do may be late by itself.
func TestIdleExpiry(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	do(t, s, held(10, time.Second))
	late := int64(math.MaxInt64)
	for round := 0; round < 5 && late >= 1000; round++ {
		var deadline int64
		for i := range 3 { // the later ones must not keep the earliest from being noticed
			o := do(t, s, reserve(fmt.Sprint(round, "-", i), "b"))
			if deadline == 0 {
				deadline = o.Order.ExpiresUnixMilli
			}
		}
		eventually(t, func() bool { return reserved(s) < 3 }, "freed")
		late = config.Clock.NowUnixMilli() - deadline
		t.Logf("freed %d ms after its deadline", late)
		require.GreaterOrEqual(t, late, int64(0))
		eventually(t, func() bool { return reserved(s) == 0 }, "all are freed")
	}
	require.Less(t, late, int64(1000))
}

// TestExpiryIsExact stops the clock a millisecond before a deadline, and then at it.
func TestExpiryIsExact(t *testing.T) {
	t.Parallel()
	config, source := manualConfig(t, t.TempDir())
	n := openNode(t, config)
	s := n.Shard(0)
	do(t, s, held(10, 30*time.Minute))
	do(t, s, reserve("k", "b"))
	source.Advance(30*time.Minute - time.Millisecond)
	do(t, s, &inventory.Attach{Consumer: "c"}) // whatever was due is expired before this
	require.EqualValues(t, 1, reserved(s))
	source.Advance(time.Millisecond)
	eventually(t, func() bool { return reserved(s) == 0 }, "freed at its deadline")

	// What is due while the node is down expires when it is up again, by itself.
	do(t, s, reserve("k2", "b"))
	require.NoError(t, n.Close())
	source.Advance(time.Hour)
	n = openNode(t, config)
	defer n.Close()
	s = n.Shard(0)
	eventually(t, func() bool { return reserved(s) == 0 }, "freed after the restart")
}

// TestExpiryInCrowds has very many reservations due in the same millisecond, and sells meanwhile.
func TestExpiryInCrowds(t *testing.T) {
	crowd := uint32(300_000)
	if raced {
		crowd = 20_000
	}
	config, source := manualConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	do(t, s, held(2*crowd, 30*time.Minute))
	flood(s, int(crowd), func(i int) inventory.Command { return reserve(fmt.Sprint(i), "b") })
	require.EqualValues(t, crowd, reserved(s))
	other := product("other", 1_000_000)
	do(t, s, other)

	source.Advance(30 * time.Minute)
	began := time.Now()
	var sellers sync.WaitGroup
	took := make([][]time.Duration, 8)
	for seller := range took {
		sellers.Go(func() {
			for i := 0; reserved(s) > 0; i++ {
				start := time.Now()
				o := do(t, s, &inventory.Reserve{
					Key: fmt.Sprint(seller, "-", i), Buyer: "b",
					Lines: []inventory.Line{{Product: "other", Quantity: 1}},
				})
				require.Equal(t, inventory.CodeOK, o.Code)
				took[seller] = append(took[seller], time.Since(start))
			}
		})
	}
	sellers.Wait()
	drained := time.Since(began)
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	p99 := all[len(all)*99/100]
	t.Logf("%d reservations due at once were freed in %v; %d sales meanwhile, p50 %v, p99 %v, "+
		"worst %v", crowd, drained, len(all), all[len(all)/2], p99, all[len(all)-1])
	batches := int(crowd) / inventory.DefaultLimits().ExpirePerBatch
	require.Greater(t, len(all), batches, "every batch that frees some has sales in it, too")
}

// flood proposes n commands, a thousand at a time, and waits until they are accepted. What the disk
// was too slow for is proposed again.
func flood(s *Shard, n int, command func(i int) inventory.Command) {
	slots := make(chan struct{}, 1000)
	var propose func(i int)
	propose = func(i int) {
		s.Propose(&Proposal{
			Entry: inventory.Entry{Command: command(i)},
			Done: func(o *inventory.Outcome, err error) {
				switch {
				case err == ErrOverloaded:
					go propose(i)
				case err != nil || o.Code != inventory.CodeOK:
					panic(fmt.Sprint(err, o))
				default:
					<-slots
				}
			},
		})
	}
	for i := range n {
		slots <- struct{}{}
		propose(i)
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}

// TestWallClockJumps moves the wall clock by an hour either way while the shard leads.
func TestWallClockJumps(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{time.Hour, -time.Hour} {
		config, source := manualConfig(t, t.TempDir())
		n := openNode(t, config)
		s := n.Shard(0)
		do(t, s, held(10, 30*time.Minute))
		first := do(t, s, reserve("k", "b")).Order
		source.JumpWall(jump)
		source.Advance(10 * time.Minute)
		second := do(t, s, reserve("k2", "b")).Order
		require.EqualValues(t, 600_000, second.CreatedUnixMilli-first.CreatedUnixMilli)
		require.EqualValues(t, 2, reserved(s))
		source.Advance(20*time.Minute - time.Millisecond)
		do(t, s, &inventory.Attach{Consumer: "c"})
		require.EqualValues(t, 2, reserved(s))
		source.Advance(time.Millisecond)
		eventually(t, func() bool { return reserved(s) == 1 }, "jump %v: the first is freed", jump)
		require.NoError(t, n.Close())
	}
}

// TestOpening asks a millisecond before a sale opens, after days of nothing, and then at its time;
// the wall clock meanwhile says that it has long been open.
func TestOpening(t *testing.T) {
	t.Parallel()
	const opens = epoch + 72*60*60*1000
	config, source := manualConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	put := product("a", 10)
	put.Settings.OpensAtUnixMilli = opens
	do(t, s, put)
	source.JumpWall(100 * time.Hour)
	source.Advance(72*time.Hour - time.Millisecond)
	early := do(t, s, reserve("k", "b"))
	require.Equal(t, inventory.CodeSaleNotOpen, early.Code)
	require.EqualValues(t, opens-1, early.AtUnixMilli)
	source.Advance(time.Millisecond)
	o := do(t, s, reserve("k", "b"))
	require.Equal(t, inventory.CodeOK, o.Code)
	require.EqualValues(t, opens, o.Order.CreatedUnixMilli)
}

// TestShortOfDisk takes the free space away: nothing is proposed, expiries neither, and reads go on.
func TestShortOfDisk(t *testing.T) {
	t.Parallel()
	config, source := manualConfig(t, t.TempDir())
	var free atomic.Uint64
	free.Store(1 << 40)
	config.freeBytes = func(string) (uint64, error) { return free.Load(), nil }
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	do(t, s, held(10, 30*time.Minute))
	order := do(t, s, reserve("k", "b")).Order

	free.Store(1 << 20)
	require.NoError(t, n.checkDisk())
	index := s.raft.LastIndex()
	_, err := s.Do(context.Background(), inventory.Entry{Command: reserve("k2", "b")})
	require.ErrorIs(t, err, ErrUnavailable)
	source.Advance(time.Hour)
	s.rouse()
	read, err := readOrder(s, order.ID)
	require.NoError(t, err)
	require.Equal(t, inventory.StatusReserved, read.Order.Status)
	require.Never(t, func() bool { return s.raft.LastIndex() != index }, 50*time.Millisecond,
		5*time.Millisecond, "something was proposed")

	free.Store(1 << 40)
	require.NoError(t, n.checkDisk())
	eventually(t, func() bool { return reserved(s) == 0 }, "what was due meanwhile expires")
	require.Equal(t, inventory.CodeOK, do(t, s, reserve("k2", "b")).Code)
}

// readOrder reads an order linearizably.
func readOrder(s *Shard, id inventory.OrderID) (o *inventory.Outcome, err error) {
	done := make(chan struct{})
	s.Order(inventory.OnOrder{Order: id}, func(outcome *inventory.Outcome, failure error) {
		o, err = outcome, failure
		close(done)
	})
	<-done
	return o, err
}
