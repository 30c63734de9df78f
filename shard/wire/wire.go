// Package wire is what gateways and shards say to each other over NATS.
//
// A gateway gathers the requests to one shard that arrive together into one message to the
// shard's [Subject]; the shard answers on the message's reply subject, in one or more messages,
// in any order, by request id. What does not fit into one message is split into parts.
//
// A request that got no answer may have acted. Every [Failure] but [OutcomeUnknown] means that it
// has not. A status message "no responders" from NATS means it for all requests of a message.
//
// Frames are strict. A message is
//
//	checksum  4 bytes  CRC-32C of all that follows
//	version   1 byte   [Version]
//	kind      1 byte   [Kind]
//	count     2 bytes  how many items follow, at least 1
//	items              to the end of the message
//
// in big endian; NATS keeps the boundaries of messages, so no length is needed. Every value has
// exactly one encoding: what decodes, encodes to the same bytes again. Items are not delimited:
// one that does not decode refuses its whole message, since the ids of those behind it are not
// known. A shard answers nothing to such a message, but logs and counts it, and its requests
// stay unanswered; a gateway has to keep such a request out, see [inventory.Command] Check and
// the bounds of [Request]. Decoded values share no memory with the message, [Part] excepted.
//
// To read a message, [Open] it and call the method of the frame's kind. To write requests: Begin,
// append, Seal. To write responses: [Packer].
package wire

import (
	"strconv"
	"time"

	"numera/engine/inventory"
)

// Subject is where the leader of a shard takes its requests.
func Subject(shard inventory.ShardID) string {
	return "numera.shard." + strconv.Itoa(int(shard))
}

// InfoSubject is where every node answers an empty request with [AppendInfo].
const InfoSubject = "numera.cluster.info"

// Info is what a gateway has to know of a cluster before it can route.
type Info struct {
	Cluster string // the cluster's id, made at bootstrap, ≤ MaxText bytes
	Shards  uint16 // fixed at bootstrap, at least 1
}

// MaxText bounds the texts of queries and of Info, in bytes.
const MaxText = 255

// Bounds of the texts of a command that its Check does not look at, in bytes. A command beyond
// them does not decode.
const (
	MaxCorrelation = 128
	MaxTenant      = 255
	MaxKey         = 255
)

// Request is one command or query for a shard.
type Request struct {
	ID uint64 // unique among the unanswered requests of the message's reply subject

	// Remaining is how long the asker will still wait, in whole milliseconds on the wire, at most
	// MaxRemaining. What is left over when the shard would propose it decides: an expired request
	// does nothing.
	Remaining time.Duration

	// Exactly one of the two is set.
	Entry *inventory.Entry // a command; its idempotency key not yet sealed
	Query Query
}

// MaxRemaining bounds Request.Remaining and Response.RetryAfter.
const MaxRemaining = time.Hour

// Query is a read.
type Query interface{ appendQuery(buf []byte) []byte }

// The queries, and what answers them. A Limit is not checked by decoding, but by the shard, which
// may also give less than it: no answer may be larger than MaxBody.
type (
	// OrderQuery reads an order linearizably: an Outcome with Order, or CodeOrderNotFound, also
	// when By is set and is not its buyer.
	OrderQuery struct {
		Order inventory.OrderID
		By    inventory.BuyerID
	}
	// ProductQuery reads a product: an Outcome with Product, stale by at most a second and never
	// waiting behind commands, or, with Fresh, linearizable.
	ProductQuery struct {
		Product inventory.ProductID
		Fresh   bool
	}
	// NumbersQuery reads the taken numbers from From on, Limit numbers at the most, 0 for all:
	// a Numbers, or an Outcome with CodeProductNotFound. Stale like a ProductQuery.
	NumbersQuery struct {
		Product inventory.ProductID
		From    uint32
		Limit   uint32
	}
	// OrdersQuery lists the orders of a product by age from After on: an OrdersPage, or an
	// Outcome with CodeProductNotFound.
	OrdersQuery struct {
		Product inventory.ProductID
		After   uint64 // OrdersPage.Next of the page before, 0 at the start
		Limit   uint32 // 1 to 1000
	}
	// EventsQuery pulls from the outbox, linearizably: an Events.
	EventsQuery struct {
		After uint64 // the sequence of the last event seen
		Limit uint32 // 1 to 10000
	}
	// ScanQuery reads the orders of the shard, of all products, in no particular order: a Scan.
	// Each carries the sequence of its last change; together with the events after Sequence
	// they are the state.
	ScanQuery struct {
		After []byte // Scan.Next of the part before, empty at the start, ≤ MaxText bytes
		Limit uint32 // 1 to 10000
	}
)

// Response answers one request: a Failure, or exactly one of the pointers.
type Response struct {
	ID         uint64
	Failure    Failure
	RetryAfter time.Duration // with a Failure: when it may be worth while, in whole milliseconds

	Outcome *inventory.Outcome
	Numbers *Numbers
	Orders  *OrdersPage
	Events  *Events
	Scan    *Scan
}

// Failure is why a request has no outcome.
type Failure uint8

// The failures. Their numbers travel.
const (
	NoFailure      Failure = iota
	NotLeader              // nothing was done: ask again, another node may lead by now
	Overloaded             // nothing was done: the queue is full, or the request waited too long
	Expired                // nothing was done: Remaining ran out before it was proposed
	Unavailable            // nothing was done: the shard is starting, stopping or short of disk
	Malformed              // nothing was done: this request makes no sense to the shard
	OutcomeUnknown         // it was proposed, and what became of it is not known
	failureCount
)

// Numbers are the taken numbers among [From, To], at one version of the product.
type Numbers struct {
	AtUnixMilli int64
	Version     uint64
	From, To    uint32
	Taken       []byte // absolute numbers, in roaring's portable format
}

// OrdersPage is a page of a product's orders, oldest first, all statuses.
type OrdersPage struct {
	AtUnixMilli int64
	Orders      []*inventory.OrderView
	Next        uint64 // where the next page starts; 0: this was the last
}

// Events is a stretch of a shard's outbox, without a gap.
type Events struct {
	Trimmed bool // what followed After is no longer kept: scan again
	Events  []inventory.Event
	Last    uint64 // the newest sequence of the shard: what a consumer lags behind
}

// Scan is a part of a shard's orders.
type Scan struct {
	Sequence uint64 // at least every event up to it is contained in all parts of the scan
	Orders   []*inventory.OrderView
	Next     []byte // empty: this was the last part; ≤ MaxText bytes
}
