package shards

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/shard/wire"
)

func TestWithdraw(t *testing.T) {
	b := newRig(t, nil)
	c := b.admit(reserve)
	require.True(t, b.lane.withdraw(c))
	b.ended(c, ErrOverloaded)
	b.send(0)

	c = b.admit(reserve)
	batch := b.send(1)
	require.True(t, b.lane.withdraw(c))
	b.ended(c, ErrOutcomeUnknown)
	require.False(t, b.lane.withdraw(c))
	b.answer(batch, c, accepted)
	require.EqualValues(t, 1, b.lane.stats.Ignored)

	c = b.admit(reserve)
	b.answer(b.send(1), c, failure(wire.NotLeader))
	require.True(t, b.lane.withdraw(c))
	b.ended(c, ErrUnavailable)
}

func TestBounds(t *testing.T) {
	b := newRig(t, func(c *Config) { c.Queue, c.InFlight, c.BatchRequests = 3, 4, 2 })
	full := func() {
		t.Helper()
		require.ErrorIs(t, b.lane.admit(b.call(reserve)), ErrOverloaded)
	}
	var calls []*call
	for range 3 {
		calls = append(calls, b.admit(reserve))
	}
	full()
	b.send(2)
	b.send(1)
	for range 3 {
		calls = append(calls, b.admit(reserve))
	}
	full()
	last := b.send(1)
	b.send(0) // four are in flight
	calls = append(calls, b.admit(reserve))
	full()
	b.lane.notSent(last, b.now)
	full() // it waits again
	b.send(1)
	require.Len(t, b.lane.slots, 7)

	b.advance(testTimeout)
	ends := map[error]int{}
	for _, c := range calls {
		require.Len(t, c.done, 1)
		for _, err := range []error{ErrOverloaded, ErrUnavailable, ErrOutcomeUnknown} {
			if isError(c.err, err) {
				ends[err]++
			}
		}
	}
	require.Equal(t, map[error]int{
		ErrOutcomeUnknown: 4, ErrUnavailable: 1, ErrOverloaded: 2, // the last were never sent
	}, ends)
	require.Zero(t, b.lane.live.len)
	require.Len(t, b.lane.free, 7)
}

func TestBatchBytes(t *testing.T) {
	b := newRig(t, func(c *Config) { c.BatchBytes = 1000 })
	for _, size := range []int{400, 400, 200, 5000, 10} {
		c := b.call(reserve)
		c.body = make([]byte, size)
		require.NoError(t, b.lane.admit(c))
	}
	b.send(2)
	b.send(1)
	b.send(1) // larger than a batch: alone
	b.send(1)
}

// TestRemainingShrinks: every attempt carries what is left then.
func TestRemainingShrinks(t *testing.T) {
	b := newRig(t, nil)
	c := b.call(0)
	c.body = wire.AppendQuery(nil, wire.EventsQuery{})
	require.NoError(t, b.lane.admit(c))
	for attempt := range 3 {
		message, _, n := b.lane.take(wire.Begin(nil, wire.KindRequests), b.now)
		require.Equal(t, 1, n)
		wire.Seal(message, n)
		frame, err := wire.Open(message)
		require.NoError(t, err)
		requests, err := frame.Requests(nil)
		require.NoError(t, err)
		require.Equal(t, testTimeout-time.Duration(attempt)*testAttempt, requests[0].Remaining)
		require.Equal(t, uint64(c.id), requests[0].ID)
		b.advance(testAttempt)
	}
}

// TestTooLateToSend: less than the millisecond that the wire can tell is nothing.
func TestTooLateToSend(t *testing.T) {
	b := newRig(t, nil)
	late, next := b.admit(reserve), b.admit(reserve)
	next.deadline += int64(time.Second)
	b.now += int64(testTimeout - time.Millisecond + 1)
	b.send(1)
	b.ended(late, ErrOverloaded)
	b.live(next)
}

func TestStrangersAreIgnored(t *testing.T) {
	b := newRig(t, nil)
	old := b.admit(reserve)
	b.answer(b.send(1), old, accepted)
	c, other := b.admit(reserve), b.admit(0)
	require.Equal(t, old.id.slot(), c.id.slot())
	other.want = wantNumbers
	batch := b.send(2)
	queued := b.admit(reserve)
	for name, stranger := range map[string]struct {
		batch uint64
		id    callID
	}{
		"of an ended call":      {batch, old.id},
		"of no call":            {batch, makeCallID(3, 1, 5000)},
		"of another shard":      {batch, makeCallID(4, uint32(c.id>>16), c.id.slot())},
		"of an earlier batch":   {batch - 1, c.id},
		"of a batch to come":    {batch + 1, c.id},
		"of a call not sent":    {batch, queued.id},
		"of a command, not its": {batch, other.id},
	} {
		before := b.lane.stats.Ignored
		r := accepted
		r.ID = uint64(stranger.id)
		b.lane.answer(stranger.batch, &r, b.now)
		require.Equal(t, before+1, b.lane.stats.Ignored, name)
	}
	b.answer(batch, c, wire.Response{Numbers: &wire.Numbers{}})
	b.live(c)
	b.live(other)
	b.live(queued)
	b.lane.notSent(batch-1, b.now)
	require.Equal(t, 2, b.lane.sent.len)
}

func TestParts(t *testing.T) {
	numbers := wire.Response{Numbers: &wire.Numbers{Taken: make([]byte, 3*wire.MaxMessage)}}
	b := newRig(t, func(c *Config) { c.PartBytes = 4 * wire.MaxMessage })
	ask := func() *call {
		c := b.call(0)
		c.want = wantNumbers
		require.NoError(t, b.lane.admit(c))
		return c
	}
	split := func(c *call) (parts []wire.Part) {
		numbers.ID = uint64(c.id)
		require.NoError(t, pack([]wire.Response{numbers}, func(message []byte) error {
			frame, err := wire.Open(append([]byte(nil), message...))
			require.NoError(t, err)
			part, err := frame.Part()
			parts = append(parts, part)
			return err
		}))
		require.Len(t, parts, 4)
		return parts
	}
	join := func(batch uint64, parts ...wire.Part) (whole *wire.Reassembler) {
		for _, part := range parts {
			require.Nil(t, whole)
			whole = b.lane.join(batch, part)
		}
		return whole
	}

	c := ask()
	batch := b.send(1)
	parts := split(c)
	require.Nil(t, join(batch, parts[:2]...))
	require.Positive(t, b.parts.Load())
	b.advance(testAttempt) // the rest is lost; the next attempt is answered
	batch = b.send(1)
	whole := join(batch, parts...)
	require.NotNil(t, whole)
	response, err := whole.Response()
	require.NoError(t, err)
	require.Equal(t, numbers, response)
	require.Zero(t, b.parts.Load())
	require.Nil(t, join(batch, parts[1]), "behind the last")
	require.EqualValues(t, 1, b.lane.stats.Ignored)

	require.Nil(t, join(batch, parts[0]))
	b.advance(testTimeout)
	b.ended(c, ErrUnavailable)
	require.Zero(t, b.parts.Load(), "what was gathered is dropped with the call")
	require.Nil(t, join(batch, parts[1]), "of an ended call")

	first, second := ask(), ask()
	batch = b.send(2)
	require.Nil(t, join(batch, split(first)[:3]...))
	require.Nil(t, join(batch, split(second)[:2]...))
	b.ended(second, ErrOverloaded)
	b.live(first)
	require.NotNil(t, join(batch, split(first)[3]))
}

func TestCloseEndsAllCalls(t *testing.T) {
	b := newRig(t, nil)
	doubtful := b.admit(reserve)
	b.send(1)
	b.advance(testAttempt)
	delayed := b.admit(reserve)
	inFlight, query := b.admit(reserve), b.admit(0)
	batch := b.send(4)
	b.answer(batch, doubtful, failure(wire.NotLeader))
	b.answer(batch, delayed, failure(wire.NotLeader))
	queued := b.admit(reserve)
	b.lane.close()
	b.ended(doubtful, ErrOutcomeUnknown)
	b.ended(inFlight, ErrOutcomeUnknown)
	b.ended(delayed, ErrClosed)
	b.ended(query, ErrClosed)
	b.ended(queued, ErrClosed)
	require.ErrorIs(t, b.lane.admit(b.call(reserve)), ErrClosed)
}

// TestWake: the sender is woken when there is something to send, and only then.
func TestWake(t *testing.T) {
	b := newRig(t, func(c *Config) { c.InFlight = 1 })
	woken := func(want bool) {
		t.Helper()
		require.Equal(t, want, len(b.lane.wake) == 1)
		if want {
			<-b.lane.wake
		}
	}
	b.send(0)
	c := b.admit(reserve)
	next := b.admit(reserve)
	woken(true)
	batch := b.send(1)
	b.send(0)
	woken(false)
	b.answer(batch, c, accepted)
	woken(true)
	batch = b.send(1)
	b.send(0)
	b.answer(batch, next, failure(wire.NotLeader))
	woken(false)
	b.advance(longestPause)
	woken(true)
	b.send(1)
	b.send(0)
	b.advance(testAttempt)
	woken(true)
}

// TestCallsAreUsedAgain: without a trace of the use before, and without garbage.
func TestCallsAreUsedAgain(t *testing.T) {
	b := newRig(t, nil)
	c := b.admit(reserve)
	b.send(1)
	b.advance(testAttempt)
	b.answer(b.send(1), c, accepted)
	b.ended(c, nil)
	<-c.done
	c.reset()
	require.Equal(t, &call{body: c.body, done: c.done}, c)

	entry := reserveFor("b")
	buf := make([]byte, 0, 1<<10)
	response := accepted
	garbage := testing.AllocsPerRun(1000, func() {
		c.reset()
		c.kind, c.want = reserve, wantOutcome
		c.body = wire.AppendCommand(c.body, entry)
		c.deadline = b.now + int64(testTimeout)
		if b.lane.admit(c) != nil {
			t.Error("not admitted")
		}
		_, batch, _ := b.lane.take(wire.Begin(buf, wire.KindRequests), b.now)
		response.ID = uint64(c.id)
		b.lane.answer(batch, &response, b.now)
		<-c.done
	})
	require.Zero(t, garbage)
}
