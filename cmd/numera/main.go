// Command numera is the one binary of the platform, with a subcommand per role.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// cli is every subcommand with its flags. A flag may also be given as an environment variable:
// NUMERA_ and the flag in capitals, - as _; the flag wins.
type cli struct {
	Dev       devCommand       `cmd:"" help:"Run everything in one process: NATS, shards, gateway, events, PostgreSQL."`
	Migrate   migrateCommand   `cmd:"" help:"Bring a PostgreSQL database to the schema of this program."`
	Export    exportCommand    `cmd:"" help:"Write a day's orders or payments as CSV."`
	Reconcile reconcileCommand `cmd:"" help:"Compare the orders of a running system with their rows and payments."`
	PSP       pspCommand       `cmd:"" name:"psp" help:"A payment provider to try and to test with: it remembers, and fails as it is told to."`
	Bench     benchCommand     `cmd:"" help:"Load the system, check every sale afterwards, and report."`
}

const description = `numera sells finite, numbered items at an announced hour.

Every flag can also be set in the environment: --data as NUMERA_DATA, --admin-token as
NUMERA_ADMIN_TOKEN. The flag wins.`

func main() {
	useMemory()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "numera:", err)
		os.Exit(1)
	}
}

// errUsage is returned when the command line was wrong and has been explained.
var errUsage = errors.New("see numera --help")

// run does what the arguments say until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c cli
	exited := -1
	parser, err := kong.New(&c,
		kong.Name("numera"), kong.Description(description), kong.UsageOnError(),
		kong.DefaultEnvars("NUMERA"), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(&streams{stdout, stderr}),
	)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(args)
	switch {
	case exited == 0: // --help has been printed
		return nil
	case err != nil:
		return fmt.Errorf("%w (%w)", err, errUsage)
	}
	return parsed.Run()
}

// streams are where a subcommand writes: answers to out, everything else to err.
type streams struct{ out, err io.Writer }

// logger writes an operator's log.
func (s *streams) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: level}))
}
