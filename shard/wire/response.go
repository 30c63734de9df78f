package wire

import (
	"encoding/binary"
	"fmt"

	"numera/engine/inventory"
)

// What a response answers: the first byte behind its id. The numbers travel.
const (
	answerFailure byte = iota
	answerOutcome
	answerNumbers
	answerOrders
	answerEvents
	answerScan
)

// The least bytes that these take. Too low is safe: it bounds what a forged count allocates.
const (
	minResponse = 8 + 1 + 2
	minOrder    = 16 + 8
	minEvent    = 1 + 1 // one that tells of the change before
)

// AppendResponse appends one item to a message of KindResponses.
func AppendResponse(buf []byte, r *Response) []byte {
	return appendAnswer(binary.BigEndian.AppendUint64(buf, r.ID), r)
}

// appendAnswer appends a response without its id.
func appendAnswer(buf []byte, r *Response) []byte {
	switch {
	case r.Failure != NoFailure:
		return appendMilliseconds(append(buf, answerFailure, byte(r.Failure)), r.RetryAfter)
	case r.Outcome != nil:
		return inventory.AppendOutcome(append(buf, answerOutcome), r.Outcome)
	case r.Numbers != nil:
		n := r.Numbers
		buf = binary.AppendVarint(append(buf, answerNumbers), n.AtUnixMilli)
		buf = binary.AppendUvarint(buf, n.Version)
		buf = binary.AppendUvarint(buf, uint64(n.From))
		buf = binary.AppendUvarint(buf, uint64(n.To))
		return appendBytes(buf, n.Taken)
	case r.Orders != nil:
		buf = binary.AppendVarint(append(buf, answerOrders), r.Orders.AtUnixMilli)
		buf = binary.AppendUvarint(buf, r.Orders.Next)
		return appendOrders(buf, r.Orders.Orders)
	case r.Events != nil:
		buf = appendBool(append(buf, answerEvents), r.Events.Trimmed)
		buf = binary.AppendUvarint(buf, r.Events.Last)
		buf = binary.AppendUvarint(buf, uint64(len(r.Events.Events)))
		var before *inventory.Event
		for i := range r.Events.Events {
			buf = inventory.AppendEvent(buf, &r.Events.Events[i], before)
			before = &r.Events.Events[i]
		}
		return buf
	case r.Scan != nil:
		buf = binary.AppendUvarint(append(buf, answerScan), r.Scan.Sequence)
		buf = appendBytes(buf, r.Scan.Next)
		return appendOrders(buf, r.Scan.Orders)
	}
	panic("wire: a response needs a failure or an answer")
}

// Responses decodes the items of a message of KindResponses into responses[:0].
func (f Frame) Responses(responses []Response) ([]Response, error) {
	r, err := f.read(KindResponses, minResponse, false)
	if err != nil {
		return nil, err
	}
	responses = responses[:0]
	for i := range f.count {
		response := Response{ID: r.id()}
		r.answer(&response)
		if r.failed {
			return nil, fmt.Errorf("%w: response %d of %d", ErrMalformed, i, f.count)
		}
		responses = append(responses, response)
	}
	if len(r.buf) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the responses", ErrMalformed, len(r.buf))
	}
	return responses, nil
}

func (r *reader) answer(into *Response) {
	switch r.byte() {
	case answerFailure:
		into.Failure = Failure(r.byte())
		if into.Failure == NoFailure || into.Failure >= failureCount {
			r.fail()
		}
		into.RetryAfter = r.milliseconds()
	case answerOutcome:
		into.Outcome = decode(r, inventory.DecodeOutcome)
	case answerNumbers:
		into.Numbers = &Numbers{
			AtUnixMilli: r.varint(), Version: r.uvarint(),
			From: r.uint32(), To: r.uint32(), Taken: r.bytes(),
		}
	case answerOrders:
		into.Orders = &OrdersPage{AtUnixMilli: r.varint(), Next: r.uvarint(), Orders: r.orders()}
	case answerEvents:
		into.Events = &Events{Trimmed: r.bool(), Last: r.uvarint(), Events: r.events()}
	case answerScan:
		into.Scan = &Scan{
			Sequence: r.uvarint(), Next: append([]byte(nil), r.text()...), Orders: r.orders(),
		}
	default:
		r.fail()
	}
}

// eventsAtOnce is how many events are made room for before they are seen: a forged count is not
// worth more.
const eventsAtOnce = 4096

func (r *reader) events() []inventory.Event {
	n := r.count(minEvent)
	if n == 0 {
		return nil
	}
	events := make([]inventory.Event, 0, min(n, eventsAtOnce))
	var before *inventory.Event
	for i := range n {
		event := decode(r, func(buf []byte) (inventory.Event, []byte, error) {
			return inventory.DecodeEvent(buf, before)
		})
		if r.failed {
			return nil
		}
		events = append(events, event)
		before = &events[i]
	}
	return events
}
