package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"numera/engine/inventory"
)

// CostConfig says how the costs among many and among few are compared. Zero values mean the
// defaults named beside them.
type CostConfig struct {
	// Few is how many numbers, live orders or products there are on one side; default 1,000. On
	// the other are Numbers, Orders, or Products; defaults 10 million, 1 million, 100,000.
	Few, Numbers, Orders, Products int

	InFlight int // default 200; at most Few/4
	Rounds   int // that count, at least 3; default 7
	Requests int // of each side in each round; default 100,000

	Dir      string
	Seed     uint64    // default 1
	Progress io.Writer // where set, gets a line for each round
}

func (c CostConfig) withDefaults() CostConfig {
	c.Few = cmp.Or(c.Few, 1000)
	c.Numbers = cmp.Or(c.Numbers, 10_000_000)
	c.Orders = cmp.Or(c.Orders, 1_000_000)
	c.Products = cmp.Or(c.Products, 100_000)
	c.InFlight = cmp.Or(c.InFlight, 200)
	c.Rounds = cmp.Or(c.Rounds, 7)
	c.Requests = cmp.Or(c.Requests, 100_000)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

func (c *CostConfig) validate() error {
	switch {
	case c.Few < 16 || c.Few > 100_000 || c.InFlight < 1 || c.InFlight > c.Few/4:
		return fmt.Errorf("%w: %d in flight among %d", ErrConfig, c.InFlight, c.Few)
	case c.Numbers < c.Few || c.Numbers > inventory.MaxCount || c.Orders < c.Few ||
		c.Orders > 10_000_000 || c.Products < c.Few || c.Products > 1_000_000:
		return fmt.Errorf("%w: %d numbers, %d orders or %d products as many",
			ErrConfig, c.Numbers, c.Orders, c.Products)
	case c.Rounds < 3 || c.Rounds > 100 || c.Requests < 100 || c.Requests > mostTurn:
		return fmt.Errorf("%w: %d rounds of %d requests", ErrConfig, c.Rounds, c.Requests)
	}
	return nil
}

const costTarget = "CPU at most 1.30"

// RunCost compares what a reservation costs among many numbers, live orders and products with what
// it costs among few, on the shard path. Every order is released again, so that neither side
// grows. It returns ErrConfig, ErrIncomplete, or, with the report, ErrViolated.
func RunCost(ctx context.Context, config CostConfig) (*ComparisonReport, error) {
	c := config.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	few := terrain{products: 1, numbers: c.Few, filled: c.Few / 2}
	r := &ComparisonReport{Machine: thisMachine(), Notes: []string{
		"half of the requests reserve any one number, the others release it again",
		"both sides share one process, so that each pays for the other's memory when it is " +
			"collected, in proportion to what it allocates",
		"outbox consumer: none",
	}}
	for _, dimension := range []struct {
		name      string
		few, many terrain
	}{
		{
			fmt.Sprintf("one product, half taken, of %d or %d numbers", c.Numbers, c.Few),
			few,
			terrain{products: 1, numbers: c.Numbers, filled: c.Numbers / 2},
		},
		{
			fmt.Sprintf("%d or %d live orders of one number each", c.Orders, c.Few),
			terrain{products: 1, numbers: 2 * c.Orders, orders: c.Few},
			terrain{products: 1, numbers: 2 * c.Orders, orders: c.Orders},
		},
		{
			fmt.Sprintf("%d or %d products of %d numbers", c.Products, c.Few, c.Few),
			terrain{products: c.Few, numbers: c.Few},
			terrain{products: c.Products, numbers: c.Few},
		},
	} {
		err := c.compare(ctx, r, dimension.name, dimension.few, dimension.many)
		if err != nil {
			return r, fmt.Errorf("%s: %w", dimension.name, err)
		}
	}
	return r, r.err()
}

// terrain is what a side sells among.
type terrain struct {
	products int
	numbers  int // of each product
	filled   int // of them taken beforehand, at random, by large orders
	orders   int // made beforehand, of one number
}

// The two sides are two shards of one node.
const (
	fewShard  = 0
	manyShard = 1
)

// compare is one dimension, on a system of its own.
func (c *CostConfig) compare(
	ctx context.Context, r *ComparisonReport, name string, few, many terrain,
) (err error) {
	v, err := openVenue(ctx, &Config{Path: PathShard, Dir: c.Dir, Shards: 2, NoConsumer: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	var sides [2]*side
	for id, t := range map[int]terrain{fewShard: few, manyShard: many} {
		if sides[id], err = c.prepare(ctx, v, inventory.ShardID(id), t); err != nil {
			return err
		}
	}
	comparison := Comparison{Name: name, Subject: "many", Baseline: "few", Target: costTarget}
	err = comparison.compare(ctx, sides[manyShard], sides[fewShard], c.Rounds, c.Progress)
	if err != nil {
		return err
	}
	r.Comparisons = append(r.Comparisons, comparison)
	for _, s := range sides {
		var o Oracle
		if err := v.examine(ctx, s.load, &o); err != nil {
			return err
		}
		r.Oracles = append(r.Oracles, o)
	}
	return nil
}

// prepare makes a side on one shard: its products on sale, what is taken beforehand taken.
func (c *CostConfig) prepare(
	ctx context.Context, v *venue, id inventory.ShardID, t terrain,
) (*side, error) {
	p := &plan{products: t.products, numbers: t.numbers, quantity: 1, hold: 24 * 3600}
	for k := 0; len(p.ids) < t.products; k++ {
		product := inventory.ProductID(fmt.Sprintf("cost-%d", k))
		if product.Shard(2) == id {
			p.ids = append(p.ids, product)
		}
	}
	if err := v.setUp(ctx, p); err != nil {
		return nil, err
	}
	l := newLoad(p, v.peer, nil, shape{lanes: 1, window: c.InFlight, first: int(id)}, c.Seed)
	large := min(inventory.MaxNumbersInOrder, max(t.filled, 1))
	for _, made := range []struct{ orders, quantity int }{{t.filled / large, large}, {t.orders, 1}} {
		p.next = func(n *lane, op *operation) { *op = n.reserve(p.ids[0], nil, uint32(made.quantity)) }
		l.schedule = newSchedule(ArrivalsConstant, 0, made.orders, math.MaxInt64, c.Seed)
		if _, err := l.run(ctx); err != nil {
			return nil, err
		}
	}
	p.reserveAndRelease(c.Seed)
	return &side{load: l, next: func() *schedule {
		return newSchedule(ArrivalsConstant, 0, c.Requests, time.Minute, c.Seed)
	}}, nil
}

// reserveAndRelease reserves one number of each product in turn, in a random order, and releases the
// orders again. The names lie in that order in memory too: what it costs to come by them is the
// client's, and the same for few as for many. It is for a load of one lane.
func (p *plan) reserveAndRelease(seed uint64) {
	ids, at := slices.Clone(p.ids), 0
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
	for i := range ids {
		ids[i] = inventory.ProductID(strings.Clone(string(ids[i])))
	}
	p.next = func(n *lane, op *operation) {
		if h, ok := n.take(); ok {
			*op = h.step(inventory.KindRelease)
			return
		}
		*op = n.reserve(ids[at], nil, 1)
		at = (at + 1) % len(ids)
	}
	p.answered = func(n *lane, op *operation, a *answer) {
		if op.kind == inventory.KindReserve && a.verdict == acknowledged && a.order != nil {
			n.hold(held{op.buyer, a.order.ID, inventory.StatusReserved})
			return
		}
		n.holdAgain(op, a, inventory.StatusReserved)
	}
}
