package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"numera/engine/inventory"
	"numera/gateway/order"
)

var _ order.Rows = (*Orders)(nil)

// Followed implements order.Rows.
func (o *Orders) Followed(ctx context.Context, shards uint16) ([]uint64, error) {
	rows, err := o.pool.Query(ctx, "SELECT shard, coalesce(sequence, 0) FROM shard_offsets")
	if err != nil {
		return nil, fmt.Errorf("postgres: offsets: %w", err)
	}
	followed := make([]uint64, shards)
	var shard int32
	var sequence int64
	_, err = pgx.ForEachRow(rows, []any{&shard, &sequence}, func() error {
		if int(shard) < len(followed) {
			followed[shard] = uint64(sequence)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: offsets: %w", err)
	}
	return followed, nil
}

// look runs a statement that reads all orders: it may take long, and holds nobody up.
func (o *Orders) look(
	ctx context.Context, sql string, arguments []any, into []any, visit func() error,
) error {
	options := pgx.TxOptions{AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, o.pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, into, visit)
		return err
	})
}

// EachHeld implements order.Rows.
func (o *Orders) EachHeld(
	ctx context.Context, shard inventory.ShardID, visit func(inventory.OrderID),
) error {
	var id [16]byte
	err := o.look(ctx, `SELECT id FROM orders WHERE shard = $1
		AND status IN ('reserved', 'paying', 'paid', 'shipped', 'refund_pending')`,
		[]any{int32(shard)}, []any{&id}, func() error {
			visit(id)
			return nil
		})
	if err != nil {
		return fmt.Errorf("postgres: held orders: %w", err)
	}
	return nil
}

// overlapsSQL orders all ranges of a product by where they begin: one that begins before those
// before it have ended overlaps, and then it is worth looking for the other.
const overlapsSQL = `
WITH held AS (
	SELECT i.product, o.id, r
	FROM orders AS o JOIN order_items AS i ON i.day = o.day AND i.order_id = o.id,
		unnest(i.numbers) AS r
	WHERE o.status IN ('reserved', 'paying', 'paid', 'shipped')
), reached AS (
	SELECT product, id, r, max(upper(r)) OVER (PARTITION BY product ORDER BY lower(r), id
		ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach
	FROM held
), late AS (SELECT product, id, r FROM reached WHERE lower(r) < reach LIMIT $1)
SELECT late.product, lower(late.r * other.r), other.id, late.id
FROM late CROSS JOIN LATERAL (
	SELECT id, r FROM held
	WHERE held.product = late.product AND held.id <> late.id AND held.r && late.r
	ORDER BY lower(r), id LIMIT 1) AS other`

// Overlaps implements order.Rows.
func (o *Orders) Overlaps(ctx context.Context, limit int) ([]order.Overlap, error) {
	var all []order.Overlap
	var product string
	var number int64
	var one, other [16]byte
	err := o.look(ctx, overlapsSQL, []any{limit}, []any{&product, &number, &one, &other}, func() error {
		all = append(all, order.Overlap{
			Product: inventory.ProductID(product), Number: uint32(number),
			Orders: [2]inventory.OrderID{one, other},
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: overlaps: %w", err)
	}
	return all, nil
}

// Numberless implements order.Rows.
func (o *Orders) Numberless(ctx context.Context, limit int) ([]inventory.OrderID, error) {
	var all []inventory.OrderID
	var id [16]byte
	err := o.look(ctx, `SELECT id FROM orders AS o WHERE status IN ('paid', 'shipped')
		AND NOT EXISTS (SELECT FROM order_items AS i WHERE i.day = o.day AND i.order_id = o.id)
		LIMIT $1`, []any{limit}, []any{&id}, func() error {
		all = append(all, id)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: orders without numbers: %w", err)
	}
	return all, nil
}

// disagreeAfter is how long a checkout and its jobs have to make order and payment agree.
const disagreeAfter = "1 minute"

// unpaidSQL: a payment id that no checkout has made is one that a service has confirmed on its own,
// and knows about.
const unpaidSQL = `
SELECT o.id, coalesce('payment ' || p.id || ' is ' || p.status, 'payment ' || o.payment || ' is lost')
FROM orders AS o LEFT JOIN payments AS p ON p.id = o.payment
WHERE o.status IN ('paid', 'shipped') AND CASE WHEN p.id IS NULL THEN o.payment ~ '^[0-9a-v]{26}$'
	ELSE p.updated_at < now() - $2::interval AND (p.order_id <> o.id OR p.status NOT IN (
		'settled', 'confirmed', 'capturing', 'captured', 'lapsed', 'refunding', 'returned')) END
LIMIT $1`

const unsoldSQL = `
SELECT o.id, 'payment ' || p.id || ' is ' || p.status || ', the order ' || o.status
FROM payments AS p JOIN orders AS o ON o.day = p.order_day AND o.id = p.order_id
WHERE p.status IN ('settled', 'confirmed', 'capturing', 'captured')
	AND p.updated_at < now() - $2::interval
	AND o.status IN ('reserved', 'paying', 'expired', 'released', 'refused')
LIMIT $1`

// LostPayments are orders that the engine holds, has sold or waits to see refunded, for a payment of
// a checkout that has no row, limit at the most.
func (o *Orders) LostPayments(ctx context.Context, limit int) ([]inventory.OrderID, error) {
	var all []inventory.OrderID
	var id [16]byte
	err := o.look(ctx, `SELECT id FROM orders AS o
		WHERE status IN ('paying', 'paid', 'shipped', 'refund_pending')
			AND payment ~ '^[0-9a-v]{26}$'
			AND NOT EXISTS (SELECT FROM payments AS p WHERE p.id = o.payment)
		LIMIT $1`, []any{limit}, []any{&id}, func() error {
		all = append(all, id)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: lost payments: %w", err)
	}
	return all, nil
}

// Unpaid implements order.Rows.
func (o *Orders) Unpaid(ctx context.Context, limit int) ([]order.Disagreement, error) {
	return o.disagreements(ctx, unpaidSQL, limit)
}

// Unsold implements order.Rows.
func (o *Orders) Unsold(ctx context.Context, limit int) ([]order.Disagreement, error) {
	return o.disagreements(ctx, unsoldSQL, limit)
}

func (o *Orders) disagreements(
	ctx context.Context, sql string, limit int,
) ([]order.Disagreement, error) {
	var all []order.Disagreement
	var id [16]byte
	var detail string
	err := o.look(ctx, sql, []any{limit, disagreeAfter}, []any{&id, &detail}, func() error {
		all = append(all, order.Disagreement{Order: id, Detail: detail})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: orders and payments: %w", err)
	}
	return all, nil
}
