package bench

import (
	"errors"

	"numera/engine/inventory"
	"numera/shard"
)

// shardPeer proposes to the shards of a node in this process.
type shardPeer struct{ node *shard.Node }

func (p shardPeer) start(c *call) {
	id := c.op.order.Shard()
	if c.op.kind == inventory.KindReserve {
		id = c.op.product.Shard(uint16(p.node.Shards()))
	}
	c.proposal.Entry.Command = c.op.command(&c.reserve)
	p.node.Shard(id).Propose(&c.proposal)
}

func proposalAnswer(o *inventory.Outcome, err error) answer {
	switch {
	case err == nil:
		return outcomeAnswer(o)
	case errors.Is(err, shard.ErrOverloaded):
		return answer{verdict: turnedAway, code: "overloaded"}
	case errors.Is(err, shard.ErrExpired):
		return answer{verdict: turnedAway, code: "expired"}
	case errors.Is(err, shard.ErrNotLeader), errors.Is(err, shard.ErrUnavailable):
		return answer{verdict: turnedAway, code: "unavailable"}
	}
	return answer{verdict: unanswered, code: "outcome_unknown"}
}
