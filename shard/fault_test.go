package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

var errDisk = errors.New("the disk is gone")

// TestStorageFault makes a sync fail under load: the process is told to end, nothing is
// acknowledged after it, and what a power cut leaves has every order that was.
func TestStorageFault(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			stable := vfs.NewCrashableMem()
			var d disk
			fault := make(chan error, 2)
			config := testConfig(t, t.TempDir())
			config.FS, config.SnapshotEntries = d.wrap(stable), 50
			config.ElectionTimeout = 2 * time.Second // raft panics when it cannot store a vote
			config.OnFault = func(err error) { fault <- err }
			n := openNode(t, config)
			s := n.Shard(0)
			do(t, s, product("a", 1_000_000))

			var mu sync.Mutex
			orders := make(map[inventory.OrderID][]inventory.ItemView)
			var buyers sync.WaitGroup
			for b := range 8 {
				buyers.Go(func() {
					for i := 0; ; i++ {
						a := ask(s, fmt.Sprint(b, "-", i), time.Time{})
						if err := a.wait(); err != nil {
							require.Contains(t, []error{ErrOutcomeUnknown, ErrNotLeader}, err)
							return
						}
						mu.Lock()
						orders[a.outcome.Order.ID] = a.outcome.Order.Items
						mu.Unlock()
					}
				})
			}
			moment := 20 + rand.New(rand.NewPCG(seed, 0)).IntN(500)
			eventually(t, func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(orders) > moment
			}, "selling")
			d.fail(errDisk)
			require.ErrorContains(t, <-fault, errDisk.Error())
			buyers.Wait()
			after := ask(s, "after", time.Time{})
			require.Error(t, after.wait())
			clone := stable.CrashClone(vfs.CrashCloneCfg{})
			_ = n.Close() // whatever it says, the process is over
			require.Empty(t, fault, "OnFault is told once")

			config.FS = clone
			config.ElectionTimeout = 50 * time.Millisecond
			config.OnFault = func(err error) { panic(err) }
			n = openNode(t, config)
			defer n.Close()
			requireOrders(t, n.Shard(0), orders)
			t.Logf("%d orders, after %d", len(orders), moment)
		})
	}
}

// requireOrders expects each order to be there with the numbers that were acknowledged, no number
// in two orders, and counters that are the sum of the orders.
func requireOrders(
	t *testing.T, s *Shard, acknowledged map[inventory.OrderID][]inventory.ItemView,
) {
	t.Helper()
	owner := make(map[uint32]inventory.OrderID)
	found := make(map[inventory.OrderID][]inventory.ItemView)
	for cursor, more := (inventory.ScanCursor{}), true; more; {
		var orders []*inventory.OrderView
		orders, cursor, more, _ = s.engine.Scan(cursor, 1000)
		for _, o := range orders {
			found[o.ID] = o.Items
			for _, number := range o.Items[0].Numbers {
				if other, taken := owner[number]; taken {
					t.Fatalf("number %d is in order %s and in %s", number, other, o.ID)
				}
				owner[number] = o.ID
			}
		}
	}
	for id, items := range acknowledged {
		require.Equal(t, items, found[id], "order %s", id)
	}
	c := s.engine.Product("a").Counters
	require.EqualValues(t, len(owner), c.Reserved)
	require.Equal(t, c.Count, c.Available+c.Reserved)
}
