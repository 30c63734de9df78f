package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway"
	"numera/gateway/order/postgres/postgrestest"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/clock"
	"numera/shard/wire"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }

const (
	patience   = time.Minute
	shardCount = 2
	never      = 24 * time.Hour // a SyncDelay that no test waits for
)

// house is a real node of two shards and a real JetStream, between which a Relay stands.
type house struct {
	t      *testing.T
	conn   *nats.Conn
	js     jetstream.JetStream
	client *shards.Client
	orders int
}

func open(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, conn: startNATS(t)}
	quiet := slog.New(slog.DiscardHandler)
	node, err := shard.Open(shard.Config{
		Dir: t.TempDir(), Shards: shardCount, Conn: h.conn, Logger: quiet,
		Clock:           clock.New(clock.NewSystem(), quiet),
		OnFault:         func(err error) { panic(err) },
		ElectionTimeout: 50 * time.Millisecond, MemTableBytes: 4 << 20,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, node.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, node.Ready(ctx))
	h.client, err = shards.New(h.conn, shards.Config{Timeout: patience, AttemptTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(h.client.Close)
	h.js, err = jetstream.New(h.conn)
	require.NoError(t, err)
	for shard := range inventory.ShardID(shardCount) {
		h.do(&inventory.PutProduct{Product: productOn(shard), Settings: settings()})
	}
	return h
}

func startNATS(t *testing.T) *nats.Conn {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
	})
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(patience))
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.Timeout(patience))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn
}

// productOn is a product of a shard.
func productOn(shard inventory.ShardID) inventory.ProductID {
	for i := 0; ; i++ {
		id := inventory.ProductID(fmt.Sprint("p", i))
		if id.Shard(shardCount) == shard {
			return id
		}
	}
}

func settings() inventory.Settings {
	s := inventory.DefaultSettings()
	s.Name, s.Count, s.Price = "x", 1_000_000, inventory.Money{Amount: 100, Currency: "BRL"}
	return s
}

// do has a command decided, each with a correlation id of its own.
func (h *house) do(c inventory.Command) *inventory.Outcome {
	h.t.Helper()
	h.orders++
	o, err := h.client.Do(h.t.Context(), inventory.Entry{
		Correlation: fmt.Sprint("request-", h.orders), Command: c,
	})
	require.NoError(h.t, err)
	require.Equal(h.t, inventory.CodeOK, o.Code)
	return o
}

// sell makes n orders on each shard, and releases every second one.
func (h *house) sell(n int) {
	h.t.Helper()
	for i := range n {
		for shard := range inventory.ShardID(shardCount) {
			made := h.do(&inventory.Reserve{
				Key: fmt.Sprint(h.orders), Buyer: "b",
				Lines: []inventory.Line{{Product: productOn(shard), Quantity: 1}},
			})
			if i%2 == 1 {
				h.do(&inventory.Release{OnOrder: inventory.OnOrder{Order: made.Order.ID}})
			}
		}
	}
}

// attach lets the shards keep events from now on, for a relay that begins later. It says what they come
// after, by shard.
func (h *house) attach() (after [shardCount]uint64) {
	h.t.Helper()
	for shard := range after {
		attach := &inventory.Attach{Consumer: Config{}.withDefaults().Consumer}
		o, err := h.client.DoOn(h.t.Context(), inventory.ShardID(shard), inventory.Entry{Command: attach})
		require.NoError(h.t, err)
		require.Equal(h.t, inventory.CodeOK, o.Code)
		after[shard] = o.Sequence
	}
	return after
}

// relay runs a Relay, which the test or its end closes.
func (h *house) relay(outbox Outbox, syncDelay time.Duration) *Relay {
	h.t.Helper()
	r, err := Start(h.t.Context(), h.conn, outbox, shardCount, Config{SyncDelay: syncDelay})
	require.NoError(h.t, err)
	h.t.Cleanup(r.Close)
	return r
}

// outbox is what a shard keeps after a sequence.
func (h *house) outbox(shard inventory.ShardID, after uint64) *wire.Events {
	h.t.Helper()
	kept, err := h.client.Events(h.t.Context(), shard, wire.EventsQuery{After: after, Limit: 10_000})
	require.NoError(h.t, err)
	return kept
}

// told waits for so many messages in the stream, and gives all of them.
func (h *house) told(n int) []jetstream.Msg {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	consumer, err := h.js.OrderedConsumer(ctx, Stream, jetstream.OrderedConsumerConfig{})
	require.NoError(h.t, err)
	all := make([]jetstream.Msg, n)
	for i := range all {
		all[i], err = consumer.Next(jetstream.FetchContext(ctx))
		require.NoError(h.t, err, "message %d of %d", i, n)
	}
	return all
}

// requireWhole expects the stream to hold each event that the shards keep after these sequences
// once, those of one shard in order.
func (h *house) requireWhole(after [shardCount]uint64) {
	h.t.Helper()
	var want [shardCount][]inventory.Event
	sum := 0
	for shard := range want {
		kept := h.outbox(inventory.ShardID(shard), after[shard])
		require.False(h.t, kept.Trimmed)
		want[shard] = kept.Events
		sum += len(kept.Events)
	}
	require.NotZero(h.t, sum)
	for _, m := range h.told(sum) {
		shard := 0
		if m.Headers().Get(HeaderShard) == "1" {
			shard = 1
		}
		require.NotEmpty(h.t, want[shard])
		e := &want[shard][0]
		want[shard] = want[shard][1:]
		h.requireMessage(m, inventory.ShardID(shard), e)
	}
	stream, err := h.js.Stream(h.t.Context(), Stream)
	require.NoError(h.t, err)
	require.EqualValues(h.t, sum, stream.CachedInfo().State.Msgs, "each once")
}

func (h *house) requireMessage(m jetstream.Msg, shard inventory.ShardID, e *inventory.Event) {
	h.t.Helper()
	require.Equal(h.t, SubjectPrefix+e.Kind.String(), m.Subject())
	require.Equal(h.t, nats.Header{
		nats.MsgIdHdr:     {fmt.Sprint(shard, "-", e.Sequence)},
		HeaderCorrelation: {e.Correlation},
		HeaderShard:       {fmt.Sprint(shard)},
		HeaderSequence:    {fmt.Sprint(e.Sequence)},
	}, m.Headers())
	require.True(h.t, strings.HasPrefix(e.Correlation, "request-"), e.Correlation)
	require.Equal(h.t, string(gateway.AppendEvent(nil, shard, e)), string(m.Data()))
}

// lasts are the shards' newest sequences.
func (h *house) lasts() (last [shardCount]uint64) {
	h.t.Helper()
	for shard := range last {
		last[shard] = h.outbox(inventory.ShardID(shard), 0).Last
	}
	return last
}

// TestEventsAreTold: all of them, in order, with what makes them known.
func TestEventsAreTold(t *testing.T) {
	t.Parallel()
	h := open(t)
	from := h.attach()
	h.sell(20) // before it runs, and while it does
	r := h.relay(h.client, never)
	h.sell(20)
	h.requireWhole(from)
	require.Eventually(t, func() bool { return r.Lag() == 0 }, patience, time.Millisecond)
}

// TestToldFromTheStart: the shards of a new system keep nothing before they are attached to, which Start
// waits for.
func TestToldFromTheStart(t *testing.T) {
	t.Parallel()
	for range 5 {
		h := open(t)
		from := h.lasts()
		h.relay(h.client, never)
		h.sell(1)
		h.requireWhole(from)
	}
}

// closedOutbox is of shards that refuse everything, as when the disk is full.
type closedOutbox struct{ Outbox }

func (closedOutbox) DoOn(
	context.Context, inventory.ShardID, inventory.Entry,
) (*inventory.Outcome, error) {
	return nil, errors.New("closed")
}

// TestStartEnds where no shard can be attached to and whoever starts it gives up.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	h := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), attachPatience/10)
	defer cancel()
	_, err := Start(ctx, h.conn, closedOutbox{h.client}, shardCount, Config{SyncDelay: never})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "attach")
}

// TestResumesWithoutAGap after stops, of which the shards know nothing, as after a kill. What is
// told again for that is in the stream once.
func TestResumesWithoutAGap(t *testing.T) {
	t.Parallel()
	h := open(t)
	from := h.attach()
	for range 3 {
		h.sell(10)
		r := h.relay(h.client, never)
		h.sell(10)
		r.Close() // wherever it is
		h.sell(10)
	}
	h.relay(h.client, never)
	h.requireWhole(from)
}

// TestWhatJetStreamLosesIsToldAgain: it may lose what it has accepted, and the shards keep that for
// SyncDelay.
func TestWhatJetStreamLosesIsToldAgain(t *testing.T) {
	t.Parallel()
	h := open(t)
	from := h.attach()
	h.sell(10)
	r := h.relay(h.client, never)
	h.requireWhole(from)
	r.Close()
	require.NoError(t, h.js.DeleteStream(t.Context(), Stream))
	h.relay(h.client, never)
	h.requireWhole(from)
}

// TestShardsForgetWhatIsSafe, which is what JetStream has had for SyncDelay, and go on from there.
func TestShardsForgetWhatIsSafe(t *testing.T) {
	t.Parallel()
	h := open(t)
	from := h.attach()
	h.sell(10)
	r := h.relay(h.client, time.Millisecond)
	for shard, after := range from {
		require.Eventually(t, func() bool {
			kept := h.outbox(inventory.ShardID(shard), after)
			return kept.Trimmed && len(h.outbox(inventory.ShardID(shard), kept.Last).Events) == 0
		}, patience, 10*time.Millisecond)
	}
	r.Close()
	before := h.told(int(h.lasts()[0] - from[0] + h.lasts()[1] - from[1]))
	kept := h.lasts()
	h.sell(10)
	h.relay(h.client, time.Millisecond)
	sum := len(before)
	for shard, last := range h.lasts() {
		sum += int(last - kept[shard])
	}
	next := from
	for _, m := range h.told(sum) {
		shard := 0
		if m.Headers().Get(HeaderShard) == "1" {
			shard = 1
		}
		next[shard]++
		require.Equal(t, fmt.Sprint(shard, "-", next[shard]), m.Headers().Get(nats.MsgIdHdr))
	}
}

var errTorn = errors.New("the connection is torn")

// torn is an outbox whose pulls fail from time to time.
type torn struct {
	*shards.Client
	pulls atomic.Int64
}

func (o *torn) Events(
	ctx context.Context, shard inventory.ShardID, q wire.EventsQuery,
) (*wire.Events, error) {
	if o.pulls.Add(1) == 3 {
		return nil, errTorn
	}
	return o.Client.Events(ctx, shard, q)
}

// TestFailuresLeaveNoGap: after one it begins anew.
func TestFailuresLeaveNoGap(t *testing.T) {
	t.Parallel()
	h := open(t)
	from := h.attach()
	h.sell(10)
	outbox := &torn{Client: h.client}
	h.relay(outbox, never)
	require.Eventually(t, func() bool { return outbox.pulls.Load() > 3 }, patience, time.Millisecond)
	h.sell(10)
	h.requireWhole(from)
}
