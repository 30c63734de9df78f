package inventory_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

var rewrite = flag.Bool("rewrite-golden", false, "write the golden files of the stored format anew")

var (
	someOrder = OnOrder{Order: MakeOrderID(3, opening, KeyHash{1, 2, 3}), By: "b-1"}

	someCommands = []Command{
		&Reserve{
			Tenant: "t-1", Key: "k-1", KeyHash: KeyHash{9, 8, 7}, Buyer: "b-1", Partial: true, Lines: []Line{
				{Product: "natal.rifa-1", Numbers: []uint32{1, 128, 1<<32 - 1}},
				{Product: "natal.rifa-2", Quantity: 300, Pick: PickAdjacent},
			},
		},
		&Extend{someOrder},
		&BeginPayment{someOrder, "p-1"},
		&Confirm{someOrder, "p-1"},
		&Refuse{someOrder, "p-1"},
		&Release{OnOrder{Order: someOrder.Order}},
		&Ship{someOrder},
		&Refund{OnOrder: someOrder, ReturnToStock: true, Reason: "regret"},
		&PutProduct{Product: "rifa-1", Settings: someSettings},
		&Restock{Product: "rifa-1", Count: 50, Tenant: "t-1", Key: "k-1", KeyHash: KeyHash{1}},
		&Block{Product: "rifa-1", Numbers: []uint32{5, 7}, Reason: "press"},
		&Unblock{Product: "rifa-1", Numbers: []uint32{5, 7}, Reason: "press"},
		&SetSaleState{Product: "rifa-1", State: SalePaused},
		&Attach{Consumer: "ledger"},
		&Detach{Consumer: "ledger"},
		&Acknowledge{Consumer: "ledger", Sequence: 1 << 40},
		&LowerClock{UnixMilli: opening},
	}

	someSettings = Settings{
		Name: "Rifa de Natal", Price: Money{Amount: 1990, Currency: "BRL"}, FirstNumber: 1, Count: 1_000_000,
		OpensAtUnixMilli: opening, ClosesAtUnixMilli: opening + hour, HoldSeconds: 1800, HoldMaxSeconds: 7200,
		PaymentGraceSeconds: 300, OverdueReleaseSeconds: 60, MinPerOrder: 1, MaxPerOrder: 100, MaxPerBuyer: 500,
		CaptureAtShipping: true, RefundLate: true,
		Campaign: "natal-2026",
	}

	someView = &OrderView{
		ID: someOrder.Order, Status: StatusPaying, Overdue: true, Buyer: "b-1", Payment: "p-1",
		Items: []ItemView{
			{Product: "natal.rifa-1", Numbers: []uint32{1, 128}, UnitPrice: Money{Amount: 1990, Currency: "BRL"}},
			{Product: "natal.rifa-2", Numbers: []uint32{7}, UnitPrice: Money{Amount: 5, Currency: "BRL"}},
		},
		CreatedUnixMilli: opening, ExpiresUnixMilli: opening + hour, Changed: 77,
	}

	someProduct = &ProductView{
		ID: "rifa-1", Settings: someSettings, State: SaleClosed, Halted: "a reason", Version: 9,
		Counters: Counters{Count: 10, Available: 1, Reserved: 2, Sold: 3, Blocked: 4},
	}

	someOutcomes = []*Outcome{
		{AtUnixMilli: opening, Replay: true, Order: someView, Missing: []Selection{
			{Product: "natal.rifa-1", Numbers: []uint32{5}, Quantity: 2},
		}},
		{AtUnixMilli: opening, Created: true, Product: someProduct},
		{AtUnixMilli: opening, Sequence: 12},
		{Code: CodeNumbersTaken, AtUnixMilli: opening, Refusal: &Refusal{
			Pointer: "/items/0", Detail: "why", Taken: []Selection{{Product: "x", Numbers: []uint32{1}}},
			Alternatives: []Selection{{Product: "x", Numbers: []uint32{2, 3}}}, NextExpiryUnixMilli: 1,
			Available: 2, LongestRun: 3, OpensAtUnixMilli: 4, ClosesAtUnixMilli: 5, Status: StatusPaid,
			Minimum: 6, Limit: 7, Held: 8,
		}},
	}

	someEvents = []*Event{
		{Sequence: 5, Kind: EventOrderCreated, AtUnixMilli: opening, Correlation: "c-1", Order: someView},
		{Sequence: 6, Kind: EventPriceUpdated, AtUnixMilli: opening, Product: someProduct},
	}
)

func someBatch() *Batch {
	b := &Batch{TimeUnixMilli: opening, Seed: 1 << 63}
	for i, c := range someCommands {
		b.Entries = append(b.Entries, Entry{Correlation: fmt.Sprint("c-", i), Command: c})
	}
	return b
}

// TestRoundTrip decodes what was encoded to the same value, and encodes it to the same bytes.
func TestRoundTrip(t *testing.T) {
	kinds := make(map[Kind]bool)
	for _, c := range someCommands {
		kinds[c.Kind()] = true
		encoded := AppendEntry(nil, Entry{Correlation: "c-1", Command: c})
		e, rest, err := DecodeEntry(append(encoded, "rest"...))
		require.NoError(t, err)
		require.Equal(t, "rest", string(rest))
		require.Equal(t, Entry{Correlation: "c-1", Command: c}, e)
		for n := range encoded {
			_, _, err := DecodeEntry(encoded[:n])
			require.ErrorIs(t, err, ErrMalformed, "cut at %d", n)
		}
	}
	require.Len(t, kinds, 17, "every kind has a sample")
	for _, o := range someOutcomes {
		encoded := AppendOutcome(nil, o)
		decoded, rest, err := DecodeOutcome(encoded)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, o, decoded)
	}
	for _, e := range someEvents {
		decoded, rest, err := DecodeEvent(AppendEvent(nil, e, nil), nil)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.Equal(t, *e, decoded)
	}
	product, rest, err := DecodeProductView(AppendProductView(nil, someProduct))
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, someProduct, product)
}

// TestOneForm refuses what would decode to the same value as another encoding: equal commands have
// equal bytes.
func TestOneForm(t *testing.T) {
	for _, encoded := range [][]byte{
		{byte(KindDetach), 0, 0x81, 0, 'x'},            // an overlong length
		{byte(KindAcknowledge), 0, 1, 'x', 0x80, 0},    // an overlong sequence
		append([]byte{byte(KindRefund), 0}, refund...), // a boolean of 2
	} {
		_, _, err := DecodeEntry(encoded)
		require.ErrorIs(t, err, ErrMalformed)
	}
}

var refund = append(make([]byte, 17), 2, 0) // of an order, by nobody, returned: 2, no reason

// TestBatchDamage refuses a batch with any bit flipped, cut anywhere, or of another version.
func TestBatchDamage(t *testing.T) {
	encoded := someBatch().Append(nil)
	var b Batch
	require.NoError(t, b.Decode(encoded))
	require.Equal(t, someBatch().Entries, b.Entries)
	for bit := range 8 * len(encoded) {
		damaged := bytes.Clone(encoded)
		damaged[bit/8] ^= 1 << (bit % 8)
		require.ErrorIs(t, b.Decode(damaged), ErrMalformed)
	}
	for n := range encoded {
		require.ErrorIs(t, b.Decode(encoded[:n]), ErrMalformed)
	}
	newer := bytes.Clone(encoded)
	newer[5]++
	SealBatch(newer)
	require.ErrorContains(t, b.Decode(newer), "version 3")
	unknown := AppendBatchHeader(nil, opening, 1)
	unknown = append(unknown, 99, 0)
	SealBatch(unknown)
	require.ErrorContains(t, b.Decode(unknown), "kind 99")
}

// TestGolden keeps the stored format of version 3. From the first release on, what is in the golden files
// must be read and written the same for ever: a change of format needs another version and files of its own.
func TestGolden(t *testing.T) {
	golden(t, "batch.hex", someBatch().Append(nil))
	var orders, outcomes, events []byte
	for _, e := range someEvents {
		events = AppendEvent(events, e, nil)
	}
	for _, o := range someOutcomes {
		outcomes = AppendOutcome(outcomes, o)
	}
	orders = AppendOrder(orders, someView)
	golden(t, "events.hex", events)
	golden(t, "outcomes.hex", outcomes)
	golden(t, "order.hex", orders)
	require.Equal(t, "0003505e010203000000000000000000", someOrder.Order.String())
	require.Equal(t, ShardID(6), ProductID("natal-2026.rifa-1").Shard(8))
	require.Equal(t, ShardID(6), ProductID("natal-2026").Shard(8))
	key := HashKey([]byte("secret"), "t-1", "b-1", "k-1", "rifa-1")
	require.Equal(t, "5ab9410cd385e12cc9f6f493", hex.EncodeToString(key[:]))

	s := eventful(t)
	written := golden(t, "snapshot.hex", snapshot(t, s.e))
	restored, err := Restore(0, DefaultLimits(), bytes.NewReader(written))
	require.NoError(t, err)
	require.Equal(t, s.e.Digest(), restored.Digest(), "what was written then is the same state")
}

// golden compares bytes with a golden file and returns what stands in the file.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(hex.Dump(got)), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, string(text) == hex.Dump(got), "the format of %s has changed: see -rewrite-golden", name)
	return got
}

// eventful is a small shard that has a bit of everything: all statuses, a basket, dead records,
// blocked numbers, restocks, a halted product, consumers and a backlog.
func eventful(t testing.TB) *shard {
	s := openShard(t, DefaultLimits())
	s.put("a.x", 30, func(p *Settings) { p.HoldSeconds = 60 })
	s.put("a.y", 30, func(p *Settings) { p.OverdueReleaseSeconds = 600; p.HoldSeconds = 3000 })
	s.put("fallen", 10)
	s.reserve("b-f", chosen("fallen", 1, 2))
	s.ok(&Block{Product: "fallen", Numbers: []uint32{5}})
	s.halt("fallen")
	for i, status := range []Status{
		StatusPaid, StatusShipped, StatusExpired, StatusReleased, StatusRefused, StatusRefundPending, StatusRefunded,
	} {
		o := s.reserve(BuyerID(fmt.Sprint("b-", i)), chosen("a.x", uint32(i+1)))
		switch status {
		case StatusPaid, StatusShipped, StatusRefunded:
			s.pay(o)
		case StatusExpired:
			s.wait(61 * second)
		case StatusRefused:
			s.ok(&BeginPayment{on(o), "p-1"})
			s.ok(&Refuse{on(o), "p-1"})
		default:
			s.ok(&Release{on(o)})
		}
		switch status {
		case StatusShipped:
			s.ok(&Ship{on(o)})
		case StatusRefunded:
			s.ok(&Refund{OnOrder: on(o)})
		case StatusRefundPending:
			s.reserve("b-other", chosen("a.x", uint32(i+1)))
			s.refused(CodeNumbersTaken, &Confirm{on(o), "late"})
		}
	}
	s.ok(&Attach{Consumer: "ledger"})
	s.ok(&Attach{Consumer: "mirror"})
	revived := s.reserve("b-r", chosen("a.x", 20))
	s.ok(&Release{on(revived)})
	s.ok(&Confirm{on(revived), "late"})
	s.reserve("b-basket", anyOf("a.x", 2, PickLowest), anyOf("a.y", 3, PickAdjacent))
	paying := s.reserve("b-p", chosen("a.y", 30))
	s.ok(&BeginPayment{on(paying), "p-9"})
	s.wait(3001 * second)
	overdue := s.get(paying)
	require.True(t, overdue.Overdue)
	s.reserve("b-last", chosen("a.x", 30))
	s.ok(&Restock{Product: "a.x", Count: 5, Key: "k-1"})
	s.ok(&Block{Product: "a.x", Numbers: []uint32{33, 31}, Reason: "press"})
	s.do(&Reserve{Buyer: "b-refused", Key: "k", Lines: []Line{chosen("a.x", 31)}})
	s.ok(&Acknowledge{Consumer: "ledger", Sequence: stateOf(s.e).Sequence() - 4})
	return s
}

// The fuzzers demand of every decoder that it neither panics nor hangs nor allocates far more than
// its input is worth, and that what it accepts is the one encoding of its value.

func FuzzDecodeEntry(f *testing.F) {
	for _, c := range someCommands {
		f.Add(AppendEntry(nil, Entry{Correlation: "c-1", Command: c}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, rest, err := DecodeEntry(data)
		if err != nil {
			return
		}
		require.Equal(t, data[:len(data)-len(rest)], AppendEntry(nil, e))
		if e.Command.Check() == nil {
			_ = Label(e.Command)
			SealKey(e.Command, []byte("secret"))
		}
	})
}

func FuzzBatch(f *testing.F) {
	f.Add(someBatch().Append(nil)[22:])
	f.Fuzz(func(t *testing.T, entries []byte) {
		data := append(AppendBatchHeader(nil, opening, 1), entries...)
		SealBatch(data)
		var b Batch
		if b.Decode(data) == nil {
			require.Equal(t, data, b.Append(nil))
			again := Batch{Entries: b.Entries}
			for i := range b.Entries {
				require.Equal(t, again.Fingerprint(i), b.Fingerprint(i))
			}
		}
	})
}

func FuzzOutcome(f *testing.F) {
	for _, o := range someOutcomes {
		f.Add(AppendOutcome(nil, o))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if o, rest, err := DecodeOutcome(data); err == nil {
			require.Equal(t, data[:len(data)-len(rest)], AppendOutcome(nil, o))
		}
	})
}

func FuzzOrder(f *testing.F) {
	f.Add(AppendOrder(nil, someView))
	f.Fuzz(func(t *testing.T, data []byte) {
		if o, rest, err := DecodeOrder(data); err == nil {
			require.Equal(t, data[:len(data)-len(rest)], AppendOrder(nil, o))
		}
	})
}

func FuzzEvent(f *testing.F) {
	for _, e := range someEvents {
		f.Add(AppendEvent(nil, e, nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, rest, err := DecodeEvent(data, nil); err == nil {
			require.Equal(t, data[:len(data)-len(rest)], AppendEvent(nil, &e, nil))
		}
	})
}
