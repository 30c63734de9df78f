// Package postgres keeps orders and payments in PostgreSQL.
//
// Rows of orders are a copy of what the engine has: [Follower] writes them from the outboxes of the
// shards, in the order of events, and a row is only ever replaced by a newer one. They may lag and
// are never missing; a caller that needs one which is not there yet writes it itself, by
// [Orders.Upsert]. No personal data is in these tables: a buyer is an opaque id.
//
// The schema is defended by the database: what no order can be, no row can be either. [Migrate]
// brings a database to it.
package postgres

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

// PoolConfig says how a pool connects. Zero members take the default.
type PoolConfig struct {
	// DSN in either of libpq's forms; it may hold a password. Required.
	DSN string
	// Connections is how many may be open. Default 20.
	Connections int
	// Statement bounds every statement, and how long a transaction may be left open; zero: 30 s,
	// negative: nothing does, as exports need.
	Statement time.Duration
}

// connectPatience bounds one attempt to connect.
const connectPatience = 5 * time.Second

// Open makes a pool. It does not connect: PostgreSQL may be down, and come up later. An error means
// that the DSN is wrong, and does not repeat its password.
func Open(ctx context.Context, c PoolConfig) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.MaxConns = 20
	if c.Connections > 0 {
		config.MaxConns = int32(c.Connections)
	}
	// A new connection is a new process of PostgreSQL: dear, and dearest when a crowd makes all of
	// them at once. So they are made beforehand, and kept.
	config.MinConns = config.MaxConns
	config.HealthCheckPeriod = time.Second
	if c.Statement == 0 {
		c.Statement = 30 * time.Second
	}
	config.ConnConfig.ConnectTimeout = connectPatience
	parameters := config.ConnConfig.RuntimeParams
	if parameters["application_name"] == "" {
		parameters["application_name"] = "numera"
	}
	parameters["timezone"] = "UTC"
	// Orders are partitioned, and a plan for each set of values costs more than what it finds out: the
	// same plan prunes partitions when it is executed.
	parameters["plan_cache_mode"] = "force_generic_plan"
	// That plan may be made while a table is empty, and to read all of an empty table is cheapest. But
	// what is done here is done by key, some rows at a time.
	for _, way := range []string{"seqscan", "hashjoin", "mergejoin"} {
		parameters["enable_"+way] = "off"
	}
	if c.Statement > 0 {
		bound := fmt.Sprint(c.Statement.Milliseconds())
		parameters["statement_timeout"] = bound
		parameters["idle_in_transaction_session_timeout"] = bound
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return pool, nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// Migrate brings the database to the schema of this program and says to which version. Several may
// run at once: the others wait. It has to have a database; it makes no roles.
func Migrate(ctx context.Context, pool *pgxpool.Pool) (version int64, err error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	once, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 120))
	if err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithSessionLocker(once), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(goose.NewGoMigration(versionOfJobs, &goose.GoFunc{
			RunDB: func(ctx context.Context, _ *sql.DB) error { return migrateJobs(ctx, pool) },
		}, nil)))
	if err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	if version, err = provider.GetDBVersion(ctx); err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	// Now, and not when the first orders need them: it takes locks that those would wait for.
	if err := new(partitions).makeAhead(ctx, pool, time.Now()); err != nil {
		return 0, fmt.Errorf("postgres: migrate: %w", err)
	}
	return version, nil
}
