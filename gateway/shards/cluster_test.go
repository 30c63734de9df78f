package shards

import (
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"numera/engine/inventory"
	"numera/shard/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startNATS runs a real server in this process, without a listener.
func startNATS(t testing.TB, options *server.Options) *server.Server {
	options.NoSigs, options.NoLog = true, true
	s, err := server.NewServer(options)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(20*time.Second))
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	return s
}

func connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	closed := make(chan struct{})
	options = append(options,
		nats.Timeout(20*time.Second),
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	nc, err := nats.Connect(url, options...)
	require.NoError(t, err)
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return nc
}

// cluster is scripted shards behind a real NATS server.
type cluster struct {
	t      testing.TB
	server *server.Server
	nc     *nats.Conn // of the nodes
}

func newCluster(t testing.TB, shards uint16) *cluster {
	s := startNATS(t, &server.Options{DontListen: true})
	c := &cluster{t: t, server: s, nc: connect(t, "", nats.InProcessServer(s))}
	c.announce(shards)
	return c
}

func (c *cluster) announce(shards uint16) {
	c.subscribe(wire.InfoSubject, func(m *nats.Msg) {
		_ = m.Respond(wire.AppendInfo(nil, wire.Info{Cluster: "test", Shards: shards}))
	})
}

func (c *cluster) subscribe(subject string, handle nats.MsgHandler) *nats.Subscription {
	s, err := c.nc.QueueSubscribe(subject, "leader", handle)
	require.NoError(c.t, err)
	require.NoError(c.t, c.nc.Flush())
	return s
}

func (c *cluster) client(config Config) *Client {
	c.t.Helper()
	client, err := New(connect(c.t, "", nats.InProcessServer(c.server)), config)
	require.NoError(c.t, err)
	c.t.Cleanup(client.Close)
	return client
}

// message is what a shard has received.
type message struct {
	c        *cluster
	reply    string
	requests []wire.Request
}

// lead makes handle the leader of a shard until the subscription ends.
func (c *cluster) lead(shard inventory.ShardID, handle func(m message)) *nats.Subscription {
	return c.subscribe(wire.Subject(shard), func(m *nats.Msg) {
		frame, err := wire.Open(m.Data)
		if err != nil {
			c.t.Errorf("open: %v", err)
			return
		}
		requests, err := frame.Requests(nil)
		if err != nil {
			c.t.Errorf("requests: %v", err)
			return
		}
		handle(message{c, m.Reply, requests})
	})
}

// answer sends these responses.
func (m message) answer(responses ...wire.Response) {
	err := pack(responses, func(b []byte) error { return m.c.nc.Publish(m.reply, b) })
	if err != nil {
		m.c.t.Errorf("answer: %v", err)
	}
}

// pack gives send the messages that carry the responses.
func pack(responses []wire.Response, send func([]byte) error) error {
	var p wire.Packer
	for i := range responses {
		if err := p.Add(&responses[i], send); err != nil {
			return err
		}
	}
	return p.Flush(send)
}

// answerAll answers each request with the same, under its id.
func (m message) answerAll(r wire.Response) {
	responses := make([]wire.Response, len(m.requests))
	for i := range responses {
		responses[i] = r
		responses[i].ID = m.requests[i].ID
	}
	m.answer(responses...)
}

// echo answers a command with an order whose buyer is the command's, so that mixed up answers show.
func (m message) echo() {
	responses := make([]wire.Response, len(m.requests))
	for i, r := range m.requests {
		responses[i] = wire.Response{ID: r.ID, Outcome: &inventory.Outcome{
			Order: &inventory.OrderView{Buyer: r.Entry.Command.(*inventory.Reserve).Buyer},
		}}
	}
	m.answer(responses...)
}

func reserveFor(buyer inventory.BuyerID) inventory.Entry {
	return inventory.Entry{Correlation: "c", Command: &inventory.Reserve{
		Tenant: "t", Key: "k", Buyer: buyer,
		Lines: []inventory.Line{{Product: "rifa-1", Quantity: 1}},
	}}
}

// goroutines runs calls and gives their errors.
func goroutines(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs
}
