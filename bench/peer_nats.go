package bench

import (
	"context"
	"errors"
	"time"

	"numera/engine/inventory"
	"numera/gateway/shards"
)

// natsPeer asks the shards as a gateway does. It blocks.
type natsPeer struct{ client *shards.Client }

// askTimeout bounds one request on the paths that have a deadline.
const askTimeout = 5 * time.Second

func (p natsPeer) start(c *call) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	o, err := p.client.Do(ctx, inventory.Entry{Command: c.op.command(&c.reserve)})
	cancel()
	c.finish(clientAnswer(o, err))
}

func clientAnswer(o *inventory.Outcome, err error) answer {
	switch {
	case err == nil:
		return outcomeAnswer(o)
	case errors.Is(err, shards.ErrOverloaded):
		return answer{verdict: turnedAway, code: "overloaded"}
	case errors.Is(err, shards.ErrOutcomeUnknown):
		return answer{verdict: unanswered, code: "outcome_unknown"}
	}
	return answer{verdict: turnedAway, code: "unavailable"}
}
