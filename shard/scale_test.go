package shard

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// TestMillionOrders takes a snapshot while it sells, with a million orders, and restarts. It prints
// what that cost: docs/ quotes it.
func TestMillionOrders(t *testing.T) {
	orders := 1_000_000
	if raced {
		orders = 20_000
	}
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	s := n.Shard(0)
	do(t, s, product("a", uint32(2*orders)))
	began := time.Now()
	flood(s, orders, crowd("k"))
	took := time.Since(began)
	t.Logf("%d orders in %v: %.0f a second", orders, took, float64(orders)/took.Seconds())
	require.NoError(t, s.Snapshot())

	snapshotWhileSelling(t, s)
	flood(s, 10_000, crowd("tail"))
	digest, reserves := s.Digest(), reserved(s)
	require.NoError(t, n.Close())

	size := int64(0)
	snapshots := filepath.Join(config.Dir, "snapshots")
	require.NoError(t, filepath.Walk(snapshots, func(_ string, f os.FileInfo, err error) error {
		size = max(size, f.Size())
		return err
	}))
	began = time.Now()
	n = openNode(t, config)
	took = time.Since(began)
	t.Logf("restarted from a snapshot of %d MB and the log after it in %v", size>>20, took)
	require.Equal(t, digest, n.Shard(0).Digest())
	require.Equal(t, reserves, reserved(n.Shard(0)))
	_, err := n.Shard(0).Do(context.Background(), inventory.Entry{Command: reserve("after", "b")})
	require.NoError(t, err)
	require.NoError(t, n.Close())
}

// crowd gives commands of many buyers.
func crowd(prefix string) func(int) inventory.Command {
	return func(i int) inventory.Command {
		return reserve(fmt.Sprint(prefix, i), fmt.Sprint("buyer-", i%100_000))
	}
}

// snapshotWhileSelling sells as fast as it goes, and looks at single sales meanwhile.
func snapshotWhileSelling(t *testing.T, s *Shard) {
	stop := make(chan struct{})
	var selling sync.WaitGroup
	selling.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				flood(s, 2000, crowd(fmt.Sprint("s", i, "-")))
			}
		}
	})
	var waits []time.Duration
	selling.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			start := time.Now()
			do(t, s, reserve(fmt.Sprint("w", i), "b"))
			waits = append(waits, time.Since(start))
		}
	})
	before := stall(t, s)
	began := time.Now()
	require.NoError(t, s.Snapshot())
	took := time.Since(began)
	stalled := stall(t, s) - before
	close(stop)
	selling.Wait()
	slices.Sort(waits)
	t.Logf("a snapshot of it in %v: it held up the shard for %v; %d single sales meanwhile, "+
		"p50 %v, worst %v", took, stalled, len(waits), waits[len(waits)/2], waits[len(waits)-1])
	if !raced {
		require.Less(t, stalled, took/4, "it is written beside the sales") // 20 ms of 2 s
	}
}

// stall is how long snapshots have held up the shard in all.
func stall(t *testing.T, s *Shard) time.Duration {
	var m dto.Metric
	require.NoError(t, s.stats.freeze.Write(&m))
	return time.Duration(m.GetHistogram().GetSampleSum() * float64(time.Second))
}
