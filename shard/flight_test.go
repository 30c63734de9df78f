package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// TestGivenUpAndApplied gives an entry up while the disk is held up, as when leadership is lost, and
// lets the log have it all the same: who asked has heard that the outcome is unknown, and no more.
func TestGivenUpAndApplied(t *testing.T) {
	t.Parallel()
	s, d := openOnDisk(t, func(c *Config) { c.InFlight = 1 })

	release := d.hold()
	a := ask(s, "given up", time.Time{})
	eventually(t, func() bool { return s.underWay.Load() == 1 }, "proposed")
	s.flights.mu.Lock()
	require.Len(t, s.flights.bySeed, 1)
	var seed uint64
	for seed = range s.flights.bySeed {
	}
	s.flights.mu.Unlock()
	s.giveUp(seed, ErrOutcomeUnknown)
	require.ErrorIs(t, a.wait(), ErrOutcomeUnknown)
	require.Zero(t, s.underWay.Load())
	release()
	do(t, s, reserve("after it", "b")) // needs the only slot
	require.EqualValues(t, 2, reserved(s))
	require.EqualValues(t, 1, a.times.Load())
}

// TestEachHearsItsOwn has hundreds of buyers, each of another number, in one entry, whose outcomes
// come in portions: everybody hears of the number that was asked for.
func TestEachHearsItsOwn(t *testing.T) {
	t.Parallel()
	s, d := openOnDisk(t, func(c *Config) { c.InFlight = 1 })

	release := d.hold()
	const buyers = 300
	type heard struct{ asked, got uint32 }
	answers := make(chan heard, 2*buyers)
	for number := uint32(buyers); number > 0; number-- {
		s.Propose(&Proposal{
			Entry: inventory.Entry{Command: reserve(fmt.Sprint("number ", number), "b", number)},
			Done: func(o *inventory.Outcome, err error) {
				h := heard{asked: number}
				if err == nil && o.Code == inventory.CodeOK {
					h.got = o.Order.Items[0].Numbers[0]
				}
				answers <- h
			},
		})
		eventually(t, func() bool { return s.underWay.Load() == 1 }, "proposed") // the first one, alone
	}
	release()
	for range buyers {
		select {
		case h := <-answers:
			require.Equal(t, h.asked, h.got)
		case <-time.After(patience):
			require.Fail(t, "somebody hears nothing")
		}
	}
	require.Empty(t, answers)
}
