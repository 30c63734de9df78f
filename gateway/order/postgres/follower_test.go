package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/cluster"
	"numera/gateway/order/postgres/postgrestest"
	"numera/gateway/shards"
)

// TestFollow begins with orders that are there already, and goes on with new ones.
func TestFollow(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	m.trade("before", 50)
	f := m.follow(pool)
	m.trade("while", 100)
	m.requireRows(pool)
	require.Empty(t, f.Degraded(t.Context()))
	f.Close()
	m.trade("meanwhile", 50)
	m.follow(pool)
	m.requireRows(pool)
}

// TestPostgresStops stops PostgreSQL while orders go on, and starts it again.
func TestPostgresStops(t *testing.T) {
	t.Parallel()
	m, dir := openMarket(t), postgrestest.Dir(t)
	server := startCluster(t, dir)
	pool := postgrestest.Open(t, server.DSN())
	_, err := postgres.Migrate(t.Context(), pool)
	require.NoError(t, err)
	f := m.follow(pool)
	m.trade("before", 30)
	m.requireRows(pool)

	require.NoError(t, server.Stop())
	m.trade("without", 200)
	require.Eventually(t, func() bool {
		events, seconds := f.Lag()
		return slices.Equal(f.Degraded(t.Context()), []string{"postgres"}) &&
			events > 1000 && seconds > 0
	}, time.Minute, 20*time.Millisecond, "it says what is down, and how far the rows are behind")
	require.Error(t, f.Trouble())

	startCluster(t, dir)
	m.trade("after", 30)
	m.requireRows(pool)
	require.Empty(t, f.Degraded(t.Context()))
	events, _ := f.Lag()
	require.Zero(t, events)
}

// TestPostgresCrashes kills PostgreSQL, which loses its last commits, while orders go on. What it
// has lost was not acknowledged: it is pulled again, not scanned.
func TestPostgresCrashes(t *testing.T) {
	t.Parallel()
	m, dir := openMarket(t), postgrestest.Dir(t)
	server := startCluster(t, dir)
	pool := postgrestest.Open(t, server.DSN())
	_, err := postgres.Migrate(t.Context(), pool)
	require.NoError(t, err)
	registry := prometheus.NewRegistry()
	f := postgres.Follow(pool, m.client, postgres.FollowerConfig{Registerer: registry})
	t.Cleanup(f.Close)
	m.trade("before", 10)
	m.requireRows(pool)
	_, err = pool.Exec(t.Context(), "CHECKPOINT") // the scan is not what is to be lost
	require.NoError(t, err)
	trading := make(chan struct{})
	go func() {
		defer close(trading)
		m.trade("while", 200)
	}()
	require.Eventually(t, func() bool { return count(t, registry, "numera_orders_events_total") > 200 },
		time.Minute, time.Millisecond)
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.Fields(string(text))[0])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-server.Exited()
	require.NoError(t, server.Stop())
	startCluster(t, dir)
	<-trading
	m.requireRows(pool)
	require.EqualValues(t, marketShards, count(t, registry, "numera_orders_scans_total"))
}

// count reads a counter.
func count(t *testing.T, registry *prometheus.Registry, name string) float64 {
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal(name)
	return 0
}

func startCluster(t *testing.T, dir string) *cluster.Cluster {
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: dir, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	return c
}

// TestEmptied takes all rows away under a running follower, and the newer half of them: what live
// and sold orders are comes back from the actors.
func TestEmptied(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	m.follow(pool)
	m.trade("a", 50)
	m.requireRows(pool)
	_, err := pool.Exec(t.Context(), "TRUNCATE orders, order_items, shard_offsets, engine CASCADE")
	require.NoError(t, err)
	m.requireRows(pool)

	_, err = pool.Exec(t.Context(), `CREATE TABLE old AS SELECT * FROM shard_offsets`)
	require.NoError(t, err)
	m.trade("b", 50)
	m.requireRows(pool)
	_, err = pool.Exec(t.Context(), `
		DELETE FROM orders o USING old WHERE o.shard = old.shard AND o.changed > old.sequence;
		UPDATE shard_offsets s SET sequence = old.sequence FROM old WHERE old.shard = s.shard`)
	require.NoError(t, err)
	m.requireRows(pool)
}

// TestDetached loses its place in the outbox while nothing else keeps it.
func TestDetached(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	f := m.follow(pool)
	m.trade("a", 30)
	m.requireRows(pool)
	detach := func() {
		for id := range inventory.ShardID(marketShards) {
			m.doOn(id, &inventory.Detach{Consumer: "orders"})
		}
	}
	detach() // while it works
	m.trade("b", 30)
	m.requireRows(pool)
	f.Close()
	detach() // while it does not
	m.trade("c", 30)
	m.follow(pool)
	m.requireRows(pool)
}

// TestNotAcknowledged is killed between the commit and the acknowledgement: the next one goes on
// from what is committed, and gets events that it has already.
func TestNotAcknowledged(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	var deaf muted
	deaf.Client = m.client
	f := postgres.Follow(pool, &deaf, postgres.FollowerConfig{})
	m.trade("a", 50)
	m.requireRows(pool)
	require.Eventually(t, func() bool { return deaf.acknowledged.Load() == marketShards },
		time.Minute, 10*time.Millisecond)
	f.Close()
	m.trade("b", 10)
	m.follow(pool)
	m.requireRows(pool)

	// And the rows may be older than what was acknowledged by more than the outbox keeps.
	_, err := pool.Exec(t.Context(), "UPDATE shard_offsets SET sequence = 1")
	require.NoError(t, err)
	m.requireRows(pool)
}

// muted loses acknowledgements.
type muted struct {
	*shards.Client
	acknowledged atomic.Int64
}

func (m *muted) DoOn(
	ctx context.Context, shard inventory.ShardID, e inventory.Entry,
) (*inventory.Outcome, error) {
	if e.Command.Kind() == inventory.KindAcknowledge {
		m.acknowledged.Add(1)
		return &inventory.Outcome{}, nil
	}
	return m.Client.DoOn(ctx, shard, e)
}

// TestSeveralFollowers has two gateways over one database, of which one goes.
func TestSeveralFollowers(t *testing.T) {
	t.Parallel()
	m, dsn := openMarket(t), postgrestest.DSN(t)
	pool := postgrestest.Open(t, dsn)
	first := m.follow(pool)
	m.trade("a", 20)
	m.requireRows(pool)
	second := m.follow(postgrestest.Open(t, dsn))
	m.trade("b", 50)
	m.requireRows(pool)
	require.Empty(t, second.Degraded(t.Context()), "it stands by")
	first.Close()
	m.trade("c", 50)
	m.requireRows(pool)
	require.NoError(t, second.Trouble())
}

// TestRestartedEngine restarts the node under a running follower.
func TestRestartedEngine(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	f := m.follow(pool)
	m.trade("a", 30)
	require.NoError(t, m.node.Close())
	m.client.Close()
	m.start()
	f.Close()
	m.follow(pool)
	m.trade("b", 30)
	m.requireRows(pool)
}

// TestAnotherEngine gives the database of one system to another.
func TestAnotherEngine(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	_, err := pool.Exec(t.Context(), "INSERT INTO engine (cluster) VALUES ('other')")
	require.NoError(t, err)
	f := openMarket(t).follow(pool)
	require.Eventually(t, func() bool {
		return errors.Is(f.Trouble(), postgres.ErrAnotherEngine)
	}, time.Minute, 10*time.Millisecond)
}

// TestEngineBehind has rows that contain more than the engine does: they are evidence, and stay.
func TestEngineBehind(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	f := m.follow(pool)
	m.trade("a", 5)
	m.requireRows(pool)
	f.Close()
	_, err := pool.Exec(t.Context(), "UPDATE shard_offsets SET sequence = sequence + 1000")
	require.NoError(t, err)
	f = m.follow(pool)
	require.Eventually(t, func() bool {
		return slices.Contains(f.Degraded(t.Context()), "orders")
	}, time.Minute, 10*time.Millisecond)
}

// TestRefusedRow has an order that the database does not take: all others go on, and it is raised.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	o := m.reserve("k", products[0], 1)
	_, err := pool.Exec(t.Context(), fmt.Sprintf(
		"ALTER TABLE orders ADD CONSTRAINT planted CHECK (id <> '%s')", o.ID))
	require.NoError(t, err)
	f := m.follow(pool)
	m.trade("a", 30)
	require.Eventually(t, func() bool {
		var n int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM orders").Scan(&n)
		return err == nil && n == 90
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, f.Trouble())
	var kind, subject string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT kind, subject FROM findings").
		Scan(&kind, &subject))
	require.Equal(t, postgres.FindingRowRefused, kind)
	require.Equal(t, o.ID.String(), subject)
}

// TestDroppedPartition loses the partition of today under a running follower.
func TestDroppedPartition(t *testing.T) {
	t.Parallel()
	m, pool := openMarket(t), postgrestest.New(t)
	m.follow(pool)
	m.trade("a", 10)
	m.requireRows(pool)
	day := time.Now().UTC().Format("20060102")
	_, err := pool.Exec(t.Context(), fmt.Sprintf(
		"DROP TABLE order_items_%s; ALTER TABLE orders DETACH PARTITION orders_%s; DROP TABLE orders_%s",
		day, day, day))
	require.NoError(t, err)
	o := m.reserve("k", products[0], 3)
	orders := postgres.NewOrders(pool)
	require.Eventually(t, func() bool {
		row, err := orders.Find(t.Context(), o.ID)
		return err == nil && row.Changed == o.Changed
	}, time.Minute, 10*time.Millisecond)
}
