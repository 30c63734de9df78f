package bench

import (
	"context"
	"fmt"
	"time"
)

// mostDoubts is how many requests without an answer are asked for again: with more, the run says
// nothing of the system but that it did not answer.
const mostDoubts = 10_000

// resolve asks again, with the same key, for everything that got no answer, so that the oracle
// knows of each whether it acted. The load has ended.
func (l *load) resolve(ctx context.Context) (resolved int, err error) {
	asking := <-newLane(l, 0, 1, 0).free // a lane of its own, whose counts nobody reads
	for _, lane := range l.lanes {
		doubts := lane.doubts
		lane.doubts = nil
		if len(doubts) > mostDoubts-resolved {
			return resolved, fmt.Errorf("%w: more than %d requests got no answer",
				ErrIncomplete, mostDoubts)
		}
		for i := range doubts {
			if err := l.askAgain(ctx, asking, &doubts[i]); err != nil {
				return resolved, err
			}
			resolved++
		}
	}
	return resolved, nil
}

// askAgain repeats one operation until it is decided.
func (l *load) askAgain(ctx context.Context, c *call, op *operation) error {
	r := l.owner(op.buyer).records.at(op.buyer.record())
	for deadline := time.Now().Add(patience); ; pause(ctx, 20*time.Millisecond) {
		c.op = *op
		doubts := r.doubts
		l.peer.start(c)
		<-c.lane.free
		switch c.verdict {
		case acknowledged, refused:
			r.doubts = doubts - 1
			return nil
		case garbled:
			return nil // a violation already
		case unanswered:
			r.doubts = doubts
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%w: %v got no answer, also not again", ErrIncomplete, op)
		}
	}
}
