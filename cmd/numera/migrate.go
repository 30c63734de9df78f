package main

import (
	"context"
	"fmt"

	"numera/gateway/order/postgres"
)

// migrateCommand brings a database to the schema of this program.
type migrateCommand struct {
	Postgres string `required:"" placeholder:"DSN" help:"The database, which has to exist."`
}

// Run migrates. Several at once wait for each other.
func (c *migrateCommand) Run(ctx context.Context, s *streams) error {
	pool, err := postgres.Open(ctx, postgres.PoolConfig{DSN: c.Postgres, Statement: -1})
	if err != nil {
		return err
	}
	defer pool.Close()
	version, err := postgres.Migrate(ctx, pool)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "the schema has version %d\n", version)
	return nil
}
