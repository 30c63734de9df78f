package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"numera/engine/inventory"
)

// Orders are the rows of orders. Any goroutine may call them.
type Orders struct {
	pool *pgxpool.Pool
	days partitions
}

// NewOrders uses a pool of a migrated database.
func NewOrders(pool *pgxpool.Pool) *Orders { return &Orders{pool: pool} }

// Upsert writes orders as the engine has given them, each unless its row is as new already, in one
// transaction. Views must come from linearizable reads or from events; they may come twice and in
// any order.
func (o *Orders) Upsert(ctx context.Context, views ...*inventory.OrderView) error {
	if err := o.days.make(ctx, o.pool, views); err != nil {
		return fmt.Errorf("postgres: upsert orders: %w", err)
	}
	if err := upsert(ctx, o.pool, views); err != nil {
		return fmt.Errorf("postgres: upsert orders: %w", err)
	}
	return nil
}

// Rewrite makes rows what the engine says, unless they are newer: also those that contradict it
// about one change, which Upsert leaves alone.
func (o *Orders) Rewrite(ctx context.Context, views []*inventory.OrderView) error {
	err := o.days.make(ctx, o.pool, views)
	if err == nil {
		err = pgx.BeginFunc(ctx, o.pool, func(tx pgx.Tx) error {
			c := columnsOf(views)
			_, err := tx.Exec(ctx, `DELETE FROM order_items AS i
				USING unnest($1::uuid[], $2::int[]) AS k (id, day)
				WHERE i.day = date '1970-01-01' + k.day AND i.order_id = k.id`, c.ids, c.days)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, upsertSQL, c.arguments(true)...)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("postgres: rewrite orders: %w", err)
	}
	return nil
}

// columns are orders and their items, as the arrays that upsertSQL takes.
type columns struct {
	ids        [][16]byte
	days       []int32
	shards     []int32
	statuses   []string
	overdue    []bool
	buyers     []string
	payments   []string
	totals     []int64
	currencies []string
	created    []time.Time
	expires    []time.Time
	changed    []int64

	itemIDs    [][16]byte
	itemDays   []int32
	positions  []int16
	products   []string
	prices     []int64
	quantities []int32
	numbers    []string
}

func (c *columns) add(o *inventory.OrderView) {
	total, day := o.Total(), int32(dayOf(o.ID))
	c.ids = append(c.ids, o.ID)
	c.days = append(c.days, day)
	c.shards = append(c.shards, int32(o.ID.Shard()))
	c.statuses = append(c.statuses, o.Status.String())
	c.overdue = append(c.overdue, o.Overdue)
	c.buyers = append(c.buyers, string(o.Buyer))
	c.payments = append(c.payments, string(o.Payment))
	c.totals = append(c.totals, total.Amount)
	c.currencies = append(c.currencies, total.Currency)
	c.created = append(c.created, time.UnixMilli(o.CreatedUnixMilli))
	c.expires = append(c.expires, time.UnixMilli(o.ExpiresUnixMilli))
	c.changed = append(c.changed, int64(o.Changed))
	for i := range o.Items {
		item := &o.Items[i]
		c.itemIDs = append(c.itemIDs, o.ID)
		c.itemDays = append(c.itemDays, day)
		c.positions = append(c.positions, int16(i))
		c.products = append(c.products, string(item.Product))
		c.prices = append(c.prices, item.UnitPrice.Amount)
		c.quantities = append(c.quantities, int32(len(item.Numbers)))
		c.numbers = append(c.numbers, string(appendRanges(nil, item.Numbers)))
	}
}

// appendRanges writes ascending numbers as PostgreSQL reads a multirange.
func appendRanges(buf []byte, numbers []uint32) []byte {
	buf = append(buf, '{')
	for i := 0; i < len(numbers); {
		end := i + 1
		for end < len(numbers) && numbers[end] == numbers[end-1]+1 {
			end++
		}
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = strconv.AppendUint(append(buf, '['), uint64(numbers[i]), 10)
		buf = strconv.AppendUint(append(buf, ','), uint64(numbers[end-1])+1, 10)
		buf = append(buf, ')')
		i = end
	}
	return append(buf, '}')
}

// upsertSQL replaces rows by newer ones, or with its last argument also by other ones of the same
// change. Items never change: those that are there stay.
const upsertSQL = `
WITH written AS (
	INSERT INTO orders AS o (day, id, shard, status, overdue, buyer, payment, total, currency,
		created_at, expires_at, changed)
	SELECT date '1970-01-01' + g.day, id, shard, status, overdue, buyer, nullif(payment, ''), total,
		currency, created_at, expires_at, changed
	FROM unnest($1::uuid[], $2::int[], $3::int[], $4::text[], $5::bool[], $6::text[], $7::text[],
		$8::bigint[], $9::text[], $10::timestamptz[], $11::timestamptz[], $12::bigint[])
		AS g (id, day, shard, status, overdue, buyer, payment, total, currency, created_at,
			expires_at, changed)
	ON CONFLICT (day, id) DO UPDATE SET status = EXCLUDED.status, overdue = EXCLUDED.overdue,
		buyer = EXCLUDED.buyer, payment = EXCLUDED.payment, total = EXCLUDED.total,
		currency = EXCLUDED.currency, created_at = EXCLUDED.created_at,
		expires_at = EXCLUDED.expires_at, changed = EXCLUDED.changed
	WHERE o.changed < EXCLUDED.changed OR $20 AND o.changed = EXCLUDED.changed
)
INSERT INTO order_items (day, order_id, position, product, unit_price, quantity, numbers)
SELECT date '1970-01-01' + i.day, order_id, position, product, unit_price, quantity,
	numbers::int8multirange
FROM unnest($13::uuid[], $14::int[], $15::smallint[], $16::text[], $17::bigint[], $18::int[],
	$19::text[]) AS i (order_id, day, position, product, unit_price, quantity, numbers)
ON CONFLICT (day, order_id, product) DO NOTHING`

// upsert writes the newest view of each order, in the order of their ids, so that no two
// transactions wait for each other.
func upsert(ctx context.Context, to executor, views []*inventory.OrderView) error {
	if len(views) == 0 {
		return nil
	}
	_, err := to.Exec(ctx, upsertSQL, columnsOf(views).arguments(false)...)
	return err
}

// columnsOf are the newest view of each order.
func columnsOf(views []*inventory.OrderView) *columns {
	c := new(columns)
	for _, view := range newest(views) {
		c.add(view)
	}
	return c
}

// arguments are those of upsertSQL; same replaces other rows of the same change too.
func (c *columns) arguments(same bool) []any {
	return []any{
		c.ids, c.days, c.shards, c.statuses, c.overdue, c.buyers, c.payments, c.totals, c.currencies,
		c.created, c.expires, c.changed, c.itemIDs, c.itemDays, c.positions, c.products, c.prices,
		c.quantities, c.numbers, same,
	}
}

// newest sorts views by id and keeps of each order the one that was changed last.
func newest(views []*inventory.OrderView) []*inventory.OrderView {
	sorted := slices.Clone(views)
	slices.SortFunc(sorted, func(a, b *inventory.OrderView) int {
		if order := slices.Compare(a.ID[:], b.ID[:]); order != 0 {
			return order
		}
		switch {
		case a.Changed > b.Changed:
			return -1
		case a.Changed < b.Changed:
			return 1
		}
		return 0
	})
	return slices.CompactFunc(sorted, func(a, b *inventory.OrderView) bool { return a.ID == b.ID })
}
