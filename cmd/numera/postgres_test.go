package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/cluster"
	"numera/gateway/order/postgres/postgrestest"
)

// degraded is what /readyz names.
func (s *system) degraded() []any {
	s.t.Helper()
	r := s.call("GET", "/readyz", "", "", "")
	require.Equal(s.t, 200, r.status, r.text)
	return r.body["degraded"].([]any)
}

// requireRows waits until every order of a product has a row with the same status, and no other
// order has one.
func (s *system) requireRows(dsn, product string) {
	s.t.Helper()
	pool := postgrestest.Open(s.t, dsn)
	require.Eventually(s.t, func() bool {
		rows, err := pool.Query(context.Background(),
			"SELECT replace(id::text, '-', ''), status, buyer FROM orders")
		if err != nil {
			return false
		}
		have := map[string]string{}
		for rows.Next() {
			var id, status, buyer string
			if rows.Scan(&id, &status, &buyer) == nil {
				have[id] = status + buyer
			}
		}
		if rows.Err() != nil {
			return false
		}
		orders := s.orders(product)
		for _, o := range orders {
			if have[o["id"].(string)] != fmt.Sprint(o["status"], o["buyer"]) {
				return false
			}
		}
		return len(have) == len(orders)
	}, patience, 50*time.Millisecond, "%s\n%s", dsn, s.log)
}

// sell makes n orders of a product and pays for half of them.
func (s *system) sell(name, product string, n int) {
	s.t.Helper()
	var selling sync.WaitGroup
	for w := range 4 {
		selling.Go(func() {
			for k := w; k < n; k += 4 {
				r := s.reserve(fmt.Sprint(name, k), "b", fmt.Sprintf(`{"product":%q,"quantity":2}`, product))
				require.Equal(s.t, 201, r.status, r.text)
				if k%2 == 0 {
					path := fmt.Sprintf("/v1/orders/%s/confirm", r.order()["id"])
					require.Equal(s.t, 200, s.call("POST", path, serviceToken, "", `{"payment":"p"}`).status)
				}
			}
		})
	}
	selling.Wait()
}

// TestPrivatePostgres runs with a PostgreSQL of the system's own and kills them together.
func TestPrivatePostgres(t *testing.T) {
	dir := filepath.Join(postgrestest.Dir(t), "data")
	s := startSystem(t, dir, "--postgres", "")
	dsn := cluster.DSN(filepath.Join(dir, "postgres"))
	require.Eventually(t, func() bool { return len(s.degraded()) == 0 }, patience, 50*time.Millisecond)
	s.product("a", 1000, "")
	s.sell("x", "a", 40)
	s.kill()
	s = startSystem(t, dir, "--postgres", "")
	s.sell("y", "a", 40)
	s.requireRows(dsn, "a")
	s.stop()
}

// TestSellsWithoutPostgres begins with a PostgreSQL that is not there yet.
func TestSellsWithoutPostgres(t *testing.T) {
	place := postgrestest.Dir(t)
	s := startSystem(t, t.TempDir(), "--postgres", cluster.DSN(place))
	require.Equal(t, []any{"postgres"}, s.degraded())
	s.product("a", 1000, "")
	s.sell("x", "a", 40)
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: place, Volatile: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Stop()) }()
	s.sell("y", "a", 40)
	s.requireRows(cluster.DSN(place), "a")
	require.Eventually(t, func() bool { return len(s.degraded()) == 0 }, patience, 50*time.Millisecond)
	s.stop()
}

// TestSellsWithoutPrograms has data of a PostgreSQL that is not installed.
func TestSellsWithoutPrograms(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "postgres", "data")
	require.NoError(t, os.MkdirAll(data, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("8\n"), 0o644))
	s := startSystem(t, dir, "--postgres", "")
	require.Equal(t, []any{"postgres"}, s.degraded())
	s.product("a", 10, "")
	require.Equal(t, 201, s.reserve("k", "b", `{"product":"a","quantity":2}`).status)
	s.stop()
	require.Contains(t, s.log.String(), "apt-get install postgresql-8")
}

// TestMigrate brings an empty database to the schema, twice.
func TestMigrate(t *testing.T) {
	dsn := postgrestest.EmptyDSN(t)
	for range 2 {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), []string{"migrate", "--postgres", dsn}, &out, &out))
		require.Contains(t, out.String(), "the schema has version")
	}
	_, err := postgres.Migrate(t.Context(), postgrestest.Open(t, dsn))
	require.NoError(t, err)
}

// TestExport writes a day's orders to a file and, without a day, says how to use it.
func TestExport(t *testing.T) {
	dsn, file := postgrestest.DSN(t), filepath.Join(t.TempDir(), "orders.csv")
	var out bytes.Buffer
	arguments := []string{"export", "--postgres", dsn, "--day", "2026-11-29"}
	require.NoError(t, run(t.Context(), append(arguments, "--out", file), &out, &out))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Empty(t, out.String())
	require.NoError(t, run(t.Context(), arguments, &out, &out))
	require.Equal(t, string(text), out.String())
	require.Contains(t, out.String(), "#complete,0\r\n")
	require.Error(t, run(t.Context(), arguments[:3], &out, &out))
}

// TestReconcile gives one number to two orders by hand, and a row that says something else: the
// running system raises both, and the command repairs what it may.
func TestReconcile(t *testing.T) {
	dir, dsn := t.TempDir(), postgrestest.DSN(t)
	s := startSystem(t, dir, "--postgres", dsn, "--reconcile", "200ms")
	s.product("a", 1000, "")
	s.sell("x", "a", 40)
	s.requireRows(dsn, "a")
	pool := postgrestest.Open(t, dsn)
	reconcile := func(flags ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{
			"reconcile", "--data", dir, "--postgres", dsn,
		}, flags...), &out, &out)
		return out.String(), err
	}
	out, err := reconcile()
	require.NoError(t, err, out)
	require.Contains(t, out, "40 orders compared")
	require.Contains(t, out, "0 repaired, 0 left")

	_, err = pool.Exec(t.Context(), `UPDATE order_items SET numbers = (SELECT numbers FROM order_items
		ORDER BY order_id LIMIT 1) WHERE order_id = (SELECT max(order_id::text)::uuid FROM order_items)`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		metrics := s.call("GET", "/metrics", adminToken, "", "").text
		return strings.Contains(metrics, `numera_findings_open{kind="numbers_overlap"} `) &&
			strings.Contains(metrics, `numera_findings_open{kind="row_differs"} 1`)
	}, patience, 50*time.Millisecond)
	out, err = reconcile()
	require.ErrorIs(t, err, errFindings)
	require.Regexp(t, `(?m)^left +numbers_overlap +a \d+ +orders `, out)
	out, err = reconcile("--repair")
	require.ErrorIs(t, err, errFindings, "it was found before it was repaired")
	require.Regexp(t, `(?m)^repaired +row_differs +\w+ +items$`, out)
	out, err = reconcile("--repair")
	require.NoError(t, err, out)
	s.stop()
	require.Contains(t, s.log.String(), "kind=numbers_overlap")
	_, err = reconcile()
	require.ErrorContains(t, err, "no numera dev runs over")
}

// TestEmptiedPostgres loses all rows under a running system: orders come back from the actors, their
// payments from the provider, and nobody is charged again.
func TestEmptiedPostgres(t *testing.T) {
	dsn := postgrestest.DSN(t)
	s := startSystem(t, t.TempDir(), "--postgres", dsn, "--reconcile", "200ms")
	s.product("a", 100, "")
	s.sell("x", "a", 20)
	paid := s.held("paid", "a")
	r := s.pay(paid, "p", card)
	require.Equal(t, 201, r.status, r.text)
	s.becomes(paid, "paid")
	pool := postgrestest.Open(t, dsn)
	payments := func(status string) (n int) {
		require.NoError(t, pool.QueryRow(t.Context(),
			"SELECT count(*) FROM payments WHERE status = $1", status).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return payments("captured") == 1 },
		patience, 20*time.Millisecond)
	_, err := pool.Exec(t.Context(),
		"TRUNCATE orders, payments, payers, refunds, findings, shard_offsets, engine CASCADE")
	require.NoError(t, err)
	s.requireRows(dsn, "a")
	require.Eventually(t, func() bool { return payments("captured") == 1 },
		patience, 20*time.Millisecond)
	charges, money := s.captured(paid)
	require.Equal(t, 1, charges)
	require.Equal(t, 100, money)
	s.stop()
}
