package wire

import (
	"time"

	"numera/engine/inventory"
)

var (
	sampleOrderID = inventory.MakeOrderID(3, 1_790_000_000_000, inventory.KeyHash{1, 2, 3, 11: 12})
	sampleOnOrder = inventory.OnOrder{Order: sampleOrderID, By: "b-123"}
)

// sampleSettings has no two equal members, so that swapped ones would show.
func sampleSettings() inventory.Settings {
	return inventory.Settings{
		Name: "Rifa 1", Price: inventory.Money{Amount: 1990, Currency: "BRL"},
		FirstNumber: 7, Count: 1_000_000,
		OpensAtUnixMilli: 1_790_000_000_001, ClosesAtUnixMilli: 1_790_000_000_002,
		HoldSeconds: 1800, HoldMaxSeconds: 7200, PaymentGraceSeconds: 300,
		OverdueReleaseSeconds: 60, MinPerOrder: 2, MaxPerOrder: 100, MaxPerBuyer: 200,
		Campaign: "natal",
	}
}

// sampleCommands has one command of every kind.
func sampleCommands() []inventory.Command {
	return []inventory.Command{
		&inventory.Reserve{
			Tenant: "t-1", Key: "k-1", KeyHash: inventory.KeyHash{9}, Buyer: "b-123",
			Lines: []inventory.Line{
				{Product: "natal-2026.rifa-1", Numbers: []uint32{17, 4271}},
				{Product: "natal-2026.rifa-2", Quantity: 3, Pick: inventory.PickAdjacent},
			},
			Partial: true,
		},
		&inventory.Extend{OnOrder: sampleOnOrder},
		&inventory.Release{OnOrder: sampleOnOrder},
		&inventory.BeginPayment{OnOrder: sampleOnOrder, Payment: "p-1"},
		&inventory.Confirm{OnOrder: sampleOnOrder, Payment: "p-2"},
		&inventory.Refuse{OnOrder: sampleOnOrder, Payment: "p-3"},
		&inventory.Ship{OnOrder: sampleOnOrder},
		&inventory.Refund{OnOrder: sampleOnOrder, ReturnToStock: true, Reason: "torn"},
		&inventory.PutProduct{Product: "rifa-1", Settings: sampleSettings()},
		&inventory.Restock{
			Product: "rifa-1", Count: 50, Tenant: "t-1", Key: "k-2",
			KeyHash: inventory.KeyHash{8},
		},
		&inventory.Block{Product: "rifa-1", Numbers: []uint32{1, 300}, Reason: "damaged"},
		&inventory.Unblock{Product: "rifa-1", Numbers: []uint32{300}, Reason: "found"},
		&inventory.SetSaleState{Product: "rifa-1", State: inventory.SalePaused},
		&inventory.Attach{Consumer: "orders"},
		&inventory.Detach{Consumer: "orders"},
		&inventory.Acknowledge{Consumer: "orders", Sequence: 1 << 40},
		&inventory.LowerClock{UnixMilli: 1_790_000_000_003},
	}
}

// sampleQueries has one query of every type.
func sampleQueries() []Query {
	return []Query{
		OrderQuery{Order: sampleOrderID, By: "b-123"},
		ProductQuery{Product: "rifa-1", Fresh: true},
		NumbersQuery{Product: "rifa-1", From: 1 << 31, Limit: 1_000_000},
		OrdersQuery{Product: "rifa-1", After: 1 << 50, Limit: 1000},
		EventsQuery{After: 1 << 51, Limit: 10_000},
		ScanQuery{After: []byte{0, 255}, Limit: 77},
		ScanQuery{Limit: 1},
	}
}

func sampleRequests() []Request {
	var requests []Request
	for i, command := range sampleCommands() {
		entry := inventory.Entry{Correlation: "c-1", Command: command}
		requests = append(requests, Request{
			ID: uint64(i), Remaining: time.Duration(i) * time.Second, Entry: &entry,
		})
	}
	for i, query := range sampleQueries() {
		requests = append(requests, Request{
			ID: 1<<63 + uint64(i), Remaining: 1234 * time.Millisecond, Query: query,
		})
	}
	return requests
}

func sampleOrder() *inventory.OrderView {
	return &inventory.OrderView{
		ID: sampleOrderID, Status: inventory.StatusPaying, Overdue: true, Buyer: "b-123",
		Payment: "p-1",
		Items: []inventory.ItemView{{
			Product: "rifa-1", Numbers: []uint32{9, 17, 88},
			UnitPrice: inventory.Money{Amount: 1990, Currency: "BRL"},
		}},
		CreatedUnixMilli: 1_790_000_000_004, ExpiresUnixMilli: 1_790_000_000_005, Changed: 99,
	}
}

func sampleProduct() *inventory.ProductView {
	return &inventory.ProductView{
		ID: "rifa-1", Settings: sampleSettings(), State: inventory.SaleClosed, Halted: "counters",
		Counters: inventory.Counters{Count: 10, Available: 1, Reserved: 2, Sold: 3, Blocked: 4},
		Version:  12,
	}
}

func sampleRefusal() *inventory.Outcome {
	return &inventory.Outcome{
		Code: inventory.CodeNumbersTaken, AtUnixMilli: 1_790_000_000_006,
		Refusal: &inventory.Refusal{
			Pointer: "/items/0", Detail: "taken",
			Taken:               []inventory.Selection{{Product: "rifa-1", Numbers: []uint32{17}}},
			Alternatives:        []inventory.Selection{{Product: "rifa-1", Numbers: []uint32{18}}},
			NextExpiryUnixMilli: 1, Available: 2, LongestRun: 3, OpensAtUnixMilli: 4,
			ClosesAtUnixMilli: 5, Status: inventory.StatusPaid, Minimum: 6, Limit: 7, Held: 8,
		},
	}
}

func sampleResponses() []Response {
	responses := []Response{
		{Outcome: &inventory.Outcome{
			AtUnixMilli: 1_790_000_000_007, Replay: true, Order: sampleOrder(),
			Missing: []inventory.Selection{{Product: "rifa-1", Quantity: 2}},
		}},
		{Outcome: &inventory.Outcome{Created: true, Product: sampleProduct(), Sequence: 5}},
		{Outcome: sampleRefusal()},
		{Numbers: &Numbers{
			AtUnixMilli: 1_790_000_000_008, Version: 1 << 40, From: 7, To: 1_000_006,
			Taken: []byte{0x3a, 0x30, 0, 0, 0, 0, 0, 0},
		}},
		{Numbers: &Numbers{}},
		{Orders: &OrdersPage{
			AtUnixMilli: -1, Orders: []*inventory.OrderView{sampleOrder(), sampleOrder()},
			Next: 1 << 60,
		}},
		{Orders: &OrdersPage{}},
		{Events: &Events{Last: 3, Events: []inventory.Event{
			{
				Sequence: 1, Kind: inventory.EventPaymentStarted, AtUnixMilli: 4,
				Correlation: "c-1", Order: sampleOrder(),
			},
			{
				Sequence: 2, Kind: inventory.EventProductChanged, AtUnixMilli: 5,
				Correlation: "c-2", Product: sampleProduct(),
			},
		}}},
		{Events: &Events{Trimmed: true, Last: 1 << 40}},
		{Scan: &Scan{
			Sequence: 1 << 41, Orders: []*inventory.OrderView{sampleOrder()}, Next: []byte{1, 2},
		}},
		{Scan: &Scan{}},
	}
	for failure := NoFailure + 1; failure < failureCount; failure++ {
		responses = append(responses, Response{
			Failure: failure, RetryAfter: time.Duration(failure) * 100 * time.Millisecond,
		})
	}
	for i := range responses {
		responses[i].ID = 1000 + uint64(i)
	}
	return responses
}

func encodeRequests(requests []Request) []byte {
	buf := Begin(nil, KindRequests)
	for i := range requests {
		buf = AppendRequest(buf, &requests[i])
	}
	Seal(buf, len(requests))
	return buf
}

func encodeResponses(responses []Response) []byte {
	buf := Begin(nil, KindResponses)
	for i := range responses {
		buf = AppendResponse(buf, &responses[i])
	}
	Seal(buf, len(responses))
	return buf
}

var (
	samplePart = Part{ID: 1 << 40, Number: 300, More: true, Bytes: []byte("a piece")}
	sampleInfo = Info{Cluster: "6f1c", Shards: 8}
)

// sampleMessages has one message of every kind.
func sampleMessages() map[string][]byte {
	return map[string][]byte{
		"requests":  encodeRequests(sampleRequests()),
		"responses": encodeResponses(sampleResponses()),
		"part":      AppendPart(nil, samplePart),
		"info":      AppendInfo(nil, sampleInfo),
	}
}
