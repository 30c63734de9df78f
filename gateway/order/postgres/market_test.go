package postgres_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order/postgres"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/clock"
	"numera/shard/wire"
)

const marketShards = 3

// products has one on each shard of a market.
var products = func() (ids [marketShards]inventory.ProductID) {
	for i := 0; ; i++ {
		id := inventory.ProductID(fmt.Sprint("p-", i))
		if at := id.Shard(marketShards); ids[at] == "" {
			ids[at] = id
			if ids[0] != "" && ids[1] != "" && ids[2] != "" {
				return ids
			}
		}
	}
}()

// market is a real node with its shards, and a client of them.
type market struct {
	t      *testing.T
	dir    string
	conn   *nats.Conn
	node   *shard.Node
	client *shards.Client
	random *rand.Rand
}

func openMarket(t *testing.T) *market {
	ns, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(ns.WaitForShutdown)
	t.Cleanup(ns.Shutdown)
	m := &market{t: t, dir: t.TempDir(), random: rand.New(rand.NewPCG(1, 2))}
	m.conn, err = nats.Connect("", nats.InProcessServer(ns))
	require.NoError(t, err)
	t.Cleanup(m.conn.Close)
	m.start()
	t.Cleanup(func() { m.client.Close(); require.NoError(t, m.node.Close()) })
	for _, id := range products {
		settings := inventory.DefaultSettings()
		settings.Name, settings.Count = "x", 1_000_000
		settings.Price = inventory.Money{Amount: 1990, Currency: "BRL"}
		m.do(&inventory.PutProduct{Product: id, Settings: settings})
	}
	return m
}

func (m *market) start() {
	var err error
	m.node, err = shard.Open(shard.Config{
		Dir: m.dir, Shards: marketShards, Conn: m.conn,
		Clock:           clock.New(clock.NewSystem(), slog.Default()),
		OnFault:         func(err error) { panic(err) },
		ElectionTimeout: 50 * time.Millisecond, MemTableBytes: 8 << 20,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(m.t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(m.t, m.node.Ready(ctx))
	m.client, err = shards.New(m.conn, shards.Config{})
	require.NoError(m.t, err)
}

func (m *market) do(c inventory.Command) *inventory.Outcome {
	o, err := m.client.Do(context.Background(), inventory.Entry{Correlation: "c", Command: c})
	require.NoError(m.t, err)
	require.Equal(m.t, inventory.CodeOK, o.Code)
	return o
}

func (m *market) doOn(shard inventory.ShardID, c inventory.Command) {
	o, err := m.client.DoOn(context.Background(), shard, inventory.Entry{Command: c})
	require.NoError(m.t, err)
	require.Equal(m.t, inventory.CodeOK, o.Code)
}

// reserve orders some numbers of a product.
func (m *market) reserve(key string, product inventory.ProductID, quantity uint32,
) *inventory.OrderView {
	return m.do(&inventory.Reserve{Key: key, Buyer: "b", Lines: []inventory.Line{
		{Product: product, Quantity: quantity, Pick: inventory.PickRandom},
	}}).Order
}

// trade makes n orders on each shard, by keys that begin with name, and sees most of them through.
func (m *market) trade(name string, n int) {
	var trading sync.WaitGroup
	for i, product := range products {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		trading.Go(func() {
			for k := range n {
				o := m.reserve(fmt.Sprint(name, k), product, 1+random.Uint32N(5))
				on := inventory.OnOrder{Order: o.ID}
				payment := inventory.PaymentID(fmt.Sprint("pay-", name, k))
				switch random.IntN(6) {
				case 0:
					m.do(&inventory.Release{OnOrder: on})
				case 1:
					m.do(&inventory.BeginPayment{OnOrder: on, Payment: payment})
				case 2:
					m.do(&inventory.BeginPayment{OnOrder: on, Payment: payment})
					m.do(&inventory.Refuse{OnOrder: on, Payment: payment})
				case 3:
					m.do(&inventory.Confirm{OnOrder: on, Payment: payment})
				case 4:
					m.do(&inventory.BeginPayment{OnOrder: on, Payment: payment})
					m.do(&inventory.Confirm{OnOrder: on, Payment: payment})
					m.do(&inventory.Ship{OnOrder: on})
				}
			}
		})
	}
	trading.Wait()
}

// orders are all that the actors have.
func (m *market) orders() map[inventory.OrderID]*inventory.OrderView {
	all := make(map[inventory.OrderID]*inventory.OrderView)
	for id := range inventory.ShardID(marketShards) {
		for after := []byte(nil); ; {
			part, err := m.client.Scan(context.Background(), id, wire.ScanQuery{After: after, Limit: 1000})
			require.NoError(m.t, err)
			for _, o := range part.Orders {
				all[o.ID] = o
			}
			if after = part.Next; len(after) == 0 {
				break
			}
		}
	}
	return all
}

// requireRows waits until the rows have everything that the shards have, and compares each order.
func (m *market) requireRows(pool *pgxpool.Pool) {
	m.t.Helper()
	ctx := context.Background()
	want := make([]uint64, marketShards)
	for id := range want {
		answer, err := m.client.Events(ctx, inventory.ShardID(id), wire.EventsQuery{Limit: 1})
		require.NoError(m.t, err)
		want[id] = answer.Last
	}
	for id, last := range want {
		require.Eventually(m.t, func() bool {
			var sequence *uint64
			err := pool.QueryRow(ctx, "SELECT sequence FROM shard_offsets WHERE shard = $1", id).
				Scan(&sequence)
			return err == nil && sequence != nil && *sequence >= last
		}, 30*time.Second, 20*time.Millisecond, "shard %d", id)
	}
	actors := m.orders()
	ids := make([]inventory.OrderID, 0, len(actors))
	for id := range actors {
		ids = append(ids, id)
	}
	rows, err := postgres.NewOrders(pool).Read(ctx, ids)
	require.NoError(m.t, err)
	require.Len(m.t, rows, len(actors))
	for id, row := range rows {
		require.Equal(m.t, actors[id], row.Order)
		require.Equal(m.t, actors[id].Total(), row.Total)
	}
	var count int
	require.NoError(m.t, pool.QueryRow(ctx, "SELECT count(*) FROM orders").Scan(&count))
	require.Equal(m.t, len(actors), count, "no row of anything else")
}

// follow starts a follower that ends with the test.
func (m *market) follow(pool *pgxpool.Pool) *postgres.Follower {
	f := postgres.Follow(pool, m.client, postgres.FollowerConfig{
		Log: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
	})
	m.t.Cleanup(f.Close)
	return f
}
