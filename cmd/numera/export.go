package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"numera/gateway/order/postgres"
)

// exportCommand writes a day's orders or payments as CSV, for a nightly batch.
type exportCommand struct {
	Day      time.Time `required:"" format:"2006-01-02" help:"The day of creation, in UTC: 2026-11-29."`
	Postgres string    `required:"" placeholder:"DSN" help:"The database."`
	What     string    `default:"orders" enum:"orders,payments" help:"${enum}."`
	Out      string    `type:"path" help:"The file to write; it appears when it is complete. Default: standard output."`
}

// Help describes the columns.
func (c *exportCommand) Help() string {
	return `CSV as in RFC 4180, UTF-8, amounts in minor units, times in UTC.

orders has a line for each product of an order, payments one for each payment, by id. Then follows,
for each status and currency, "#total,STATUS,CURRENCY,COUNT,SUM…": of orders the sum of
total_amount, of payments those of amount, captured_amount and refunded_amount. The last line is
"#complete,LINES"; what has no such line is not all. A cell that begins with = + - or @ gets a
leading apostrophe.`
}

// Run writes the export. It is of one moment, and disturbs nobody.
func (c *exportCommand) Run(ctx context.Context, s *streams) error {
	pool, err := postgres.Open(ctx, postgres.PoolConfig{DSN: c.Postgres, Connections: 1, Statement: -1})
	if err != nil {
		return err
	}
	defer pool.Close()
	write := func(w io.Writer) error {
		return postgres.WriteCSV(ctx, pool, w, postgres.Export(c.What), c.Day)
	}
	if c.Out == "" {
		return write(s.out)
	}
	return writeFile(c.Out, write)
}

// writeFile writes a file beside path and gives it its name when it is complete and on disk.
func writeFile(path string, write func(io.Writer) error) error {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close(), os.Remove(part))
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return os.Rename(part, path)
}
