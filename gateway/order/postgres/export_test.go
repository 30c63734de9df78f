package postgres_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

var noonDay = time.UnixMilli(noon).UTC()

// readCSV reads an export with a reader of RFC 4180, as the ERP does.
func readCSV(t *testing.T, text string) [][]string {
	require.Equal(t, strings.Count(text, "\n"), strings.Count(text, "\r\n"), "lines end as RFC 4180 says")
	reader := csv.NewReader(strings.NewReader(text))
	reader.FieldsPerRecord = -1
	lines, err := reader.ReadAll()
	require.NoError(t, err)
	return lines
}

// TestExportOrders adds the lines up by hand.
func TestExportOrders(t *testing.T) {
	pool := postgrestest.New(t)
	orders := postgres.NewOrders(pool)
	var views []*inventory.OrderView
	for i := range 300 {
		v := view(i)
		v.Items[0].Numbers = []uint32{uint32(3 * i), uint32(3*i + 1), uint32(3*i + 7)}
		v.Items[0].UnitPrice.Amount = int64(i)
		if i%3 == 0 {
			v.Status, v.Payment = inventory.StatusPaid, "p"
		}
		if i%5 == 0 {
			v.Items[0].UnitPrice.Currency = "USD"
		}
		if i%2 == 0 {
			second := v.Items[0]
			second.Product = "a.second"
			v.Items = append(v.Items, second)
		}
		views = append(views, v)
	}
	views[1].Buyer, views[3].Buyer, views[3].Payment = "=HYPERLINK(1)", `-"x",y`, "@sum"
	yesterday := view(1000)
	yesterday.CreatedUnixMilli -= 86_400_000
	yesterday.ID = inventory.MakeOrderID(3, yesterday.CreatedUnixMilli, yesterday.ID.Key())
	require.NoError(t, orders.Upsert(t.Context(), append(views, yesterday)...))

	var out bytes.Buffer
	require.NoError(t, postgres.WriteCSV(t.Context(), pool, &out, postgres.ExportOrders, noonDay))
	lines := readCSV(t, out.String())
	header := lines[0]
	cell := func(line []string, name string) string { return line[slices.Index(header, name)] }
	counted, sums := map[string]map[string]bool{}, map[string]int64{}
	for _, line := range lines[1:451] {
		group := cell(line, "status") + cell(line, "currency")
		if counted[group] == nil {
			counted[group] = map[string]bool{}
		}
		counted[group][cell(line, "order_id")] = true
		amount, err := strconv.ParseInt(cell(line, "total_amount"), 10, 64)
		require.NoError(t, err)
		sums[group] += amount
		switch cell(line, "order_id") {
		case views[1].ID.String():
			require.Equal(t, "'=HYPERLINK(1)", cell(line, "buyer"))
			require.Equal(t, "3 4 10", cell(line, "numbers"))
		case views[3].ID.String():
			require.Equal(t, `'-"x",y`, cell(line, "buyer"))
			require.Equal(t, "'@sum", cell(line, "payment"))
		}
	}
	require.Len(t, lines, 1+450+4+1)
	for _, line := range lines[451:455] {
		group := line[1] + line[2]
		require.Equal(t, []string{
			"#total", line[1], line[2], fmt.Sprint(len(counted[group])), fmt.Sprint(sums[group]),
		}, line)
	}
	require.Equal(t, []string{"#complete", "450"}, lines[455])

	// One item is taken away by hand.
	_, err := pool.Exec(t.Context(), "DELETE FROM order_items WHERE order_id = $1", [16]byte(views[4].ID))
	require.NoError(t, err)
	out.Reset()
	err = postgres.WriteCSV(t.Context(), pool, &out, postgres.ExportOrders, noonDay)
	require.ErrorIs(t, err, postgres.ErrTotals)
	require.NotContains(t, out.String(), "#complete")
}

// TestExportPayments adds payments up.
func TestExportPayments(t *testing.T) {
	pool := postgrestest.New(t)
	v := view(1)
	require.NoError(t, postgres.NewOrders(pool).Upsert(t.Context(), v))
	for i, status := range []string{"captured", "rejected"} {
		_, err := pool.Exec(t.Context(), `INSERT INTO payments (id, tenant, order_day, order_id, buyer,
			key, fingerprint, method, provider, account, capture_at, late, currency, amount, captured,
			status, expires_at, created_at)
			SELECT $1::text, '', day, id, buyer, $1::text, sha256(''), 'card', '=psp', 'a', 'confirmation',
				'refund', 'BRL', 1990, $2, $3, $4, $4 FROM orders`,
			fmt.Sprint("p-", i), 1990*(1-i), status, noonDay)
		require.NoError(t, err)
	}
	var out bytes.Buffer
	require.NoError(t, postgres.WriteCSV(t.Context(), pool, &out, postgres.ExportPayments, noonDay))
	lines := readCSV(t, out.String())
	require.Len(t, lines, 6)
	require.Contains(t, lines[1], "'=psp")
	require.Equal(t, []string{"#total", "captured", "BRL", "1", "1990", "1990", "0"}, lines[3])
	require.Equal(t, []string{"#total", "rejected", "BRL", "1", "1990", "0", "0"}, lines[4])
	require.Equal(t, []string{"#complete", "2"}, lines[5])

	out.Reset()
	empty := noonDay.AddDate(0, 0, 1)
	require.NoError(t, postgres.WriteCSV(t.Context(), pool, &out, postgres.ExportPayments, empty))
	require.Equal(t, []string{"#complete", "0"}, readCSV(t, out.String())[1])
}
