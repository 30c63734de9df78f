package postgres

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrTotals is returned when the lines of an export do not add up to what its orders or payments
// do: rows were changed by hand. The export ends without its last line.
var ErrTotals = errors.New("postgres: the lines do not add up")

// Export is what can be exported.
type Export string

// The exports. What of a day means is its creation, in UTC.
const (
	ExportOrders   Export = "orders"
	ExportPayments Export = "payments"
)

// WriteCSV writes the orders or payments of a day as CSV (RFC 4180), streamed, as of one moment:
// a header; lines ordered by id; for each status and currency a line
//
//	#total,STATUS,CURRENCY,COUNT,SUM…
//
// in which COUNT counts orders or payments and the SUMs are of the columns that sums names, in
// their order; and at last #complete,LINES. What has no such line is not all. Cells that a
// spreadsheet would take for a formula get a leading apostrophe. No personal data is in them.
//
// An order has a line for each of its products; amounts are in minor units; numbers are separated
// by spaces. The pool must not bound statements: see PoolConfig.Statement.
func WriteCSV(ctx context.Context, pool *pgxpool.Pool, w io.Writer, what Export, day time.Time) error {
	table, ok := exports[what]
	if !ok {
		return fmt.Errorf("postgres: there is no export of %q", what)
	}
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, pool, options, func(tx pgx.Tx) error {
		e := export{exportTable: table, csv: csv.NewWriter(w), groups: make(map[exportGroup]*exportSum)}
		e.csv.UseCRLF = true
		return e.write(ctx, tx, day)
	})
	if err != nil {
		return fmt.Errorf("postgres: export %s: %w", what, err)
	}
	return nil
}

// exportTable is one export. Its columns begin with an id, a status and a currency.
type exportTable struct {
	columns []string
	sums    []string // columns to add up
	numbers int      // the column of an order's numbers, or 0
	rows    string   // gives all columns as text
	totals  string   // gives status, currency, count and the sums, from what each line is a part of
}

const exportInstant = `YYYY-MM-DD"T"HH24:MI:SS.MS"Z"`

var exports = map[Export]exportTable{
	ExportOrders: {
		columns: []string{
			"order_id", "status", "currency", "buyer", "payment", "overdue", "product", "quantity",
			"numbers", "unit_price_amount", "total_amount", "created_at", "expires_at",
		},
		sums: []string{"total_amount"}, numbers: 8,
		rows: `SELECT replace(o.id::text, '-', ''), o.status, o.currency, o.buyer,
				coalesce(o.payment, ''), o.overdue::text, coalesce(i.product, ''),
				coalesce(i.quantity, 0)::text, coalesce(i.numbers::text, '{}'),
				coalesce(i.unit_price, 0)::text, coalesce(i.unit_price * i.quantity, 0)::text,
				to_char(o.created_at, '` + exportInstant + `'),
				to_char(o.expires_at, '` + exportInstant + `')
			FROM orders AS o LEFT JOIN order_items AS i ON i.day = o.day AND i.order_id = o.id
			WHERE o.day = $1::date ORDER BY o.id, i.position`,
		totals: `SELECT status, currency, count(*), ARRAY[sum(total)::bigint]
			FROM orders WHERE day = $1::date GROUP BY status, currency`,
	},
	ExportPayments: {
		columns: []string{
			"payment_id", "status", "currency", "order_id", "buyer", "method", "provider", "account",
			"reference", "amount", "captured_amount", "refunded_amount", "created_at", "updated_at",
		},
		sums: []string{"amount", "captured_amount", "refunded_amount"},
		rows: `SELECT id, status, currency, replace(order_id::text, '-', ''), buyer, method,
				coalesce(provider, ''), account, coalesce(reference, ''), amount::text,
				captured::text, refunded::text, to_char(created_at, '` + exportInstant + `'),
				to_char(updated_at, '` + exportInstant + `')
			FROM payments WHERE created_at >= $1::date AND created_at < $1::date + 1 ORDER BY id`,
		totals: `SELECT status, currency, count(*),
				ARRAY[sum(amount), sum(captured), sum(refunded)]::bigint[]
			FROM payments WHERE created_at >= $1::date AND created_at < $1::date + 1
			GROUP BY status, currency`,
	},
}

// export is one that is being written.
type export struct {
	exportTable
	csv    *csv.Writer
	lines  int64
	last   string // id of the line before
	groups map[exportGroup]*exportSum
}

type exportGroup struct{ status, currency string }

type exportSum struct {
	count int64
	sums  []int64
}

func (e *export) write(ctx context.Context, tx pgx.Tx, day time.Time) error {
	if err := e.csv.Write(e.columns); err != nil {
		return err
	}
	date := day.Format(time.DateOnly)
	rows, err := tx.Query(ctx, e.rows, date)
	if err != nil {
		return err
	}
	cells := make([]string, len(e.columns))
	into := make([]any, len(cells))
	for i := range cells {
		into[i] = &cells[i]
	}
	if _, err := pgx.ForEachRow(rows, into, func() error { return e.line(cells) }); err != nil {
		return err
	}
	if err := e.check(ctx, tx, date); err != nil {
		return err
	}
	return e.end()
}

// line writes one line and counts it in.
func (e *export) line(cells []string) error {
	group := exportGroup{cells[1], cells[2]}
	sum := e.groups[group]
	if sum == nil {
		sum = &exportSum{sums: make([]int64, len(e.sums))}
		e.groups[group] = sum
	}
	if e.lines == 0 || cells[0] != e.last {
		sum.count++
	}
	e.lines, e.last = e.lines+1, cells[0]
	for i, name := range e.sums {
		value, err := strconv.ParseInt(cells[slices.Index(e.columns, name)], 10, 64)
		if err != nil {
			return err
		}
		sum.sums[i] += value
	}
	if e.numbers > 0 {
		numbers, err := parseRanges(cells[e.numbers])
		if err != nil {
			return err
		}
		cells[e.numbers] = strings.Trim(fmt.Sprint(numbers), "[]")
	}
	for i := range cells {
		cells[i] = unformula(cells[i])
	}
	return e.csv.Write(cells)
}

// unformula keeps a spreadsheet from reading a text as a formula.
func unformula(text string) string {
	if text != "" && strings.IndexByte("=+-@\t\r", text[0]) >= 0 {
		return "'" + text
	}
	return text
}

// check compares what the lines add up to with what the database does.
func (e *export) check(ctx context.Context, tx pgx.Tx, date string) error {
	rows, err := tx.Query(ctx, e.totals, date)
	if err != nil {
		return err
	}
	groups := 0
	var group exportGroup
	var total exportSum
	into := []any{&group.status, &group.currency, &total.count, &total.sums}
	_, err = pgx.ForEachRow(rows, into, func() error {
		groups++
		have := e.groups[group]
		if have == nil || have.count != total.count || !slices.Equal(have.sums, total.sums) {
			return fmt.Errorf("%w: %s %s", ErrTotals, group.status, group.currency)
		}
		return nil
	})
	if err == nil && groups != len(e.groups) {
		err = ErrTotals
	}
	return err
}

// end writes the totals and the last line.
func (e *export) end() error {
	groups := slices.SortedFunc(maps.Keys(e.groups), func(a, b exportGroup) int {
		return cmp.Or(cmp.Compare(a.status, b.status), cmp.Compare(a.currency, b.currency))
	})
	for _, group := range groups {
		sum := e.groups[group]
		cells := []string{
			"#total", group.status, group.currency, strconv.FormatInt(sum.count, 10),
		}
		for _, value := range sum.sums {
			cells = append(cells, strconv.FormatInt(value, 10))
		}
		if err := e.csv.Write(cells); err != nil {
			return err
		}
	}
	if err := e.csv.Write([]string{"#complete", strconv.FormatInt(e.lines, 10)}); err != nil {
		return err
	}
	e.csv.Flush()
	return e.csv.Error()
}
