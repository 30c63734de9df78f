package shards

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// TestFullQueueAnswersAtOnce: the shard answers nothing, and the queue is as full as it gets.
func TestFullQueueAnswersAtOnce(t *testing.T) {
	cluster := newCluster(t, 1)
	received := make(chan message, 100)
	cluster.lead(0, func(m message) { received <- m })
	config := patient
	config.Queue, config.InFlight = 10, 5
	client := cluster.client(config)
	ended := make(chan []error, 2)
	do := func(n int) {
		ended <- goroutines(n, func(int) error {
			_, err := client.Do(t.Context(), reserveFor("b"))
			return err
		})
	}
	go do(5)
	for held := 0; held < 5; {
		held += len((<-received).requests)
	}
	go do(10)
	var stats Stats
	require.Eventually(t, func() bool {
		client.Stats(&stats)
		return stats.Shards[0].Queued == 10 && stats.Shards[0].InFlight == 5
	}, 20*time.Second, time.Millisecond)

	began := time.Now()
	for range 100 {
		_, err := client.Do(t.Context(), reserveFor("b"))
		require.ErrorIs(t, err, ErrOverloaded)
		var overloaded *OverloadedError
		require.ErrorAs(t, err, &overloaded)
		require.Positive(t, overloaded.RetryAfter)
	}
	require.Less(t, time.Since(began), config.Timeout, "not one has waited for its turn")
	client.Close()
	unknown := 0
	for _, err := range append(<-ended, <-ended...) {
		if isError(err, ErrOutcomeUnknown) {
			unknown++
		} else {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
	require.Equal(t, 5, unknown)
	_, err := client.Do(t.Context(), reserveFor("b"))
	require.ErrorIs(t, err, ErrClosed)
}

// TestNoLeader: NATS itself says so, long before an attempt would time out.
func TestNoLeader(t *testing.T) {
	cluster := newCluster(t, 1)
	client := cluster.client(patient)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	ended := make(chan error)
	go func() {
		_, err := client.Do(ctx, reserveFor("b"))
		ended <- err
	}()
	var stats Stats
	require.Eventually(t, func() bool {
		client.Stats(&stats)
		return stats.Shards[0].NoResponders > 1
	}, 20*time.Second, time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-ended, ErrUnavailable)
	client.Stats(&stats)
	require.Zero(t, stats.Shards[0].Unknown)
}

func TestReadyNamesTheShardsWithoutALeader(t *testing.T) {
	cluster := newCluster(t, 3)
	client := cluster.client(patient)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	cluster.lead(1, func(m message) { m.answerAll(accepted) })
	ended := make(chan error)
	go func() { ended <- client.Ready(ctx) }()
	var stats Stats
	require.Eventually(t, func() bool {
		client.Stats(&stats)
		s := stats.Shards
		return s[0].NoResponders > 0 && s[1].Calls == 1 && s[1].Live == 0 && s[2].NoResponders > 0
	}, 20*time.Second, time.Millisecond)
	giveUp()
	err := <-ended
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "shard 0, shard 2")
	cluster.lead(0, func(m message) { m.answerAll(accepted) })
	cluster.lead(2, func(m message) { m.answerAll(accepted) })
	require.NoError(t, client.Ready(t.Context()))
}

func TestLeaderComesLate(t *testing.T) {
	cluster := newCluster(t, 1)
	client := cluster.client(patient)
	ended := make(chan error)
	go func() {
		// Not repeatable: it is asked again because nothing was done.
		_, err := client.Do(t.Context(), inventory.Entry{
			Command: &inventory.SetSaleState{Product: "p"},
		})
		ended <- err
	}()
	var stats Stats
	require.Eventually(t, func() bool {
		client.Stats(&stats)
		return stats.Shards[0].NoResponders > 0
	}, 20*time.Second, time.Millisecond)
	cluster.lead(0, func(m message) { m.answerAll(accepted) })
	require.NoError(t, <-ended)
}

// TestLeaderChangesInTheMiddle of much traffic: the old one refuses for a while, then is gone.
func TestLeaderChangesInTheMiddle(t *testing.T) {
	cluster := newCluster(t, 1)
	var handled atomic.Int64
	half := make(chan struct{})
	old := cluster.lead(0, func(m message) {
		switch n := handled.Add(int64(len(m.requests))); {
		case n < 500:
			m.echo()
		default:
			m.answerAll(failure(wire.NotLeader))
			if n-int64(len(m.requests)) < 500 {
				close(half)
			}
		}
	})
	client := cluster.client(Config{Timeout: time.Minute}) // what the old one had is asked again
	ended := make(chan []error)
	go func() {
		ended <- goroutines(1000, func(i int) error {
			buyer := inventory.BuyerID(fmt.Sprint("buyer-", i))
			o, err := client.Do(t.Context(), reserveFor(buyer))
			if err == nil && o.Order.Buyer != buyer {
				return fmt.Errorf("%s got the answer of %s", buyer, o.Order.Buyer)
			}
			return err
		})
	}()
	<-half
	require.NoError(t, old.Unsubscribe())
	require.NoError(t, cluster.nc.Flush())
	cluster.lead(0, message.echo)
	for _, err := range <-ended {
		require.NoError(t, err)
	}
}

// TestSlowShard answers when the attempt has long been given up, with what it did.
func TestSlowShard(t *testing.T) {
	cluster := newCluster(t, 1)
	received := make(chan message, 100)
	cluster.lead(0, func(m message) { received <- m })
	client := cluster.client(Config{Timeout: time.Minute, AttemptTimeout: 50 * time.Millisecond})
	type result struct {
		outcome *inventory.Outcome
		err     error
	}
	ended := make(chan result)
	go func() {
		o, err := client.Do(t.Context(), reserveFor("b"))
		ended <- result{o, err}
	}()
	first, second := <-received, <-received
	require.NotEqual(t, first.reply, second.reply)
	require.Equal(t, first.requests[0].Entry, second.requests[0].Entry)
	require.Greater(t, first.requests[0].Remaining, second.requests[0].Remaining)
	second.answerAll(failure(wire.NotLeader))
	first.answerAll(accepted)
	got := <-ended
	require.NoError(t, got.err)
	require.Equal(t, accepted.Outcome.Code, got.outcome.Code)
}

func TestSilentShard(t *testing.T) {
	cluster := newCluster(t, 1)
	remaining := make(chan time.Duration, 1000)
	cluster.lead(0, func(m message) { remaining <- m.requests[0].Remaining })
	const timeout = time.Second // an attempt has to leave within it
	client := cluster.client(Config{AttemptTimeout: 50 * time.Millisecond, Timeout: timeout})
	began := time.Now()
	_, err := client.Do(t.Context(), reserveFor("b"))
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.GreaterOrEqual(t, time.Since(began), timeout)
	require.LessOrEqual(t, <-remaining, timeout)

	_, err = client.Events(t.Context(), 0, wire.EventsQuery{Limit: 1})
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestContextEndsBeforeTheTimeout(t *testing.T) {
	const timeout = time.Second
	cluster := newCluster(t, 1)
	remaining := make(chan time.Duration, 1)
	cluster.lead(0, func(m message) { remaining <- m.requests[0].Remaining })
	client := cluster.client(patient)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	began := time.Now()
	_, err := client.Do(ctx, reserveFor("b"))
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.Less(t, time.Since(began), patient.Timeout)
	require.LessOrEqual(t, <-remaining, timeout)
}

func TestCancelledCall(t *testing.T) {
	cluster := newCluster(t, 1)
	received := make(chan message)
	cluster.lead(0, func(m message) { received <- m })
	client := cluster.client(patient)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := client.Do(ctx, reserveFor("b"))
		ended <- err
	}()
	<-received
	gone := fmt.Errorf("the buyer has gone")
	cancel(gone)
	err := <-ended
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, gone)
}

// TestGarbageIsIgnored: whatever else arrives at the inbox, the call gets its answer.
func TestGarbageIsIgnored(t *testing.T) {
	cluster := newCluster(t, 1)
	cluster.lead(0, func(m message) {
		inbox := m.reply[:strings.LastIndexByte(m.reply, '.')+1]
		id := m.requests[0].ID
		var good []byte
		_ = pack([]wire.Response{{ID: id, Outcome: taken.Outcome}},
			func(b []byte) error { good = append(good, b...); return nil })
		damaged := append([]byte(nil), good...)
		damaged[len(damaged)-1] ^= 1
		for _, garbage := range []struct {
			subject string
			data    []byte
		}{
			{m.reply, nil},
			{m.reply, []byte("no message")},
			{m.reply, damaged},
			{m.reply, wire.AppendInfo(nil, wire.Info{Cluster: "c", Shards: 1})},
			{m.reply, wire.AppendPart(nil, wire.Part{ID: id, Bytes: []byte{1}})},
			{m.reply, wire.AppendPart(nil, wire.Part{ID: id, Number: 7, Bytes: []byte{1}})},
			{inbox + "not-a-number", good},
			{inbox + "zzzz", good},
			{inbox + "zzzzzzzzzzzzzzzzzzzzzz", good},
		} {
			_ = cluster.nc.Publish(garbage.subject, garbage.data)
		}
		m.answer(wire.Response{ID: id ^ 1<<16, Outcome: taken.Outcome})
		m.answer(wire.Response{ID: id ^ 1, Outcome: taken.Outcome})
		m.answer(wire.Response{ID: id, Events: &wire.Events{}})
		m.answer(wire.Response{ID: id, Outcome: accepted.Outcome})
	})
	client := cluster.client(patient)
	o, err := client.Do(t.Context(), reserveFor("b"))
	require.NoError(t, err)
	require.Equal(t, inventory.CodeOK, o.Code)
	var stats Stats
	client.Stats(&stats)
	require.EqualValues(t, 7, stats.Malformed)
	require.EqualValues(t, 5, stats.Shards[0].Ignored)
}

func TestNewWaitsForACluster(t *testing.T) {
	s := startNATS(t, &server.Options{DontListen: true})
	nc := connect(t, "", nats.InProcessServer(s))
	_, err := New(nc, Config{InfoTimeout: 150 * time.Millisecond})
	require.ErrorIs(t, err, ErrNoCluster)

	c := &cluster{t: t, server: s, nc: nc}
	asked := make(chan struct{}, 100)
	wrong := c.subscribe(wire.InfoSubject, func(m *nats.Msg) {
		_ = m.Respond([]byte("what?"))
		asked <- struct{}{}
	})
	made := make(chan *Client)
	go func() {
		client, err := New(connect(t, "", nats.InProcessServer(s)), Config{})
		if err != nil {
			t.Errorf("new: %v", err)
		}
		made <- client
	}()
	<-asked
	require.NoError(t, wrong.Unsubscribe())
	c.announce(2)
	client := <-made
	defer client.Close()
	require.EqualValues(t, 2, client.Info().Shards)
}

// TestCloseWaits for all that the Client has started.
func TestCloseWaits(t *testing.T) {
	cluster := newCluster(t, 50)
	for range 5 {
		client := cluster.client(Config{})
		client.Close()
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		require.NotContains(t, string(stacks), "shards.(*Client)")
		select {
		case <-client.drained:
		default:
			require.Fail(t, "the subscription still delivers")
		}
	}
}

// TestOnlyWhatIsSureWasNeverSent: an error of the connection may come after a part was written.
func TestOnlyWhatIsSureWasNeverSent(t *testing.T) {
	require.True(t, neverSent(fmt.Errorf("publish: %w", nats.ErrReconnectBufExceeded)))
	require.True(t, neverSent(nats.ErrConnectionClosed))
	require.False(t, neverSent(io.ErrClosedPipe))
	require.False(t, neverSent(os.ErrDeadlineExceeded))
	require.False(t, neverSent(nats.ErrStaleConnection))
}

func TestConfigIsChecked(t *testing.T) {
	nc := newCluster(t, 1).nc
	for _, wrong := range []Config{
		{Timeout: -1},
		{Timeout: 2 * wire.MaxRemaining},
		{AttemptTimeout: time.Microsecond},
		{Queue: -1},
		{Queue: maxSlots, InFlight: 1},
		{BatchRequests: wire.MaxItems + 1},
		{BatchBytes: 1},
		{PartBytes: -1},
	} {
		_, err := New(nc, wrong)
		require.Error(t, err, "%+v", wrong)
	}
	small := startNATS(t, &server.Options{DontListen: true, MaxPayload: 32 << 10})
	nc = connect(t, "", nats.InProcessServer(small))
	(&cluster{t: t, server: small, nc: nc}).announce(1)
	_, err := New(nc, Config{})
	require.ErrorContains(t, err, "32768")
}

// TestLostConnection over TCP: what was sent is unknown, what was not is unavailable, and when the
// server is back all goes on.
func TestLostConnection(t *testing.T) {
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}
	s := startNATS(t, options)
	url := s.ClientURL()
	c := &cluster{t: t, server: s, nc: connect(t, url)}
	c.announce(1)
	received := make(chan message, 1)
	leader := c.lead(0, func(m message) { received <- m })

	disconnected := make(chan struct{}, 1)
	nc := connect(t, url, nats.DisconnectErrHandler(func(*nats.Conn, error) {
		disconnected <- struct{}{}
	}))
	client, err := New(nc, patient)
	require.NoError(t, err)
	defer client.Close()
	ended := make(chan error)
	do := func() (giveUp context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := client.Do(ctx, reserveFor("b"))
			ended <- err
		}()
		return cancel
	}
	defer do()()
	(<-received).answerAll(accepted)
	require.NoError(t, <-ended)

	giveUp := do()
	<-received
	s.Shutdown()
	s.WaitForShutdown()
	<-disconnected
	giveUp()
	require.ErrorIs(t, <-ended, ErrOutcomeUnknown)
	giveUp = do()
	var stats Stats
	require.Eventually(t, func() bool {
		client.Stats(&stats)
		return stats.Shards[0].Delayed == 1
	}, 20*time.Second, time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-ended, ErrUnavailable)

	again := &server.Options{Host: "127.0.0.1", Port: options.Port}
	startNATS(t, again)
	require.Eventually(t, func() bool {
		return nc.IsConnected() && c.nc.IsConnected() && c.nc.Flush() == nil && leader.IsValid()
	}, 20*time.Second, 5*time.Millisecond)
	defer do()()
	(<-received).answerAll(accepted)
	require.NoError(t, <-ended)
}
