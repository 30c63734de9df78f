package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// thriftyPeer accepts every third request and refuses the others.
type thriftyPeer struct{ asked int }

func (p *thriftyPeer) start(c *call) {
	a := answer{code: "ok"}
	if p.asked++; p.asked%3 != 0 {
		a = answer{verdict: refused, code: "sold_out"}
	}
	c.finish(a)
}

// TestRefusalsAreNoSpeed lets a side have two turns, in which two thirds are refused.
func TestRefusalsAreNoSpeed(t *testing.T) {
	p := &plan{quantity: 1, numbers: 1000, ids: []inventory.ProductID{"a"}}
	p.any()
	s := side{
		load: newLoad(p, &thriftyPeer{}, nil, shape{lanes: 1, window: 1}, 1),
		next: func() *schedule { return newSchedule(ArrivalsConstant, 0, 300, time.Minute, 1) },
	}
	s.load.blind = true
	for range 2 {
		turn, err := s.take(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 100, turn.Accepted)
		require.EqualValues(t, 200, turn.Others)
		require.InEpsilon(t, 100/turn.Elapsed.Seconds(), turn.PerSecond, 1e-9)
		round := Round{Subject: turn}
		require.Contains(t, round.refusals(), "200 and 0 not accepted")
	}
	s.load.peer = &thriftyPeer{}
	s.next = func() *schedule { return newSchedule(ArrivalsConstant, 0, 1, time.Minute, 1) }
	_, err := s.take(t.Context())
	require.ErrorIs(t, err, ErrIncomplete, "nothing was accepted")
}
