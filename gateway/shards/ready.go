package shards

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Ready is nil when every shard has a leader that answers, and else an ErrUnavailable that names
// those that do not. It asks all of them at once, for a product that need not exist.
func (c *Client) Ready(ctx context.Context) error {
	silent := make([]string, c.info.Shards)
	var asking sync.WaitGroup
	for shard := range c.info.Shards {
		asking.Go(func() {
			ping := wire.ProductQuery{Product: "ping"}
			if _, err := c.query(ctx, inventory.ShardID(shard), ping, wantOutcome); err != nil {
				silent[shard] = fmt.Sprintf("shard %d", shard)
			}
		})
	}
	asking.Wait()
	silent = slices.DeleteFunc(silent, func(name string) bool { return name == "" })
	if len(silent) > 0 {
		return fmt.Errorf("%w: %s", ErrUnavailable, strings.Join(silent, ", "))
	}
	return nil
}
