package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

const noon = 1_796_000_000_000 // of some day, in Unix milliseconds

// view makes the i-th order of shard 3: one number of product a, reserved.
func view(i int) *inventory.OrderView {
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], uint64(i))
	sum := sha256.Sum256(seed[:])
	return &inventory.OrderView{
		ID:     inventory.MakeOrderID(3, noon, inventory.KeyHash(sum[:])),
		Status: inventory.StatusReserved, Buyer: inventory.BuyerID(fmt.Sprint("b-", i)),
		Items: []inventory.ItemView{{
			Product: "a", Numbers: []uint32{uint32(i + 1)},
			UnitPrice: inventory.Money{Amount: 1990, Currency: "BRL"},
		}},
		CreatedUnixMilli: noon, ExpiresUnixMilli: noon + 1_800_000, Changed: uint64(2*i + 2),
	}
}

func BenchmarkUpsert(b *testing.B) {
	orders := postgres.NewOrders(postgrestest.New(b))
	ctx := context.Background()
	for _, size := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			i := 0
			var spent [3]time.Duration
			for b.Loop() {
				views := make([]*inventory.OrderView, size)
				for k := range views {
					views[k] = view(size*10_000_000 + i)
					i++
				}
				for step, status := range []inventory.Status{
					inventory.StatusReserved, inventory.StatusPaying, inventory.StatusPaid,
				} {
					for _, v := range views {
						v.Status, v.Changed = status, v.Changed+1
						if step > 0 {
							v.Payment = "p-1"
						}
					}
					began := time.Now()
					require.NoError(b, orders.Upsert(ctx, views...))
					spent[step] += time.Since(began)
				}
			}
			for step, name := range []string{"insert", "update", "update2"} {
				b.ReportMetric(float64(spent[step].Microseconds())/float64(i), name+"-µs/order")
			}
		})
	}
}

// TestUpsert writes newer and older views of an order, in every order of the two.
func TestUpsert(t *testing.T) {
	orders := postgres.NewOrders(postgrestest.New(t))
	ctx := t.Context()
	older, newer := view(1), view(1)
	older.Items = []inventory.ItemView{
		{
			Product: "a.late", Numbers: []uint32{1, 2, 3, 17, 4294967295},
			UnitPrice: inventory.Money{Amount: 1, Currency: "BRL"},
		},
		{
			Product: "a.early", Numbers: []uint32{0},
			UnitPrice: inventory.Money{Amount: 0, Currency: "BRL"},
		},
	}
	newer.Items = older.Items
	newer.Status, newer.Payment, newer.Changed = inventory.StatusPaid, "p", older.Changed+3

	_, err := orders.Find(ctx, older.ID)
	require.ErrorIs(t, err, postgres.ErrNoOrder)
	require.NoError(t, orders.Upsert(ctx, older))
	require.Equal(t, older, find(t, orders, older.ID))
	require.NoError(t, orders.Upsert(ctx, newer, older))
	require.Equal(t, newer, find(t, orders, older.ID))
	require.NoError(t, orders.Upsert(ctx, older))
	require.Equal(t, newer, find(t, orders, older.ID), "an older view changes nothing")

	old := view(2) // of a day without partitions
	old.CreatedUnixMilli -= 400 * 24 * 60 * 60 * 1000
	old.ID = inventory.MakeOrderID(3, old.CreatedUnixMilli, old.ID.Key())
	require.NoError(t, orders.Upsert(ctx, old, newer, old))
	require.Equal(t, old, find(t, orders, old.ID))
}

func find(t *testing.T, orders *postgres.Orders, id inventory.OrderID) *inventory.OrderView {
	row, err := orders.Find(t.Context(), id)
	require.NoError(t, err)
	return row
}

// TestRefusedStates tries to make rows of what no order can be.
func TestRefusedStates(t *testing.T) {
	pool := postgrestest.New(t)
	require.NoError(t, postgres.NewOrders(pool).Upsert(t.Context(), view(1)))
	for rule, sql := range map[string]string{
		"orders_shard_is_in_id":         "UPDATE orders SET shard = 4",
		"orders_day_is_in_id":           "UPDATE orders SET id = '00035fff000000000000000000000000'",
		"orders_created_on_day":         "UPDATE orders SET created_at = created_at + '1 day', expires_at = expires_at + '2 days'",
		"orders_expire_after_creation":  "UPDATE orders SET expires_at = created_at",
		"orders_status_known":           "UPDATE orders SET status = 'sold', payment = 'p'",
		"orders_only_paying_is_overdue": "UPDATE orders SET overdue = true",
		"orders_payment_where_paid":     "UPDATE orders SET status = 'paid'",
		"orders_no_payment_before":      "UPDATE orders SET payment = 'p'",
		"orders_payment_form":           "UPDATE orders SET status = 'paid', payment = 'p 1'",
		"orders_buyer_form":             "UPDATE orders SET buyer = ''",
		"orders_money":                  "UPDATE orders SET total = -1",
		"orders_changed":                "UPDATE orders SET changed = 0",
		"order_items_numbers_check":     "UPDATE order_items SET numbers = '{}'",
		"order_items_unit_price_check":  "UPDATE order_items SET unit_price = -1",
		"order_items_quantity_check":    "UPDATE order_items SET quantity = 0",
		"order_items_product_check":     "UPDATE order_items SET product = 'a.b.c'",
		"order_items_day_order_id_fkey": "UPDATE order_items SET order_id = gen_random_uuid()",
		"engine_one_check":              "INSERT INTO engine VALUES (false, 'second')",
		"shard_offsets_sequence_check":  "INSERT INTO shard_offsets VALUES (1, -1)",
	} {
		_, err := pool.Exec(t.Context(), sql)
		var failure *pgconn.PgError
		require.ErrorAs(t, err, &failure, rule)
		require.Equal(t, rule, failure.ConstraintName, sql)
	}
}
