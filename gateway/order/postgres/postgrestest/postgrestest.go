// Package postgrestest gives tests a real PostgreSQL: one cluster per test process, and a migrated
// database of its own for each test.
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Run(m)) }
//
//	func TestX(t *testing.T) { pool := postgrestest.New(t) … }
package postgrestest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/cluster"
)

// server is the cluster of this process, started by the first test that asks for it.
var server struct {
	once      sync.Once
	err       error
	dir       string
	cluster   *cluster.Cluster
	admin     *pgxpool.Pool
	databases atomic.Int64
	may       bool // Run will stop it
}

const (
	startPatience = time.Minute
	template      = "template_numera"
)

// Run runs the tests and then stops the cluster, if any has asked for it. Its result is the
// process's exit status.
func Run(m *testing.M) int {
	server.may = true
	status := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "postgrestest:", err)
		return max(status, 1)
	}
	return status
}

// New gives a pool of a new, migrated database, both of which end with the test.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Open(t, DSN(t))
}

// DSN makes a migrated database and says how to reach it.
func DSN(t testing.TB) string {
	t.Helper()
	return create(t, "TEMPLATE "+template)
}

// EmptyDSN makes a database in which nothing has been migrated yet.
func EmptyDSN(t testing.TB) string {
	t.Helper()
	return create(t, "")
}

func create(t testing.TB, from string) string {
	t.Helper()
	if !server.may {
		t.Fatal("postgrestest: TestMain has to call postgrestest.Run")
	}
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	name := fmt.Sprint("test_", server.databases.Add(1))
	ctx := context.Background()
	if _, err := server.admin.Exec(ctx, "CREATE DATABASE "+name+" "+from); err != nil {
		t.Fatal("postgrestest:", err)
	}
	t.Cleanup(func() {
		if _, err := server.admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error("postgrestest:", err)
		}
	})
	return strings.Replace(server.cluster.DSN(), "dbname=numera", "dbname="+name, 1)
}

// Open gives a pool that is closed when the test ends.
func Open(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := postgres.Open(context.Background(), postgres.PoolConfig{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// closePatience is how long a test may keep a connection after its end.
const closePatience = 10 * time.Second

// closePool fails a test that has kept a connection, which Close would wait for for ever.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
		t.Error("postgrestest: a connection of the pool was not given back")
	}
}

// Dir makes a directory under the temporary one that every user may enter, which testing's own does
// not allow, for a cluster that a test starts itself. It is removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := makeDir()
	if err != nil {
		t.Fatal("postgrestest:", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error("postgrestest:", err)
		}
	})
	return dir
}

func makeDir() (string, error) {
	dir, err := os.MkdirTemp("", "numera-postgres-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711)
}

func start() {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if server.dir, server.err = makeDir(); server.err != nil {
		return
	}
	server.cluster, server.err = cluster.Start(ctx, cluster.Config{
		Dir: filepath.Join(server.dir, "cluster"), Connections: 200, Volatile: true,
	})
	if server.err != nil {
		return
	}
	server.admin, server.err = postgres.Open(ctx, postgres.PoolConfig{DSN: server.cluster.DSN()})
	if server.err != nil {
		return
	}
	if _, server.err = server.admin.Exec(ctx, "CREATE DATABASE "+template); server.err == nil {
		server.err = migrate(ctx)
	}
}

func migrate(ctx context.Context) error {
	dsn := strings.Replace(server.cluster.DSN(), "dbname=numera", "dbname="+template, 1)
	pool, err := postgres.Open(ctx, postgres.PoolConfig{DSN: dsn})
	if err != nil {
		return err
	}
	defer pool.Close() // a template has to have no connections
	_, err = postgres.Migrate(ctx, pool)
	return err
}

func stop() error {
	if server.admin != nil {
		server.admin.Close()
	}
	if server.cluster != nil {
		if err := server.cluster.Stop(); err != nil {
			return err
		}
	}
	if server.dir == "" {
		return nil
	}
	return os.RemoveAll(server.dir)
}
