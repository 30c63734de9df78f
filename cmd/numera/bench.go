package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"time"

	"numera/bench"
)

// benchCommand loads the system and has an oracle check every sale afterwards.
type benchCommand struct {
	Load     benchLoad     `cmd:"" help:"One load on one path, by schedule or in a closed loop."`
	Floor    benchFloor    `cmd:"" help:"A path beside the least that must be done on it anyway, in turns: the shard beside the same raft and log with an empty state machine, HTTP beside a constant answer."`
	Cost     benchCost     `cmd:"" help:"A reservation among many numbers, live orders and products beside one among few, in turns."`
	Checkout benchCheckout `cmd:"" help:"Whole sales over HTTP: reserve, and pay by card, with Postgres and a simulated provider."`
	All      benchAll      `cmd:"" help:"Every path and every workload, shortly, with both floors."`
}

// benchOptions are what all benches have in common.
type benchOptions struct {
	Dir     string `type:"path" help:"Where the system keeps its data meanwhile: the disk that is measured. Default: the temporary directory."`
	Seed    uint64 `default:"1" help:"Of arrivals and choices."`
	JSON    string `name:"json" type:"path" help:"Also write the report as JSON to this file."`
	Profile string `type:"path" help:"Write a CPU profile of the whole run to this file."`
}

// report is any of the reports of package bench.
type report interface{ WriteTable(io.Writer) error }

// run carries out one bench and shows what it reports, also when a promise was found broken.
func (o *benchOptions) run(s *streams, measure func() (report, error)) error {
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	r, failed := measure()
	if failed != nil && !errors.Is(failed, bench.ErrViolated) {
		return failed
	}
	return errors.Join(failed, r.WriteTable(s.out), o.writeJSON(r))
}

func (o *benchOptions) writeJSON(r report) error {
	if o.JSON == "" {
		return nil
	}
	f, err := os.Create(o.JSON)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return errors.Join(bench.WriteJSON(f, r), f.Close())
}

type benchLoad struct {
	benchOptions
	Path     string        `default:"shard" enum:"shard,nats,http" help:"shard: proposed in this process. nats: as an internal caller. http: over loopback."`
	Workload string        `default:"any" enum:"chosen,any,products,sell-out,retries,expiry,lifecycle" help:"${enum}."`
	Rate     float64       `help:"Requests a second meant to start; latency counts from then. 0: a closed loop."`
	Arrivals string        `default:"poisson" enum:"poisson,constant" help:"How they arrive at a rate."`
	InFlight int           `help:"Requests under way at any time, at most. Default: 1024, on http 256."`
	Requests int           `help:"At most so many. Default: 2 million."`
	Duration time.Duration `default:"10s" help:"At most so long."`
	Products int           `help:"Default: the workload's."`
	Numbers  int           `help:"Of each product. Default: the workload's."`
	Quantity int           `help:"Of an order. Default: 1."`
	Shards   int           `help:"Of the system that is started. Default: 8."`

	NoConsumer   bool   `help:"Leave the outbox without a consumer."`
	Target       string `help:"With http: the URL of a server that runs already, on loopback, instead of one in this process."`
	ServiceToken string `help:"Of the target."`
	AdminToken   string `help:"Of the target."`
}

// Run measures one load.
func (b *benchLoad) Run(ctx context.Context, s *streams) error {
	return b.run(s, func() (report, error) {
		return bench.Run(ctx, bench.Config{
			Path: bench.Path(b.Path), Workload: bench.Workload(b.Workload), Rate: b.Rate,
			Arrivals: bench.Arrivals(b.Arrivals), InFlight: b.InFlight, Requests: b.Requests,
			Duration: b.Duration, Products: b.Products, Numbers: b.Numbers, Quantity: b.Quantity,
			Seed: b.Seed, Shards: b.Shards, Dir: b.Dir, NoConsumer: b.NoConsumer,
			Target: b.Target, ServiceToken: b.ServiceToken, AdminToken: b.AdminToken,
			Progress: s.err,
		})
	})
}

type benchFloor struct {
	benchOptions
	Path       string        `default:"shard" enum:"shard,http" help:"shard or http."`
	InFlight   int           `help:"Requests under way. Default: 1024, on http 256."`
	Rounds     int           `default:"7" help:"Rounds that count; medians are over them."`
	Turn       time.Duration `default:"2s" help:"Of each side in each round."`
	Numbers    int           `help:"Of the hot product. Default: 100 million, the most."`
	Bare       bool          `help:"With shard: a floor of bytes of which no command is made."`
	NoConsumer bool          `help:"Leave the outbox without a consumer."`
}

// Run compares a path with its floor.
func (b *benchFloor) Run(ctx context.Context, s *streams) error {
	return b.run(s, func() (report, error) {
		return bench.RunFloor(ctx, bench.CompareConfig{
			Path: bench.Path(b.Path), InFlight: b.InFlight, Rounds: b.Rounds, Turn: b.Turn,
			Numbers: b.Numbers, Bare: b.Bare, NoConsumer: b.NoConsumer, Dir: b.Dir, Seed: b.Seed,
			Progress: s.err,
		})
	})
}

type benchCost struct {
	benchOptions
	Rounds   int `default:"7" help:"Rounds that count; medians are over them."`
	Numbers  int `help:"Many numbers. Default: 10 million."`
	Orders   int `help:"Many live orders. Default: 1 million."`
	Products int `help:"Many products. Default: 100,000."`
}

// Run compares costs.
func (b *benchCost) Run(ctx context.Context, s *streams) error {
	return b.run(s, func() (report, error) {
		return bench.RunCost(ctx, bench.CostConfig{
			Numbers: b.Numbers, Orders: b.Orders, Products: b.Products, Rounds: b.Rounds,
			Dir: b.Dir, Seed: b.Seed, Progress: s.err,
		})
	})
}

// benchAll has no options but the directory: it is for a first look.
type benchAll struct {
	Dir string `type:"path" help:"As in the others."`
}

// Run measures everything shortly.
func (b *benchAll) Run(ctx context.Context, s *streams) error {
	var failed []error
	for _, path := range []string{"shard", "nats", "http"} {
		for _, workload := range []string{
			"any", "chosen", "products", "sell-out", "retries", "expiry", "lifecycle",
		} {
			load := benchLoad{
				benchOptions: benchOptions{Dir: b.Dir, Seed: 1}, Path: path, Workload: workload,
				Arrivals: "poisson", Duration: 5 * time.Second,
			}
			failed = append(failed, load.Run(ctx, s))
		}
	}
	for _, path := range []string{"shard", "http"} {
		floor := benchFloor{
			benchOptions: benchOptions{Dir: b.Dir, Seed: 1}, Path: path, Rounds: 5,
			Turn: 2 * time.Second,
		}
		failed = append(failed, floor.Run(ctx, s))
	}
	return errors.Join(failed...)
}
