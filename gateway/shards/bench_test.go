package shards

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// BenchmarkDo makes calls from so many goroutines against a shard that accepts all, over a real
// NATS server. An operation is one call; "requests/message" is how they were batched.
func BenchmarkDo(b *testing.B) {
	for _, parallel := range []int{1, 64, 1024} {
		b.Run(fmt.Sprintf("inprocess/inflight=%d", parallel), func(b *testing.B) {
			c := newCluster(b, 1)
			benchmarkDo(b, c, c.client(Config{}), parallel)
		})
	}
	b.Run("tcp/inflight=1024", func(b *testing.B) {
		s := startNATS(b, &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT})
		c := &cluster{t: b, server: s, nc: connect(b, s.ClientURL())}
		c.announce(1)
		client, err := New(connect(b, s.ClientURL()), Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(client.Close)
		benchmarkDo(b, c, client, 1024)
	})
}

func benchmarkDo(b *testing.B, c *cluster, client *Client, parallel int) {
	acceptAll(b, c)
	entry := reserveFor("buyer-1")
	var made atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	for _, err := range goroutines(parallel, func(int) error {
		for made.Add(1) <= int64(b.N) {
			if _, err := client.Do(b.Context(), entry); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	var stats Stats
	client.Stats(&stats)
	shard := stats.Shards[0]
	b.ReportMetric(float64(shard.BatchedRequests)/float64(shard.Batches), "requests/message")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

// acceptAll leads shard 0 with as little work as there can be: it does not decode the commands,
// which all have the same length.
func acceptAll(b *testing.B, c *cluster) {
	order := inventory.OrderView{
		Status: inventory.StatusReserved, Buyer: "buyer-1",
		Items: []inventory.ItemView{{Product: "rifa-1", Numbers: []uint32{17}}},
	}
	answer := wire.AppendResponse(nil, &wire.Response{Outcome: &inventory.Outcome{Order: &order}})
	body := wire.AppendCommand(nil, reserveFor("buyer-1"))
	header := len(wire.AppendRequestHeader(nil, 0, 4999_000_000))
	var out []byte
	c.subscribe(wire.Subject(0), func(m *nats.Msg) {
		out = wire.Begin(out[:0], wire.KindResponses)
		count := 0
		for items := m.Data[wire.HeaderSize:]; len(items) > 0; count++ {
			out = append(append(out, items[:8]...), answer[8:]...)
			items = items[header+len(body):]
		}
		wire.Seal(out, count)
		if err := m.Respond(out); err != nil {
			b.Errorf("respond: %v", err)
		}
	})
}
