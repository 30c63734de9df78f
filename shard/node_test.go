package shard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/clock"
)

// natsConn is a connection to a NATS server of the test's own.
func natsConn(t testing.TB) *nats.Conn {
	t.Helper()
	ns, err := natsserver.NewServer(&natsserver.Options{DontListen: true, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.WaitForShutdown)
	t.Cleanup(ns.Shutdown)
	conn, err := nats.Connect("", nats.InProcessServer(ns), nats.Timeout(patience))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// testConfig is that of a node of one shard that elects itself quickly.
func testConfig(t testing.TB, dir string) Config {
	return Config{
		Dir: dir, Shards: 1, Conn: natsConn(t),
		Clock:           clock.New(clock.NewSystem(), slog.Default()),
		OnFault:         func(err error) { panic(err) },
		ElectionTimeout: 50 * time.Millisecond,
		QueueWait:       patience,
		MemTableBytes:   8 << 20,
		Logger:          slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// openNode opens a node and waits until it serves. The caller closes it.
func openNode(t testing.TB, config Config) *Node {
	t.Helper()
	n, err := Open(config)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, n.Ready(ctx))
	return n
}

func do(t testing.TB, s *Shard, c inventory.Command) *inventory.Outcome {
	t.Helper()
	o, err := s.Do(context.Background(), inventory.Entry{Command: c})
	require.NoError(t, err)
	return o
}

func product(id inventory.ProductID, count uint32) *inventory.PutProduct {
	s := inventory.DefaultSettings()
	s.Name, s.Count, s.Price = "x", count, inventory.Money{Amount: 100, Currency: "BRL"}
	return &inventory.PutProduct{Product: id, Settings: s}
}

func reserve(key, buyer string, numbers ...uint32) *inventory.Reserve {
	line := inventory.Line{Product: "a", Numbers: numbers}
	if len(numbers) == 0 {
		line.Quantity = 1
	}
	return &inventory.Reserve{Key: key, Buyer: inventory.BuyerID(buyer), Lines: []inventory.Line{line}}
}

func TestRestartKeepsEverything(t *testing.T) {
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	s := n.Shard(0)
	require.True(t, do(t, s, product("a", 10_000)).Created)
	var wg sync.WaitGroup
	for b := range 50 {
		wg.Go(func() {
			for k := range 100 {
				o := do(t, s, reserve(fmt.Sprint(k), fmt.Sprint("b", b)))
				require.Equal(t, inventory.CodeOK, o.Code)
			}
		})
	}
	wg.Wait()
	digest := s.Digest()
	require.EqualValues(t, 5000, s.engine.Product("a").Counters.Reserved)
	require.NoError(t, n.Close())

	n = openNode(t, config)
	require.Equal(t, digest, n.Shard(0).Digest())
	require.NoError(t, n.Shard(0).Snapshot())
	do(t, n.Shard(0), reserve("after", "b"))
	digest = n.Shard(0).Digest()
	require.NoError(t, n.Close())

	n = openNode(t, config)
	require.Equal(t, digest, n.Shard(0).Digest())
	require.NoError(t, n.Close())
}
