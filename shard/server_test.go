package shard

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// client says to a shard what a gateway says.
type client struct {
	t       testing.TB
	conn    *nats.Conn
	replies *nats.Subscription
	subject string
}

func newClient(t testing.TB, conn *nats.Conn) *client {
	subject := nats.NewInbox()
	replies, err := conn.SubscribeSync(subject)
	require.NoError(t, err)
	return &client{t, conn, replies, subject}
}

func (c *client) send(requests ...wire.Request) {
	message := wire.Begin(nil, wire.KindRequests)
	for i := range requests {
		if requests[i].Remaining == 0 {
			requests[i].Remaining = patience
		}
		message = wire.AppendRequest(message, &requests[i])
	}
	wire.Seal(message, len(requests))
	require.NoError(c.t, c.conn.PublishRequest(wire.Subject(0), c.subject, message))
}

// receive gives what comes next: the responses of one message.
func (c *client) receive() []wire.Response {
	for joined := (wire.Reassembler{}); ; {
		m, err := c.replies.NextMsg(patience)
		require.NoError(c.t, err)
		frame, err := wire.Open(m.Data)
		require.NoError(c.t, err)
		if frame.Kind() != wire.KindPart {
			responses, err := frame.Responses(nil)
			require.NoError(c.t, err)
			return responses
		}
		part, err := frame.Part()
		require.NoError(c.t, err)
		complete, err := joined.Add(1, part)
		require.NoError(c.t, err)
		if complete {
			response, err := joined.Response()
			require.NoError(c.t, err)
			return []wire.Response{response}
		}
	}
}

// ask gives the responses to requests, by their ids, which must be 0, 1, 2 and so on.
func (c *client) ask(requests ...wire.Request) []wire.Response {
	c.send(requests...)
	responses := make([]wire.Response, len(requests))
	for n := 0; n < len(requests); {
		for _, r := range c.receive() {
			responses[r.ID] = r
			n++
		}
	}
	return responses
}

func (c *client) query(q wire.Query) wire.Response { return c.ask(wire.Request{Query: q})[0] }

func (c *client) command(command inventory.Command) *inventory.Outcome {
	r := c.ask(wire.Request{Entry: &inventory.Entry{Command: command}})[0]
	require.Equal(c.t, wire.NoFailure, r.Failure)
	return r.Outcome
}

// shop is a client of a shard that sells "a", and the orders that it has made.
type shop struct {
	*client
	shard  *Shard
	orders []*inventory.OrderView
}

func TestServerQueries(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	c := newClient(t, config.Conn)

	info, err := config.Conn.Request(wire.InfoSubject, nil, patience)
	require.NoError(t, err)
	frame, err := wire.Open(info.Data)
	require.NoError(t, err)
	parsed, err := frame.Info()
	require.NoError(t, err)
	require.Equal(t, wire.Info{Cluster: n.identity.Cluster, Shards: 1}, parsed)

	require.NotZero(t, c.command(&inventory.Attach{Consumer: "c"}))
	require.True(t, c.command(product("a", 100)).Created)
	shop := &shop{client: c, shard: n.Shard(0)}
	for i := range 10 {
		o := c.command(reserve(fmt.Sprint(i), "b", uint32(10+i)))
		require.Equal(t, inventory.CodeOK, o.Code)
		shop.orders = append(shop.orders, o.Order)
	}

	t.Run("order", func(t *testing.T) { askOrder(t, shop) })
	t.Run("product", func(t *testing.T) { askProduct(t, shop) })
	t.Run("numbers", func(t *testing.T) { askNumbers(t, shop) })
	t.Run("orders", func(t *testing.T) { askOrders(t, shop) })
	t.Run("events", func(t *testing.T) { askEvents(t, shop) })
	t.Run("scan", func(t *testing.T) { askScan(t, shop) })
	t.Run("expired", func(t *testing.T) { askLate(t, shop) })
}

func askOrder(t *testing.T, c *shop) {
	r := c.query(wire.OrderQuery{Order: c.orders[3].ID, By: "b"})
	require.Equal(t, c.orders[3], r.Outcome.Order)
	r = c.query(wire.OrderQuery{Order: c.orders[3].ID, By: "another"})
	require.Equal(t, inventory.CodeOrderNotFound, r.Outcome.Code)
}

func askProduct(t *testing.T, c *shop) {
	for _, fresh := range []bool{true, false} {
		r := c.query(wire.ProductQuery{Product: "a", Fresh: fresh})
		require.EqualValues(t, 10, r.Outcome.Product.Counters.Reserved)
		r = c.query(wire.ProductQuery{Product: "b", Fresh: fresh})
		require.Equal(t, inventory.CodeProductNotFound, r.Outcome.Code)
	}
}

func askNumbers(t *testing.T, c *shop) {
	for _, q := range []struct {
		from, limit      uint32
		wantFrom, wantTo uint32
		want             []uint32
	}{
		{0, 0, 1, 100, []uint32{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}},
		{12, 3, 12, 14, []uint32{12, 13, 14}},
		{18, 1000, 18, 100, []uint32{18, 19}},
		{1 << 31, 5, 1 << 31, 100, []uint32{}},
		{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 100, []uint32{}},
	} {
		r := c.query(wire.NumbersQuery{Product: "a", From: q.from, Limit: q.limit})
		set := roaring.New()
		require.NoError(t, set.UnmarshalBinary(r.Numbers.Taken))
		require.Equal(t, q.want, set.ToArray())
		require.Equal(t, q.wantFrom, r.Numbers.From)
		require.Equal(t, q.wantTo, r.Numbers.To)
	}
	r := c.query(wire.NumbersQuery{Product: "b"})
	require.Equal(t, inventory.CodeProductNotFound, r.Outcome.Code)
}

func askOrders(t *testing.T, c *shop) {
	var listed []*inventory.OrderView
	after, pages := uint64(0), 0
	for more := true; more; pages++ {
		page := c.query(wire.OrdersQuery{Product: "a", After: after, Limit: 3}).Orders
		listed = append(listed, page.Orders...)
		if pages == 1 { // a new one appears at the end of the list
			c.orders = append(c.orders, c.command(reserve("new", "b")).Order)
		}
		if more = page.Next != 0; more {
			after = page.Next
		}
	}
	require.Equal(t, c.orders, listed)
	require.Equal(t, 4, pages)
	r := c.query(wire.OrdersQuery{Product: "b", Limit: 3})
	require.Equal(t, inventory.CodeProductNotFound, r.Outcome.Code)
}

func askEvents(t *testing.T, c *shop) {
	var kinds []inventory.EventKind
	after := uint64(0)
	for {
		events := c.query(wire.EventsQuery{After: after, Limit: 4}).Events
		require.False(t, events.Trimmed)
		if len(events.Events) == 0 {
			require.Equal(t, after, events.Last)
			break
		}
		for _, event := range events.Events {
			require.Equal(t, after+1, event.Sequence)
			after = event.Sequence
			kinds = append(kinds, event.Kind)
		}
	}
	require.Len(t, kinds, 1+2*len(c.orders))
	c.command(&inventory.Acknowledge{Consumer: "c", Sequence: 5})
	require.True(t, c.query(wire.EventsQuery{After: 4, Limit: 4}).Events.Trimmed)
	require.Len(t, c.query(wire.EventsQuery{After: 5}).Events.Events, 1)
}

func askScan(t *testing.T, c *shop) {
	found := 0
	for after, more := []byte(nil), true; more; {
		part := c.query(wire.ScanQuery{After: after, Limit: 4}).Scan
		require.NotZero(t, part.Sequence)
		found += len(part.Orders)
		after, more = part.Next, len(part.Next) > 0
	}
	require.Equal(t, len(c.orders), found)
	require.Equal(t, wire.Malformed, c.query(wire.ScanQuery{After: []byte("x"), Limit: 4}).Failure)
}

func askLate(t *testing.T, c *shop) {
	responses := c.ask(
		wire.Request{ID: 0, Remaining: -1, Entry: &inventory.Entry{Command: reserve("late", "b")}},
		wire.Request{ID: 1, Remaining: -1, Query: wire.NumbersQuery{Product: "a"}})
	require.Equal(t, wire.Expired, responses[0].Failure)
	require.Equal(t, wire.Expired, responses[1].Failure)
	require.EqualValues(t, 11, reserved(c.shard))
}

// TestServerLargeAnswers reads more than fits into one message, or into one answer.
func TestServerLargeAnswers(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	c := newClient(t, config.Conn)
	do(t, s, &inventory.Attach{Consumer: "c"})
	put := product("a", 100_000_000)
	put.Settings.MaxPerOrder = inventory.MaxNumbersInOrder
	do(t, s, put)
	const orders = 1500
	flood(s, orders, func(i int) inventory.Command {
		r := reserve(fmt.Sprint(i), "b")
		r.Lines[0].Quantity = inventory.MaxNumbersInOrder
		return r
	})

	messages := 0
	taken := c.query(wire.NumbersQuery{Product: "a"}).Numbers.Taken
	require.Greater(t, len(taken), 2*wire.MaxMessage)
	set := roaring.New()
	require.NoError(t, set.UnmarshalBinary(taken))
	require.EqualValues(t, orders*inventory.MaxNumbersInOrder, set.GetCardinality())

	// Both in one message of requests: neither waits for the other, and parts do not mix.
	found, last := 0, uint64(0)
	for after, cursor, more := uint64(0), []byte(nil), true; more || after < last; messages++ {
		c.send(wire.Request{ID: 1, Query: wire.EventsQuery{After: after, Limit: 10_000}},
			wire.Request{ID: 2, Query: wire.ScanQuery{After: cursor, Limit: 10_000}})
		for n := 0; n < 2; {
			for _, r := range c.receive() {
				require.Equal(t, wire.NoFailure, r.Failure)
				n++
				if r.ID == 1 {
					if len(r.Events.Events) > 0 {
						require.Equal(t, after+1, r.Events.Events[0].Sequence)
						after = r.Events.Events[len(r.Events.Events)-1].Sequence
					}
					last = r.Events.Last
				} else if more {
					found += len(r.Scan.Orders)
					cursor, more = r.Scan.Next, len(r.Scan.Next) > 0
				}
			}
		}
	}
	require.Equal(t, orders, found)
	require.EqualValues(t, 1+2*orders, last)
	require.Greater(t, messages, 1)
}

// TestServerMalformed sends what is not of requests: it is dropped and counted, and harms nothing.
func TestServerMalformed(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	n := openNode(t, config)
	defer n.Close()
	c := newClient(t, config.Conn)
	good := wire.Begin(nil, wire.KindRequests)
	good = wire.AppendRequest(good, &wire.Request{Query: wire.ProductQuery{Product: "a"}})
	wire.Seal(good, 1)
	for _, bad := range [][]byte{nil, []byte("x"), good[:len(good)-1], append(bytes.Clone(good), 0)} {
		require.NoError(t, c.conn.PublishRequest(wire.Subject(0), c.subject, bad))
	}
	require.NoError(t, c.conn.Publish(wire.Subject(0), good)) // nobody to answer
	r := c.query(wire.ProductQuery{Product: "a"})
	require.Equal(t, inventory.CodeProductNotFound, r.Outcome.Code)
	require.EqualValues(t, 5, count(t, n.Shard(0).stats.malformed))
	waiting, _, err := c.replies.Pending()
	require.NoError(t, err)
	require.Zero(t, waiting)
}

// TestServerOverloaded fills the queue over NATS: what does not fit is answered at once, in front
// of what waits for the disk.
func TestServerOverloaded(t *testing.T) {
	t.Parallel()
	var d disk
	config := testConfig(t, t.TempDir())
	config.FS, config.QueueLength = d.wrap(vfs.Default), 100
	n := openNode(t, config)
	defer n.Close()
	do(t, n.Shard(0), product("a", 100_000))
	c := newClient(t, config.Conn)
	requests := make([]wire.Request, 2000)
	for i := range requests {
		requests[i] = wire.Request{
			ID: uint64(i), Entry: &inventory.Entry{Command: reserve(fmt.Sprint(i), "b")},
		}
	}
	release := d.hold()
	began := time.Now()
	c.send(requests...)
	refused := c.receive() // while the disk is held up
	t.Logf("%d of %d were refused in %v", len(refused), len(requests), time.Since(began))
	config = config.withDefaults()
	require.GreaterOrEqual(t, len(refused), len(requests)-100-config.InFlight*config.BatchCommands)
	for _, r := range refused {
		require.Equal(t, wire.Overloaded, r.Failure)
		require.NotZero(t, r.RetryAfter)
	}
	release()
	accepted := 0
	for left := len(requests) - len(refused); left > 0; {
		responses := c.receive()
		left -= len(responses)
		for _, r := range responses {
			require.Equal(t, inventory.CodeOK, r.Outcome.Code)
			accepted++
		}
	}
	require.EqualValues(t, accepted, reserved(n.Shard(0)))
}

// TestServerStops deposes a leader: its subject has nobody behind it, and a request that was on its
// way is answered that it did nothing.
func TestServerStops(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	config.Logger = slog.New(slog.DiscardHandler)
	n := openNode(t, config)
	s := n.Shard(0)
	do(t, s, product("a", 100))
	c := newClient(t, config.Conn)
	s.leads.Store(0)
	require.Equal(t, wire.NotLeader, c.query(wire.OrderQuery{}).Failure)
	r := c.ask(wire.Request{Entry: &inventory.Entry{Command: reserve("k", "b")}})[0]
	require.Equal(t, wire.NotLeader, r.Failure)
	require.Zero(t, reserved(s))
	require.NoError(t, n.Close())
	_, err := config.Conn.Request(wire.Subject(0), []byte("x"), patience)
	require.ErrorIs(t, err, nats.ErrNoResponders)
}
