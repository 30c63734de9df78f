package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"numera/gateway/events"
)

// event is what a consumer of the stream sees.
type event struct {
	Kind     string
	Shard    int
	Sequence int
	Order    map[string]any
}

// follower folds the stream into the newest image of each order.
type follower struct {
	last   map[int]int // by shard
	orders map[string]map[string]any
}

// catchUp reads the stream until it tells of these orders, which are all, as they are now. Events may come
// twice, as after a crash; they never leave a gap.
func (f *follower) catchUp(t *testing.T, url string, now []map[string]any) {
	t.Helper()
	conn, err := nats.Connect(url, nats.Timeout(patience))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, events.Stream, jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	for !f.knows(now) {
		m, err := consumer.Next(jetstream.FetchContext(ctx))
		require.NoError(t, err, "the stream does not tell all that happened")
		var e event
		require.NoError(t, json.Unmarshal(m.Data(), &e))
		require.Equal(t, events.SubjectPrefix+e.Kind, m.Subject())
		require.NotEmpty(t, m.Headers().Get(events.HeaderCorrelation))
		if e.Sequence <= f.last[e.Shard] {
			continue
		}
		require.Equal(t, f.last[e.Shard]+1, e.Sequence, "a gap in shard %d", e.Shard)
		f.last[e.Shard] = e.Sequence
		if e.Order != nil {
			f.orders[e.Order["id"].(string)] = e.Order
		}
	}
}

// knows says whether these orders are all, as they are.
func (f *follower) knows(orders []map[string]any) bool {
	for _, o := range orders {
		if !reflect.DeepEqual(o, f.orders[o["id"].(string)]) {
			return false
		}
	}
	return len(f.orders) == len(orders)
}

// TestStreamTellsTheWholeState follows numera-events across a kill -9, and ends with what the API
// says of every order.
func TestStreamTellsTheWholeState(t *testing.T) {
	dir := t.TempDir()
	s := startSystem(t, dir)
	s.product("a", 1000, "")
	f := &follower{last: map[int]int{}, orders: map[string]map[string]any{}}
	live := func(from, to int) {
		for k := from; k < to; k++ {
			r := s.reserve(fmt.Sprint(k), "b", `{"product":"a","quantity":1}`)
			require.Equal(t, 201, r.status, r.text)
			path := "/v1/orders/" + r.order()["id"].(string)
			switch k % 4 {
			case 1:
				require.Equal(t, 200, s.call("DELETE", path, serviceToken, "", "").status)
			case 2:
				paid := s.call("POST", path+"/confirm", serviceToken, "", `{"payment":"p"}`)
				require.Equal(t, 200, paid.status, paid.text)
			case 3:
				path += "/begin-payment"
				require.Equal(t, 200, s.call("POST", path, serviceToken, "", `{"payment":"p"}`).status)
			}
		}
	}
	live(0, 40)
	f.catchUp(t, s.nats, s.orders("a"))
	live(40, 80)
	s.kill()
	s = startSystem(t, dir)
	live(80, 120)
	all := s.orders("a")
	require.Len(t, all, 120)
	f.catchUp(t, s.nats, all)
	s.stop()
}

// TestServiceOnNATS asks for an order by NATS as an internal caller does.
func TestServiceOnNATS(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 10, "")
	conn, err := nats.Connect(s.nats, nats.Timeout(patience))
	require.NoError(t, err)
	defer conn.Close()
	m := nats.NewMsg("numera.v1.orders.create")
	m.Header.Set("Authorization", "Bearer "+serviceToken)
	m.Header.Set("Idempotency-Key", "k")
	m.Data = []byte(`{"buyer":"b","items":[{"product":"a","numbers":[7]}]}`)
	created, err := conn.RequestMsg(m, patience)
	require.NoError(t, err)
	require.Equal(t, "201", created.Header.Get("Numera-Status"), string(created.Data))
	again := s.reserve("k", "b", `{"product":"a","numbers":[7]}`)
	require.Equal(t, "true", again.header.Get("Idempotent-Replay"), "one key on both transports")

	other := nats.NewMsg(m.Subject)
	other.Header.Set("Idempotency-Key", "k2")
	other.Header.Set("Authorization", "Bearer "+serviceToken)
	other.Data = m.Data
	taken, err := conn.RequestMsg(other, patience)
	require.NoError(t, err)
	require.Equal(t, "409", taken.Header.Get("Numera-Status"))
	require.NotEmpty(t, taken.Header.Get(micro.ErrorCodeHeader))

	_, err = conn.Request("numera.shard.0", nil, patience)
	require.ErrorIs(t, err, nats.ErrNoResponders, "what is inside cannot be reached from outside")
	s.stop()
}
