package shard

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// call is one operation of a history: a read, or a write that leads from some states to others. The
// states are the status of an order and the name of a product.
type call struct {
	key  string
	read bool
	next func(state string) (to string, allowed bool)
}

// result is what a call was answered. An unknown one may have acted.
type result struct {
	unknown, refused bool
	state            string
}

var model = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make(map[string][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(call).key
			parts[key] = append(parts[key], op)
		}
		all := make([][]porcupine.Operation, 0, len(parts))
		for _, part := range parts {
			all = append(all, part)
		}
		return all
	},
	Init: func() []any { return []any{"reserved"} },
	Step: func(state, input, output any) []any {
		was, c, r := state.(string), input.(call), output.(result)
		if c.read {
			if r.unknown || r.state == was {
				return []any{was}
			}
			return nil
		}
		to, allowed := c.next(was)
		switch {
		case r.unknown && allowed:
			return []any{was, to}
		case r.unknown, r.refused && !allowed && r.state == was:
			return []any{was}
		case !r.refused && allowed && r.state == to:
			return []any{to}
		}
		return nil
	},
}

// buyer works on orders, and on the name of a product, and writes down what it was answered.
type buyer struct {
	id      int
	shards  func() []*Shard // to ask in turn until one leads
	orders  []inventory.OrderID
	random  *rand.Rand
	began   time.Time
	history []porcupine.Operation
}

func (b *buyer) act() {
	id := b.orders[b.random.IntN(len(b.orders))]
	on := inventory.OnOrder{Order: id}
	c := call{key: id.String()}
	moves := func(all map[string]string) func(string) (string, bool) {
		return func(state string) (string, bool) { to, ok := all[state]; return to, ok }
	}
	var command inventory.Command
	switch b.random.IntN(12) {
	case 0:
		command = &inventory.BeginPayment{OnOrder: on, Payment: "p"}
		c.next = moves(map[string]string{"reserved": "paying", "paying": "paying"})
	case 1:
		command = &inventory.Confirm{OnOrder: on, Payment: "p"}
		c.next = moves(map[string]string{
			"reserved": "paid", "paying": "paid", "paid": "paid", "shipped": "shipped",
		})
	case 2:
		command = &inventory.Ship{OnOrder: on}
		c.next = moves(map[string]string{"paid": "shipped", "shipped": "shipped"})
	case 3:
		command = &inventory.Refund{OnOrder: on}
		c.next = moves(map[string]string{
			"paid": "refunded", "shipped": "refunded", "refunded": "refunded",
		})
	case 4, 5:
		name := fmt.Sprint(b.id, "-", len(b.history))
		put := product("register", 1)
		put.Settings.Name = name
		command, c.key = put, "register"
		c.next = func(string) (string, bool) { return name, true }
	case 6, 7:
		c.key, c.read = "register", true
	default:
		c.read = true
	}
	b.record(c, func(s *Shard) (*inventory.Outcome, error) {
		switch {
		case !c.read:
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			return s.Do(ctx, inventory.Entry{Command: command})
		case c.key == "register":
			return readProduct(s, "register")
		}
		return readOrder(s, id)
	})
}

// record asks until somebody leads, and writes down the answer. What was refused without an outcome
// did nothing.
func (b *buyer) record(c call, ask func(*Shard) (*inventory.Outcome, error)) {
	shards := b.shards()
	at := b.random.IntN(len(shards))
	for {
		op := porcupine.Operation{ClientId: b.id, Input: c, Call: int64(time.Since(b.began))}
		o, err := ask(shards[at%len(shards)])
		op.Return = int64(time.Since(b.began))
		switch {
		case err == ErrOutcomeUnknown:
			op.Return, op.Output = math.MaxInt64, result{unknown: true}
		case err != nil:
			at++
			shards = b.shards()
			time.Sleep(time.Millisecond) // nobody leads, perhaps
			continue
		case o.Product != nil:
			op.Output = result{state: o.Product.Settings.Name}
		case o.Code == inventory.CodeOK:
			op.Output = result{state: o.Order.Status.String()}
		default:
			op.Output = result{refused: true, state: o.Refusal.Status.String()}
		}
		b.history = append(b.history, op)
		return
	}
}

func readProduct(s *Shard, id inventory.ProductID) (o *inventory.Outcome, err error) {
	done := make(chan struct{})
	s.Product(id, func(view *inventory.ProductView, failure error) {
		o, err = s.server.product(view), failure
		close(done)
	})
	<-done
	return o, err
}

// trade lets buyers act until stop is closed, and gives their history. do asks whoever leads.
func trade(
	seed uint64, do func(func() inventory.Command) *inventory.Outcome,
	shards func() []*Shard, stop <-chan struct{},
) (history func() []porcupine.Operation) {
	do(func() inventory.Command { return product("a", 100_000) })
	register := product("register", 1)
	register.Settings.Name = "reserved"
	do(func() inventory.Command { return register })
	var orders []inventory.OrderID
	for i := range 40 {
		made := do(func() inventory.Command { return reserve(fmt.Sprint("trade", i), "b") })
		orders = append(orders, made.Order.ID)
	}
	began := time.Now()
	var trading sync.WaitGroup
	buyers := make([]*buyer, 6)
	for i := range buyers {
		b := &buyer{
			id: i, shards: shards, orders: orders, began: began,
			random: rand.New(rand.NewPCG(seed, uint64(i))),
		}
		buyers[i] = b
		trading.Go(func() {
			for len(b.history) < 2000 {
				select {
				case <-stop:
					return
				default:
					b.act()
				}
			}
		})
	}
	return func() (all []porcupine.Operation) {
		trading.Wait()
		for _, b := range buyers {
			all = append(all, b.history...)
		}
		return all
	}
}

func requireLinearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(model.ToModel(), history, 2*patience)
	require.Equal(t, porcupine.Ok, result, "%d operations", len(history))
}

// TestLinearizable checks the reads of a node alone, while it takes snapshots.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	config := testConfig(t, t.TempDir())
	config.SnapshotEntries = 30
	n := openNode(t, config)
	defer n.Close()
	s := n.Shard(0)
	stop := make(chan struct{})
	history := trade(1, func(command func() inventory.Command) *inventory.Outcome {
		return do(t, s, command())
	}, func() []*Shard { return []*Shard{s} }, stop)
	time.AfterFunc(time.Second, func() { close(stop) })
	all := history()
	t.Logf("%d operations", len(all))
	requireLinearizable(t, all)
}

// TestReadInOldTerm reads where raft leads in a later term than the shard has followed it to: what
// was acknowledged in between need not be applied yet.
func TestReadInOldTerm(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t, t.TempDir()))
	defer n.Close()
	s := n.Shard(0)
	_, err := readOrder(s, inventory.OrderID{})
	require.NoError(t, err)
	s.leads.Store(s.leads.Load() - 1)
	_, err = readOrder(s, inventory.OrderID{})
	require.ErrorIs(t, err, ErrNotLeader)
}
