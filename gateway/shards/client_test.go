package shards

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

func TestCommandsReachTheirShards(t *testing.T) {
	const shards = 3
	cluster := newCluster(t, shards)
	for shard := range inventory.ShardID(shards) {
		cluster.lead(shard, func(m message) {
			m.answerAll(wire.Response{Outcome: &inventory.Outcome{Sequence: uint64(shard) + 1}})
		})
	}
	client := cluster.client(Config{})
	require.Equal(t, wire.Info{Cluster: "test", Shards: shards}, client.Info())
	ctx := t.Context()
	on := func(want inventory.ShardID, o *inventory.Outcome, err error) {
		t.Helper()
		require.NoError(t, err)
		require.EqualValues(t, want+1, o.Sequence)
	}
	for i := range 20 {
		label := fmt.Sprint("label-", i)
		product := inventory.ProductID(label + ".second")
		shard := inventory.ProductID(label).Shard(shards)
		settings := inventory.DefaultSettings()
		settings.Name, settings.Count, settings.Price.Currency = "n", 1, "BRL"
		for _, command := range []inventory.Command{
			&inventory.Reserve{Buyer: "b", Lines: []inventory.Line{{Product: product, Quantity: 1}}},
			&inventory.PutProduct{Product: product, Settings: settings},
			&inventory.Restock{Product: product, Count: 1},
			&inventory.Block{Product: product, Numbers: []uint32{1}},
			&inventory.Unblock{Product: product, Numbers: []uint32{1}},
			&inventory.SetSaleState{Product: product},
		} {
			o, err := client.Do(ctx, inventory.Entry{Command: command})
			on(shard, o, err)
		}
		o, err := client.Product(ctx, wire.ProductQuery{Product: product})
		on(shard, o, err)
		_, o, err = client.Numbers(ctx, wire.NumbersQuery{Product: product})
		on(shard, o, err)
		_, o, err = client.Orders(ctx, wire.OrdersQuery{Product: product, Limit: 1})
		on(shard, o, err)
	}
	for shard := range inventory.ShardID(shards) {
		order := inventory.OnOrder{Order: inventory.MakeOrderID(shard, 0, inventory.KeyHash{1})}
		for _, command := range []inventory.Command{
			&inventory.Extend{OnOrder: order},
			&inventory.Release{OnOrder: order},
			&inventory.BeginPayment{OnOrder: order, Payment: "p"},
			&inventory.Confirm{OnOrder: order, Payment: "p"},
			&inventory.Refuse{OnOrder: order, Payment: "p"},
			&inventory.Ship{OnOrder: order},
			&inventory.Refund{OnOrder: order},
		} {
			o, err := client.Do(ctx, inventory.Entry{Command: command})
			on(shard, o, err)
			_, err = client.DoOn(ctx, shard, inventory.Entry{Command: command})
			require.ErrorIs(t, err, ErrInvalid)
		}
		o, err := client.Order(ctx, wire.OrderQuery{Order: order.Order})
		on(shard, o, err)
		for _, command := range []inventory.Command{
			&inventory.Attach{Consumer: "c"},
			&inventory.Detach{Consumer: "c"},
			&inventory.Acknowledge{Consumer: "c"},
			&inventory.LowerClock{},
		} {
			o, err := client.DoOn(ctx, shard, inventory.Entry{Command: command})
			on(shard, o, err)
			_, err = client.Do(ctx, inventory.Entry{Command: command})
			require.ErrorIs(t, err, ErrInvalid)
		}
	}
}

// TestAnsweredWithoutAsking: nobody leads the only shard, and no call waits for it.
func TestAnsweredWithoutAsking(t *testing.T) {
	client := newCluster(t, 1).client(Config{})
	ctx := t.Context()
	elsewhere := inventory.MakeOrderID(1, 0, inventory.KeyHash{})
	is := func(want inventory.Code, o *inventory.Outcome, err error) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, o.Code)
		require.NotNil(t, o.Refusal)
	}
	o, err := client.Do(ctx, inventory.Entry{
		Command: &inventory.Ship{OnOrder: inventory.OnOrder{Order: elsewhere}},
	})
	is(inventory.CodeOrderNotFound, o, err)
	o, err = client.Order(ctx, wire.OrderQuery{Order: elsewhere})
	is(inventory.CodeOrderNotFound, o, err)
	o, err = client.Order(ctx, wire.OrderQuery{By: "not a buyer"})
	is(inventory.CodeOrderNotFound, o, err)
	o, err = client.Product(ctx, wire.ProductQuery{Product: "A"})
	is(inventory.CodeProductNotFound, o, err)
	_, o, err = client.Numbers(ctx, wire.NumbersQuery{Product: "A"})
	is(inventory.CodeProductNotFound, o, err)
	_, o, err = client.Orders(ctx, wire.OrdersQuery{Product: "A"})
	is(inventory.CodeProductNotFound, o, err)
	o, err = client.Do(ctx, inventory.Entry{Command: &inventory.Reserve{}})
	is(inventory.CodeQuantityInvalid, o, err)
	o, err = client.DoOn(ctx, 0, inventory.Entry{Command: &inventory.Attach{}})
	is(inventory.CodeValueInvalid, o, err)

	_, err = client.Events(ctx, 1, wire.EventsQuery{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = client.Scan(ctx, math.MaxUint16, wire.ScanQuery{})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = client.Scan(ctx, 0, wire.ScanQuery{After: make([]byte, wire.MaxText+1)})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = client.DoOn(ctx, 1, inventory.Entry{Command: &inventory.Attach{Consumer: "c"}})
	require.ErrorIs(t, err, ErrInvalid)

	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = client.Do(ended, reserveFor("b"))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

// TestUnreadableCommandsAreKeptOut: they would take their whole batch down.
func TestUnreadableCommandsAreKeptOut(t *testing.T) {
	cluster := newCluster(t, 1)
	cluster.lead(0, func(m message) { m.answerAll(accepted) })
	client := cluster.client(Config{})
	long := func(n int) string { return strings.Repeat("x", n) }
	restock := func(tenant, key int) inventory.Command {
		return &inventory.Restock{
			Product: "p", Count: 1, Tenant: long(tenant), Key: long(key),
		}
	}
	reserve := func(tenant, key int) inventory.Command {
		r := reserveFor("b").Command.(*inventory.Reserve)
		r.Tenant, r.Key = long(tenant), long(key)
		return r
	}
	for _, command := range []func(tenant, key int) inventory.Command{restock, reserve} {
		for _, size := range []struct {
			correlation, tenant, key int
			want                     error
		}{
			{wire.MaxCorrelation, wire.MaxTenant, wire.MaxKey, nil},
			{wire.MaxCorrelation + 1, 0, 0, ErrInvalid},
			{0, wire.MaxTenant + 1, 0, ErrInvalid},
			{0, 0, wire.MaxKey + 1, ErrInvalid},
		} {
			_, err := client.Do(t.Context(), inventory.Entry{
				Correlation: long(size.correlation), Command: command(size.tenant, size.key),
			})
			require.ErrorIs(t, err, size.want)
		}
	}
}

// patient waits longer than a machine with the race detector and much else to do may take, and so
// asks nothing twice that was not refused.
var patient = Config{Timeout: time.Minute, AttemptTimeout: time.Minute}

func TestPages(t *testing.T) {
	cluster := newCluster(t, 1)
	numbers := &wire.Numbers{From: 1, To: 100_000_000, Taken: make([]byte, 12_500_000)}
	for i := 0; i < len(numbers.Taken); i += 1000 {
		numbers.Taken[i] = byte(i / 1000)
	}
	orders := &wire.OrdersPage{Next: 7, Orders: []*inventory.OrderView{{Items: items}}}
	events := &wire.Events{Last: 9}
	scan := &wire.Scan{Sequence: 8, Next: []byte{1}}
	cluster.lead(0, func(m message) {
		for _, r := range m.requests {
			switch q := r.Query.(type) {
			case wire.NumbersQuery:
				m.answer(wire.Response{ID: r.ID, Numbers: numbers})
			case wire.OrdersQuery:
				m.answer(wire.Response{ID: r.ID, Orders: orders})
			case wire.EventsQuery:
				if q.After == 5 {
					m.answer(wire.Response{ID: r.ID, Events: events})
				}
			case wire.ScanQuery:
				m.answer(wire.Response{ID: r.ID, Scan: scan})
			}
		}
	})
	client := cluster.client(patient)
	ctx := t.Context()

	gotNumbers, o, err := client.Numbers(ctx, wire.NumbersQuery{Product: "p"})
	require.NoError(t, err)
	require.Nil(t, o)
	require.True(t, bytes.Equal(numbers.Taken, gotNumbers.Taken))
	gotOrders, o, err := client.Orders(ctx, wire.OrdersQuery{Product: "p", Limit: 1})
	require.NoError(t, err)
	require.Nil(t, o)
	require.Equal(t, orders, gotOrders)
	gotEvents, err := client.Events(ctx, 0, wire.EventsQuery{After: 5, Limit: 1})
	require.NoError(t, err)
	require.Equal(t, events, gotEvents)
	gotScan, err := client.Scan(ctx, 0, wire.ScanQuery{Limit: 1})
	require.NoError(t, err)
	require.Equal(t, scan, gotScan)

	var stats Stats
	client.Stats(&stats)
	require.Zero(t, stats.PartBytes)
	require.Zero(t, stats.Malformed)
}

var items = []inventory.ItemView{{Product: "p", Numbers: []uint32{1, 2}}}

// TestManyCallsTravelTogether: each gets its own answer, in far fewer messages than calls.
func TestManyCallsTravelTogether(t *testing.T) {
	const calls = 10_000
	cluster := newCluster(t, 1)
	cluster.lead(0, message.echo)
	config := patient
	config.Queue = calls
	client := cluster.client(config)
	errs := goroutines(calls, func(i int) error {
		buyer := inventory.BuyerID(fmt.Sprint("buyer-", i))
		o, err := client.Do(t.Context(), reserveFor(buyer))
		if err == nil && o.Order.Buyer != buyer {
			return fmt.Errorf("%s got the answer of %s", buyer, o.Order.Buyer)
		}
		return err
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	var stats Stats
	client.Stats(&stats)
	shard := stats.Shards[0]
	require.EqualValues(t, calls, shard.Calls)
	require.EqualValues(t, calls, shard.BatchedRequests)
	require.Less(t, shard.Batches, shard.BatchedRequests)
	require.Zero(t, shard.Live+shard.Queued+shard.InFlight+shard.Delayed)
	t.Logf("%d requests in %d messages", shard.BatchedRequests, shard.Batches)
}
