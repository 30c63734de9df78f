package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"numera/engine/inventory"
	"numera/gateway/order"
)

// Find reads the row of an order. ErrNoOrder: there is none.
func (o *Orders) Find(ctx context.Context, id inventory.OrderID) (*inventory.OrderView, error) {
	found, err := o.Read(ctx, []inventory.OrderID{id})
	if err != nil {
		return nil, err
	}
	if found[id].Order == nil {
		return nil, ErrNoOrder
	}
	return found[id].Order, nil
}

// Read gives the rows of orders; those that have none are not in the result.
func (o *Orders) Read(
	ctx context.Context, ids []inventory.OrderID,
) (map[inventory.OrderID]order.Row, error) {
	keys, days := make([][16]byte, len(ids)), make([]int32, len(ids))
	for i, id := range ids {
		keys[i], days[i] = id, int32(dayOf(id))
	}
	rows, err := o.pool.Query(ctx, `
		SELECT `+orderColumns+`
		FROM unnest($1::uuid[], $2::int[]) AS k (id, day)
		JOIN orders AS o ON o.day = date '1970-01-01' + k.day AND o.id = k.id
		LEFT JOIN order_items AS i ON i.day = o.day AND i.order_id = o.id
		ORDER BY o.id, i.position`, keys, days)
	if err != nil {
		return nil, fmt.Errorf("postgres: read orders: %w", err)
	}
	found := make(map[inventory.OrderID]order.Row, len(ids))
	err = eachOrder(rows, func(row order.Row) { found[row.Order.ID] = row })
	if err != nil {
		return nil, fmt.Errorf("postgres: read orders: %w", err)
	}
	return found, nil
}

// orderColumns are those of orderRow, of orders o and, one row each, their items i.
const orderColumns = `o.id, o.status, o.overdue, o.buyer, coalesce(o.payment, '') AS payment,
	o.total, o.currency, o.created_at, o.expires_at, o.changed, coalesce(i.product, '') AS product,
	coalesce(i.unit_price, 0) AS unit_price, coalesce(i.quantity, 0) AS quantity,
	coalesce(i.numbers::text, '{}') AS numbers`

type orderRow struct {
	ID        [16]byte
	Status    string
	Overdue   bool
	Buyer     string
	Payment   string
	Total     int64
	Currency  string
	CreatedAt time.Time
	ExpiresAt time.Time
	Changed   int64
	Product   string // "" where the order has no items
	UnitPrice int64
	Quantity  int64
	Numbers   string
}

// eachOrder reads rows of orderColumns, an order's one after the other, and closes them.
func eachOrder(rows pgx.Rows, visit func(order.Row)) error {
	defer rows.Close()
	var current order.Row
	for rows.Next() {
		row, err := pgx.RowToStructByName[orderRow](rows)
		if err != nil {
			return err
		}
		if current.Order == nil || current.Order.ID != inventory.OrderID(row.ID) {
			if current.Order != nil {
				visit(current)
			}
			if current, err = row.order(); err != nil {
				return err
			}
		}
		if row.Product == "" {
			continue
		}
		numbers, err := parseRanges(row.Numbers)
		if err != nil {
			return err
		}
		current.Quantity += row.Quantity
		current.Order.Items = append(current.Order.Items, inventory.ItemView{
			Product: inventory.ProductID(row.Product), Numbers: numbers,
			UnitPrice: inventory.Money{Amount: row.UnitPrice, Currency: row.Currency},
		})
	}
	if current.Order != nil && rows.Err() == nil {
		visit(current)
	}
	return rows.Err()
}

// order is the row without its items.
func (r *orderRow) order() (order.Row, error) {
	status, ok := statuses[r.Status]
	if !ok {
		return order.Row{}, fmt.Errorf("status %q is not known", r.Status)
	}
	return order.Row{
		Order: &inventory.OrderView{
			ID: r.ID, Status: status, Overdue: r.Overdue, Buyer: inventory.BuyerID(r.Buyer),
			Payment:          inventory.PaymentID(r.Payment),
			CreatedUnixMilli: r.CreatedAt.UnixMilli(), ExpiresUnixMilli: r.ExpiresAt.UnixMilli(),
			Changed: uint64(r.Changed),
		},
		Total: inventory.Money{Amount: r.Total, Currency: r.Currency},
	}, nil
}

// statuses are those that a row can have, by name.
var statuses = func() map[string]inventory.Status {
	all := make(map[string]inventory.Status)
	for s := inventory.StatusReserved; s <= inventory.StatusRefunded; s++ {
		all[s.String()] = s
	}
	return all
}()

// parseRanges reads a multirange as PostgreSQL writes it: {[1,4),[7,8)}.
func parseRanges(text string) ([]uint32, error) {
	inner := strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
	var numbers []uint32
	for inner != "" {
		var one string
		one, inner, _ = strings.Cut(inner, ")")
		inner = strings.TrimPrefix(inner, ",")
		low, high, ok := strings.Cut(strings.TrimPrefix(one, "["), ",")
		from, errFrom := strconv.ParseUint(low, 10, 32)
		to, errTo := strconv.ParseUint(high, 10, 33)
		if !ok || errFrom != nil || errTo != nil || to-from > inventory.MaxNumbersInOrder {
			return nil, fmt.Errorf("numbers %.40q cannot be an order's", text)
		}
		for n := from; n < to; n++ {
			numbers = append(numbers, uint32(n))
		}
	}
	return numbers, nil
}
