package postgres_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
	"numera/shard/wire"
)

// reconciled is a market whose rows are complete, with a follower at work.
type reconciled struct {
	*market
	pool   *pgxpool.Pool
	orders *postgres.Orders
}

func (r *reconciled) pass(repair order.Repair) order.Report {
	r.t.Helper()
	report, err := order.Reconcile(r.t.Context(), r.client, r.orders, repair)
	require.NoError(r.t, err)
	return report
}

func (r *reconciled) exec(sql string, arguments ...any) {
	r.t.Helper()
	done, err := r.pool.Exec(r.t.Context(), sql, arguments...)
	require.NoError(r.t, err)
	require.Positive(r.t, done.RowsAffected(), sql)
}

// found lists findings as "kind subject".
func found(findings []order.Finding) []string {
	all := []string{}
	for _, f := range findings {
		all = append(all, f.Kind+" "+f.Subject)
	}
	slices.Sort(all)
	return all
}

// open lists what the table of findings has open.
func (r *reconciled) open() []string {
	r.t.Helper()
	open, err := postgres.OpenFindings(r.t.Context(), r.pool, 100)
	require.NoError(r.t, err)
	all := []string{}
	for _, f := range open {
		all = append(all, f.Kind+" "+f.Subject)
	}
	slices.Sort(all)
	return all
}

// sold makes an order and has it paid.
func (r *reconciled) sold(key string, payment inventory.PaymentID) *inventory.OrderView {
	o := r.reserve(key, products[0], 3)
	return r.do(&inventory.Confirm{OnOrder: inventory.OnOrder{Order: o.ID}, Payment: payment}).Order
}

// payment stores one of an order that has stood still for long.
func (r *reconciled) payment(o *inventory.OrderView, id inventory.PaymentID, status string, captured int) {
	r.exec(`INSERT INTO payments (id, tenant, order_day, order_id, buyer, key, fingerprint, method,
		provider, account, capture_at, late, currency, amount, captured, status, expires_at,
		created_at, updated_at)
		SELECT $1::text, '', day, id, buyer, $1::text, sha256(''), 'card', 'psp', 'a', 'confirmation',
			'refund', 'BRL', 5970, $2, $3, now(), now(), now() - interval '1 hour' FROM orders WHERE id = $4`,
		string(id), captured, status, [16]byte(o.ID))
}

// overdue makes an order whose payment nobody answers, and gives it when it is overdue.
func (r *reconciled) overdue() *inventory.OrderView {
	settings := inventory.DefaultSettings()
	settings.Name, settings.Count, settings.HoldSeconds, settings.PaymentGraceSeconds = "x", 10, 1, 1
	settings.Price = inventory.Money{Amount: 1, Currency: "BRL"}
	r.do(&inventory.PutProduct{Product: "late", Settings: settings})
	o := r.reserve("k", "late", 1)
	r.do(&inventory.BeginPayment{OnOrder: inventory.OnOrder{Order: o.ID}, Payment: "p"})
	require.Eventually(r.t, func() bool {
		now, err := r.client.Order(r.t.Context(), wire.OrderQuery{Order: o.ID})
		return err == nil && now.Order.Overdue
	}, time.Minute, 10*time.Millisecond)
	return o
}

// TestReconcile plants one of everything by hand.
func TestReconcile(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	r := &reconciled{openMarket(t), pool, postgres.NewOrders(pool)}
	r.follow(pool)
	r.trade("x", 20)
	var o []*inventory.OrderView
	for i := range 12 {
		o = append(o, r.sold(fmt.Sprint("sold", i), inventory.PaymentID(fmt.Sprint("by-a-service-", i))))
	}
	const ours = "0198f3c2d4e5f6a7b8c9d0e1fg"
	lost, held := r.sold("lost", ours), r.reserve("held", products[1], 3)
	late := r.overdue()
	r.requireRows(pool)
	overdue := order.FindingOrderLate + " " + late.ID.String()
	require.Equal(t, []string{overdue, order.FindingUnpaid + " " + lost.ID.String()},
		found(r.pass(order.RepairNothing).Left), "nothing is planted yet")

	id := func(i int) [16]byte { return o[i].ID }
	subject := func(kind string, i int) string { return kind + " " + o[i].ID.String() }
	r.exec("DELETE FROM orders WHERE id = $1", id(0))
	r.exec("UPDATE orders SET changed = changed - 1, status = 'reserved', payment = NULL WHERE id = $1", id(1))
	r.exec("UPDATE orders SET status = 'released' WHERE id = $1", id(2))
	r.exec("UPDATE orders SET changed = changed + 1000 WHERE id = $1", id(3))
	r.exec("UPDATE order_items SET numbers = (SELECT numbers FROM order_items WHERE order_id = $1)"+
		" WHERE order_id = $2", id(4), id(5))
	r.exec("DELETE FROM order_items WHERE order_id = $1", id(6))
	r.exec("UPDATE orders SET total = total + 1 WHERE id = $1", id(7))
	r.exec("UPDATE order_items SET quantity = quantity + 1 WHERE order_id = $1", id(8))
	stranger := o[9].ID
	stranger[15] ^= 1
	r.exec(`INSERT INTO orders SELECT day, $2, shard, status, overdue, buyer, payment, total, currency,
		created_at, expires_at, changed FROM orders WHERE id = $1`, id(9), [16]byte(stranger))
	r.payment(o[10], "by-a-service-10", "declined", 0)
	r.payment(held, "p-held", "captured", 5970)

	lowest := slices.Min(o[4].Items[0].Numbers)
	raised := []string{
		overdue, order.FindingUnpaid + " " + lost.ID.String(), subject(order.FindingUnpaid, 10),
		order.FindingUnsold + " " + held.ID.String(), subject(order.FindingRowAhead, 3),
		order.FindingUnknown + " " + stranger.String(),
	}
	overlap := fmt.Sprintf("%s %s %d", order.FindingOverlap, products[0], lowest)
	numberless := subject(order.FindingNumberless, 6)
	strangerHasNone := order.FindingNumberless + " " + stranger.String()
	differ := []string{
		subject(order.FindingRowDiffers, 2), subject(order.FindingRowDiffers, 5),
		subject(order.FindingRowDiffers, 6), subject(order.FindingRowDiffers, 7),
		subject(order.FindingRowDiffers, 8),
	}
	gone := []string{subject(order.FindingRowMissing, 0), subject(order.FindingRowOld, 1)}
	sorted := func(lists ...[]string) []string {
		all := slices.Concat(lists...)
		slices.Sort(all)
		return all
	}

	report := r.pass(order.RepairNothing)
	planted := sorted(raised, differ, gone, []string{overlap, numberless, strangerHasNone})
	// Of three numbers in common each is in a range of its own, or not.
	planted = append(planted, otherOverlaps(report.Left, overlap)...)
	require.Equal(t, sorted(planted), found(report.Left))
	require.Equal(t, found(report.Left), r.open())

	report = r.pass(order.RepairLost)
	require.Equal(t, sorted(gone), found(report.Repaired))
	require.NotContains(t, r.open(), gone[0])
	report = r.pass(order.RepairAll)
	require.Equal(t, sorted(differ), found(report.Repaired))
	require.Contains(t, found(report.Left), overlap, "what was planted is told, also when it is repaired")

	left := sorted(raised, []string{strangerHasNone})
	require.Equal(t, left, found(r.pass(order.RepairAll).Left))
	require.Equal(t, left, r.open(), "what is no longer so is resolved")
	for i := range 12 {
		row, err := r.orders.Find(t.Context(), o[i].ID)
		require.NoError(t, err)
		if i != 3 {
			require.Equal(t, o[i], row)
		}
	}
}

// otherOverlaps are those besides the one given.
func otherOverlaps(findings []order.Finding, but string) (others []string) {
	for _, f := range findings {
		if name := f.Kind + " " + f.Subject; f.Kind == order.FindingOverlap && name != but {
			others = append(others, name)
		}
	}
	return others
}

// TestReconcileBehind compares while rows have not been written yet, and while orders move: neither
// is a finding.
func TestReconcileBehind(t *testing.T) {
	t.Parallel()
	pool := postgrestest.New(t)
	r := &reconciled{openMarket(t), pool, postgres.NewOrders(pool)}
	f := r.follow(pool)
	r.trade("a", 20)
	r.requireRows(pool)
	f.Close()
	r.trade("b", 20)
	report := r.pass(order.RepairAll)
	require.Empty(t, report.Left)
	require.Empty(t, report.Repaired)
	require.Equal(t, 60, report.Behind)

	r.follow(pool)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.trade("c", 150)
	}()
	for trading := true; trading; {
		report := r.pass(order.RepairAll)
		require.Empty(t, report.Left)
		require.Empty(t, report.Repaired)
		select {
		case <-done:
			trading = false
		default:
		}
	}
	r.requireRows(pool)
}
