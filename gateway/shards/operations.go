package shards

import (
	"context"
	"fmt"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// Do has a command on orders or a product decided by its shard. What fails its Check is refused
// without asking, and an order of a shard that does not exist is not found; such outcomes have no
// log time. The entry is not kept. For the errors see the package.
//
// An outcome that came after a repeated attempt can carry Replay because of the first one.
func (c *Client) Do(ctx context.Context, e inventory.Entry) (*inventory.Outcome, error) {
	if refusal := e.Command.Check(); refusal != nil {
		return refusal, nil
	}
	if label := inventory.Label(e.Command); label != "" {
		return c.command(ctx, c.shardOf(inventory.ProductID(label)), e)
	}
	order, ok := orderOf(e.Command)
	if !ok {
		return nil, fmt.Errorf("%w: a command of kind %d names no shard",
			ErrInvalid, e.Command.Kind())
	}
	if int(order.Shard()) >= len(c.lanes) {
		return orderNotFound(), nil
	}
	return c.command(ctx, order.Shard(), e)
}

// DoOn has a command of operation (Attach, Detach, Acknowledge, LowerClock) decided by a shard,
// like Do.
func (c *Client) DoOn(
	ctx context.Context, shard inventory.ShardID, e inventory.Entry,
) (*inventory.Outcome, error) {
	if refusal := e.Command.Check(); refusal != nil {
		return refusal, nil
	}
	if _, ok := orderOf(e.Command); ok || inventory.Label(e.Command) != "" {
		return nil, fmt.Errorf("%w: a command of kind %d has its own shard",
			ErrInvalid, e.Command.Kind())
	}
	return c.command(ctx, shard, e)
}

func (c *Client) command(
	ctx context.Context, shard inventory.ShardID, e inventory.Entry,
) (*inventory.Outcome, error) {
	if !readable(&e) {
		return nil, fmt.Errorf("%w: correlation, tenant or key is too long", ErrInvalid)
	}
	if err := c.exists(shard); err != nil {
		return nil, err
	}
	q := c.newCall(e.Command.Kind(), wantOutcome)
	defer c.recycle(q)
	q.body = wire.AppendCommand(q.body, e)
	if err := c.ask(ctx, shard, q); err != nil {
		return nil, err
	}
	return q.response.Outcome, nil
}

// Order reads an order as it is now, linearizably. The outcome has the order, or
// CodeOrderNotFound.
func (c *Client) Order(ctx context.Context, q wire.OrderQuery) (*inventory.Outcome, error) {
	if int(q.Order.Shard()) >= len(c.lanes) || q.By != "" && !q.By.Valid() {
		return orderNotFound(), nil
	}
	r, err := c.query(ctx, q.Order.Shard(), q, wantOutcome)
	return r.Outcome, err
}

// Product reads a product. The outcome has the product, or CodeProductNotFound.
func (c *Client) Product(ctx context.Context, q wire.ProductQuery) (*inventory.Outcome, error) {
	if !q.Product.Valid() {
		return productNotFound(), nil
	}
	r, err := c.query(ctx, c.shardOf(q.Product), q, wantOutcome)
	return r.Outcome, err
}

// Numbers reads which numbers are taken. Without an error exactly one of the two results is set:
// the outcome is CodeProductNotFound.
func (c *Client) Numbers(
	ctx context.Context, q wire.NumbersQuery,
) (*wire.Numbers, *inventory.Outcome, error) {
	if !q.Product.Valid() {
		return nil, productNotFound(), nil
	}
	r, err := c.query(ctx, c.shardOf(q.Product), q, wantNumbers|wantOutcome)
	return r.Numbers, r.Outcome, err
}

// Orders reads a page of a product's orders. Without an error exactly one of the two results is
// set: the outcome is CodeProductNotFound.
func (c *Client) Orders(
	ctx context.Context, q wire.OrdersQuery,
) (*wire.OrdersPage, *inventory.Outcome, error) {
	if !q.Product.Valid() {
		return nil, productNotFound(), nil
	}
	r, err := c.query(ctx, c.shardOf(q.Product), q, wantOrders|wantOutcome)
	return r.Orders, r.Outcome, err
}

// Events pulls from the outbox of a shard.
func (c *Client) Events(
	ctx context.Context, shard inventory.ShardID, q wire.EventsQuery,
) (*wire.Events, error) {
	r, err := c.query(ctx, shard, q, wantEvents)
	return r.Events, err
}

// Scan reads a part of the orders of a shard.
func (c *Client) Scan(
	ctx context.Context, shard inventory.ShardID, q wire.ScanQuery,
) (*wire.Scan, error) {
	if len(q.After) > wire.MaxText {
		return nil, fmt.Errorf("%w: After of a scan is too long", ErrInvalid)
	}
	r, err := c.query(ctx, shard, q, wantScan)
	return r.Scan, err
}

func (c *Client) query(
	ctx context.Context, shard inventory.ShardID, query wire.Query, want answers,
) (wire.Response, error) {
	if err := c.exists(shard); err != nil {
		return wire.Response{}, err
	}
	q := c.newCall(0, want)
	defer c.recycle(q)
	q.body = wire.AppendQuery(q.body, query)
	err := c.ask(ctx, shard, q)
	return q.response, err
}

func (c *Client) exists(shard inventory.ShardID) error {
	if int(shard) >= len(c.lanes) {
		return fmt.Errorf("%w: no shard %d, there are %d", ErrInvalid, shard, len(c.lanes))
	}
	return nil
}

func (c *Client) shardOf(p inventory.ProductID) inventory.ShardID { return p.Shard(c.info.Shards) }

// readable says that a command which passed its Check also decodes: one that does not would take
// all others of its batch down with it.
func readable(e *inventory.Entry) bool {
	var tenant, key string
	switch c := e.Command.(type) {
	case *inventory.Reserve:
		tenant, key = c.Tenant, c.Key
	case *inventory.Restock:
		tenant, key = c.Tenant, c.Key
	}
	return len(e.Correlation) <= wire.MaxCorrelation &&
		len(tenant) <= wire.MaxTenant && len(key) <= wire.MaxKey
}

// orderOf is the order that a command is about; ok is false if it is about none.
func orderOf(c inventory.Command) (order inventory.OrderID, ok bool) {
	switch c := c.(type) {
	case *inventory.Extend:
		return c.Order, true
	case *inventory.Release:
		return c.Order, true
	case *inventory.BeginPayment:
		return c.Order, true
	case *inventory.Confirm:
		return c.Order, true
	case *inventory.Refuse:
		return c.Order, true
	case *inventory.Ship:
		return c.Order, true
	case *inventory.Refund:
		return c.Order, true
	}
	return inventory.OrderID{}, false
}

func orderNotFound() *inventory.Outcome {
	return &inventory.Outcome{Code: inventory.CodeOrderNotFound, Refusal: &inventory.Refusal{}}
}

func productNotFound() *inventory.Outcome {
	return &inventory.Outcome{Code: inventory.CodeProductNotFound, Refusal: &inventory.Refusal{}}
}
