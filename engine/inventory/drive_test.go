package inventory_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"numera/engine"
	. "numera/engine/inventory"
)

// opening is when the tests begin: Friday, 2026-05-01, 12:00 UTC.
const opening = int64(1_777_636_800_000)

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// shard drives an engine as a shard does: it checks commands, seals their keys, and sends them
// encoded. It fails the test when the engine breaks what must always hold.
type shard struct {
	t   testing.TB
	e   *engine.Engine
	now int64 // the time of the next batch, in Unix milliseconds
	n   int   // batches and keys so far
}

func openShard(t testing.TB, limits Limits) *shard {
	e := engine.New(engine.Config{Limits: limits})
	t.Cleanup(e.Close)
	return &shard{t: t, e: e, now: opening}
}

// batch encodes commands and decodes them again, as they would come out of the log.
func (s *shard) batch(commands ...Command) *Batch {
	s.n++
	written := Batch{TimeUnixMilli: s.now, Seed: uint64(s.n)}
	for _, c := range commands {
		e, _, err := DecodeEntry(AppendEntry(nil, Entry{Correlation: fmt.Sprint("c-", s.n), Command: c}))
		require.NoError(s.t, err)
		SealKey(e.Command, []byte("a secret of the cluster")) // of a copy: the caller may ask again
		written.Entries = append(written.Entries, e)
	}
	read := new(Batch)
	require.NoError(s.t, read.Decode(written.Append(nil)))
	return read
}

// apply applies commands in one batch, all of them of good form.
func (s *shard) apply(commands ...Command) []*Outcome {
	for _, c := range commands {
		require.Nil(s.t, c.Check(), "%+v", c)
	}
	return s.e.Apply(s.batch(commands...))
}

// do applies one command in a batch of its own, if its form is good.
func (s *shard) do(c Command) *Outcome {
	if refusal := c.Check(); refusal != nil {
		return refusal
	}
	return s.apply(c)[0]
}

func (s *shard) ok(c Command) *Outcome {
	s.t.Helper()
	o := s.do(c)
	require.Equal(s.t, CodeOK, o.Code, "%s: %+v", o.Code, o.Refusal)
	return o
}

func (s *shard) refused(code Code, c Command) *Outcome {
	s.t.Helper()
	o := s.do(c)
	require.Equal(s.t, code, o.Code, "%s instead of %s: %+v", o.Code, code, o.Refusal)
	require.NotNil(s.t, o.Refusal)
	return o
}

// wait lets time pass and sends an empty batch, as an idle leader does.
func (s *shard) wait(milli int64) {
	s.now += milli
	s.apply()
}

// put creates or changes a product of numbers 1 to count, at 19.90 BRL.
func (s *shard) put(id ProductID, count uint32, change ...func(*Settings)) *Outcome {
	s.t.Helper()
	return s.ok(&PutProduct{Product: id, Settings: settings(count, change...)})
}

func settings(count uint32, change ...func(*Settings)) Settings {
	settings := DefaultSettings()
	settings.Name, settings.Count = "Rifa", count
	settings.Price = Money{Amount: 1990, Currency: "BRL"}
	for _, c := range change {
		c(&settings)
	}
	return settings
}

// key is a fresh idempotency key.
func (s *shard) key() string {
	s.n++
	return fmt.Sprint("key-", s.n)
}

// hashOf is as uniform as the hash of a key is.
func hashOf(n int) KeyHash {
	hash := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(n)))
	return KeyHash(hash[:])
}

// chosen and anyOf are the two kinds of lines.
func chosen(id ProductID, numbers ...uint32) Line { return Line{Product: id, Numbers: numbers} }

func anyOf(id ProductID, n uint32, pick Pick) Line {
	return Line{Product: id, Quantity: n, Pick: pick}
}

// order asks for lines under a fresh key.
func (s *shard) order(buyer BuyerID, lines ...Line) *Reserve {
	return &Reserve{Buyer: buyer, Key: s.key(), Lines: lines}
}

func (s *shard) reserve(buyer BuyerID, lines ...Line) *OrderView {
	s.t.Helper()
	return s.ok(s.order(buyer, lines...)).Order
}

func on(o *OrderView) OnOrder { return OnOrder{Order: o.ID} }

func (s *shard) pay(o *OrderView) *OrderView {
	s.t.Helper()
	return s.ok(&Confirm{OnOrder: on(o), Payment: "p-1"}).Order
}

func (s *shard) get(o *OrderView) *OrderView {
	s.t.Helper()
	read := s.e.Order(on(o))
	require.Equal(s.t, CodeOK, read.Code)
	return read.Order
}

func (s *shard) status(o *OrderView) Status {
	s.t.Helper()
	return s.get(o).Status
}

// orders scans all orders, by id.
func (s *shard) orders() map[OrderID]*OrderView { return scan(s.t, s.e) }

// tailOf reads an engine's outbox after a sequence.
func tailOf(e *engine.Engine, after uint64, limit int) (events []Event, last uint64, trimmed bool) {
	tail, last, trimmed := e.Tail(after, limit)
	return slices.Collect(tail.All()), last, trimmed
}

func scan(t testing.TB, e *engine.Engine) map[OrderID]*OrderView {
	all := make(map[OrderID]*OrderView)
	var c ScanCursor
	for more := true; more; {
		var orders []*OrderView
		orders, c, more, _ = e.Scan(c, 100)
		for _, o := range orders {
			if all[o.ID] != nil {
				require.Fail(t, "an order is scanned twice", "%s", o.ID)
			}
			all[o.ID] = o
		}
	}
	return all
}

// products are the views of all products, by id.
func products(e *engine.Engine) map[ProductID]*ProductView {
	all := make(map[ProductID]*ProductView)
	e.EachProduct(func(p *ProductView) { all[p.ID] = p })
	return all
}

// verify demands that no number has two owners and that counters are the sums over the orders.
func (s *shard) verify() {
	s.t.Helper()
	type number struct {
		product ProductID
		n       uint32
	}
	owners := make(map[number]OrderID)
	sums := make(map[ProductID]*Counters)
	views := products(s.e)
	for id := range views {
		sums[id] = &Counters{}
	}
	for _, o := range s.orders() {
		if !o.Status.Live() && !o.Status.Sold() {
			continue
		}
		for _, item := range o.Items {
			sum := &sums[item.Product].Reserved
			if o.Status.Sold() {
				sum = &sums[item.Product].Sold
			}
			*sum += uint32(len(item.Numbers))
			for _, n := range item.Numbers {
				if other, twice := owners[number{item.Product, n}]; twice {
					require.Fail(s.t, "a number has two owners", "%s %d: %s and %s", item.Product, n, other, o.ID)
				}
				owners[number{item.Product, n}] = o.ID
			}
		}
	}
	for id, p := range views {
		if p.Halted != "" {
			continue
		}
		sum := *sums[id]
		sum.Count, sum.Blocked = p.Settings.Count, p.Counters.Blocked
		sum.Available = sum.Count - sum.Reserved - sum.Sold - sum.Blocked
		require.Equal(s.t, sum, p.Counters, "%s: counters are the sums over the orders", id)
	}
}

// snapshot is the encoded state.
func snapshot(t testing.TB, e *engine.Engine) []byte {
	var buf bytes.Buffer
	n, err := e.Freeze().WriteTo(&buf)
	require.NoError(t, err)
	require.Equal(t, int64(buf.Len()), n)
	return buf.Bytes()
}

// restored is another shard of the same state, by way of a snapshot.
func (s *shard) restored(limits Limits, actors int) *shard {
	s.t.Helper()
	e := engine.New(engine.Config{Limits: limits, Actors: actors})
	s.t.Cleanup(e.Close)
	require.NoError(s.t, e.Restore(bytes.NewReader(snapshot(s.t, s.e))))
	require.Equal(s.t, s.e.Digest(), e.Digest(), "restored to the digest it was written with")
	return &shard{t: s.t, e: e, now: s.now, n: s.n}
}

// sameReads demands that every read of two engines answers the same.
func sameReads(t testing.TB, a, b *engine.Engine) {
	t.Helper()
	require.Equal(t, products(a), products(b))
	require.Equal(t, scan(t, a), scan(t, b))
	require.Equal(t, a.Stats(), b.Stats())
	require.Equal(t, a.Clock(), b.Clock())
	for id, p := range products(a) {
		ours, _ := a.Placed(id, 0)
		theirs, _ := b.Placed(id, 0)
		require.Equal(t, ours, theirs)
		if p.Halted == "" {
			require.Equal(t, taken(t, a, id), taken(t, b, id))
		}
	}
	after := uint64(0)
	ours, last, trimmed := tailOf(a, after, 1<<20)
	if trimmed {
		after = last - uint64(a.Stats().Backlog)
		ours, last, trimmed = tailOf(a, after, 1<<20)
	}
	require.False(t, trimmed)
	theirs, theirLast, trimmed := tailOf(b, after, 1<<20)
	require.False(t, trimmed)
	require.Equal(t, ours, theirs)
	require.Equal(t, last, theirLast)
}

// taken lists the numbers of a product that are not free, as of the last batch.
func taken(t testing.TB, e *engine.Engine, id ProductID) []uint32 {
	t.Helper()
	numbers := make([]uint32, 0)
	p := stateOf(e).Product(id)
	require.NotNil(t, p)
	view := p.Standing().View()
	for _, run := range p.Taken().AppendRanges(nil, 0, view.Settings.Count-1) {
		for offset := run[0]; offset <= run[1]; offset++ {
			numbers = append(numbers, offset+view.Settings.FirstNumber)
		}
	}
	return numbers
}

// stateOf reaches into an engine, past what it publishes only now and then, and so that a test can
// plant what should never be. Nothing else may use the engine meanwhile.
func stateOf(e *engine.Engine) *State {
	return (*State)(reflect.ValueOf(e).Elem().FieldByName("state").UnsafePointer())
}
