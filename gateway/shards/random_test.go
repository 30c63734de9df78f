package shards

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

func isError(err, target error) bool { return errors.Is(err, target) }

// history is what happened to one call, noted by the test apart from the lane.
type history struct {
	call *call
	open map[uint64]bool // batches in which it was sent, not said to have done nothing
}

// TestRandomHistories runs random calls through random fates and holds every end against what
// happened: "nothing was done" only if no attempt can have acted, an end by the deadline, bounds.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(30) {
		if !t.Run("", func(t *testing.T) { randomHistory(t, seed) }) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomHistory(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	b := newRig(t, func(c *Config) {
		c.Queue, c.InFlight, c.BatchRequests = 1+r.IntN(20), 1+r.IntN(20), 1+r.IntN(8)
	})
	every := []inventory.Kind{0}
	for kind := range kinds {
		every = append(every, kind)
	}
	live := map[*call]*history{}
	batches := map[uint64][]*history{}
	for range 400 {
		switch r.IntN(10) {
		case 0, 1, 2:
			c := b.call(every[r.IntN(len(every))])
			if b.lane.admit(c) == nil {
				live[c] = &history{call: c, open: map[uint64]bool{}}
			}
		case 3, 4:
			if _, batch, n := b.lane.take(nil, b.now); n > 0 {
				batches[batch] = sentIn(t, live, batch)
				require.Len(t, batches[batch], n)
			}
		case 5, 6, 7:
			answerOne(r, b, live, batches)
		case 8:
			if batch := b.lane.batch; r.IntN(2) == 0 {
				for _, h := range batches[batch] {
					if h.call.in == &b.lane.sent && h.call.batch == batch {
						delete(h.open, batch)
					}
				}
				b.lane.notSent(batch, b.now)
			} else {
				b.lane.lost(batch)
			}
		case 9:
			b.advance(time.Duration(r.IntN(900)) * time.Millisecond)
		}
		settle(t, b, live)
	}
	b.advance(testTimeout)
	settle(t, b, live)
	require.Empty(t, live)
	require.Len(t, b.lane.free, len(b.lane.slots))
}

// sentIn notes the calls that were just sent.
func sentIn(t *testing.T, live map[*call]*history, batch uint64) (sent []*history) {
	for c, h := range live {
		if c.batch != batch || c.in == nil {
			continue
		}
		if len(h.open) > 0 {
			require.True(t, repeatable(c.kind), "kind %d was repeated", c.kind)
		}
		h.open[batch] = true
		sent = append(sent, h)
	}
	return sent
}

// answerOne answers a call in any batch that it was ever sent in.
func answerOne(
	r *rand.Rand, b *rig, live map[*call]*history, batches map[uint64][]*history,
) {
	if b.lane.batch == 0 {
		return
	}
	batch := 1 + r.Uint64N(b.lane.batch)
	if r.IntN(3) > 0 {
		batch = b.lane.batch
	}
	sent := batches[batch]
	if len(sent) == 0 {
		return
	}
	h := sent[r.IntN(len(sent))]
	if live[h.call] != h {
		return
	}
	f := wire.Failure(r.IntN(int(wire.OutcomeUnknown) + 1))
	if f == wire.NoFailure {
		b.answer(batch, h.call, accepted)
		return
	}
	if f != wire.OutcomeUnknown && h.call.batch == batch && h.call.in == &b.lane.sent {
		delete(h.open, batch)
	}
	b.answer(batch, h.call, failure(f))
}

func settle(t *testing.T, b *rig, live map[*call]*history) {
	for c, h := range live {
		if len(c.done) == 0 {
			require.Less(t, b.now, c.deadline+int64(time.Second), "beyond its deadline")
			continue
		}
		delete(live, c)
		mayHaveActed := c.kind != 0 && len(h.open) > 0
		switch {
		case c.err == nil:
			require.NotNil(t, c.response.Outcome)
		case isError(c.err, ErrOutcomeUnknown):
			require.True(t, mayHaveActed)
		default:
			require.False(t, mayHaveActed, "%v, but it may have acted", c.err)
		}
	}
	require.Equal(t, len(live), b.lane.live.len)
	require.LessOrEqual(t, b.lane.sent.len, b.lane.config.InFlight)
	require.LessOrEqual(t, len(b.lane.slots), b.lane.config.Queue+b.lane.config.InFlight)
	require.LessOrEqual(t, b.lane.queued.len+b.lane.delayed.len+b.lane.sent.len, len(live))
}
