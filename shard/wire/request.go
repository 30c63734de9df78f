package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"numera/engine/inventory"
)

// What a request asks for: the first byte of its body. The numbers travel.
const (
	askCommand byte = iota
	askOrder
	askProduct
	askNumbers
	askOrders
	askEvents
	askScan
)

// minRequest is the least bytes that a request takes: id, remaining, what it asks for, two more.
const minRequest = 8 + 1 + 1 + 2

// AppendRequest appends one item to a message of KindRequests.
func AppendRequest(buf []byte, r *Request) []byte {
	buf = AppendRequestHeader(buf, r.ID, r.Remaining)
	if r.Entry != nil {
		return AppendCommand(buf, *r.Entry)
	}
	return AppendQuery(buf, r.Query)
}

// AppendRequestHeader appends what stands before the body of a request: whoever sends one request
// several times encodes its body once, by AppendCommand or AppendQuery.
func AppendRequestHeader(buf []byte, id uint64, remaining time.Duration) []byte {
	return appendMilliseconds(binary.BigEndian.AppendUint64(buf, id), remaining)
}

// AppendCommand appends the body of a request that is a command.
func AppendCommand(buf []byte, e inventory.Entry) []byte {
	return inventory.AppendEntry(append(buf, askCommand), e)
}

// AppendQuery appends the body of a request that is a query.
func AppendQuery(buf []byte, q Query) []byte { return q.appendQuery(buf) }

// Requests decodes the items of a message of KindRequests into requests[:0].
func (f Frame) Requests(requests []Request) ([]Request, error) {
	r, err := f.read(KindRequests, minRequest, false)
	if err != nil {
		return nil, err
	}
	requests = requests[:0]
	var entries []inventory.Entry // one allocation for all commands of the message
	for i := range f.count {
		q := Request{ID: r.id(), Remaining: r.milliseconds()}
		if ask := r.byte(); ask == askCommand {
			if entries == nil {
				entries = make([]inventory.Entry, 0, f.count-i)
			}
			entries = append(entries, decode(&r, inventory.DecodeEntry))
			q.Entry = &entries[len(entries)-1]
		} else {
			q.Query = r.query(ask)
		}
		if r.failed {
			return nil, fmt.Errorf("%w: request %d of %d", ErrMalformed, i, f.count)
		}
		requests = append(requests, q)
	}
	if len(r.buf) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the requests", ErrMalformed, len(r.buf))
	}
	return requests, nil
}

func (r *reader) query(ask byte) Query {
	switch ask {
	case askOrder:
		var q OrderQuery
		copy(q.Order[:], r.take(len(q.Order)))
		q.By = inventory.BuyerID(r.string())
		return q
	case askProduct:
		return ProductQuery{Product: r.product(), Fresh: r.bool()}
	case askNumbers:
		return NumbersQuery{Product: r.product(), From: r.uint32(), Limit: r.uint32()}
	case askOrders:
		return OrdersQuery{Product: r.product(), After: r.uvarint(), Limit: r.uint32()}
	case askEvents:
		return EventsQuery{After: r.uvarint(), Limit: r.uint32()}
	case askScan:
		return ScanQuery{After: append([]byte(nil), r.text()...), Limit: r.uint32()}
	}
	r.fail()
	return nil
}

func (r *reader) product() inventory.ProductID { return inventory.ProductID(r.string()) }

func (q OrderQuery) appendQuery(buf []byte) []byte {
	return appendString(append(append(buf, askOrder), q.Order[:]...), string(q.By))
}

func (q ProductQuery) appendQuery(buf []byte) []byte {
	return appendBool(appendString(append(buf, askProduct), string(q.Product)), q.Fresh)
}

func (q NumbersQuery) appendQuery(buf []byte) []byte {
	buf = appendString(append(buf, askNumbers), string(q.Product))
	buf = binary.AppendUvarint(buf, uint64(q.From))
	return binary.AppendUvarint(buf, uint64(q.Limit))
}

func (q OrdersQuery) appendQuery(buf []byte) []byte {
	buf = appendString(append(buf, askOrders), string(q.Product))
	buf = binary.AppendUvarint(buf, q.After)
	return binary.AppendUvarint(buf, uint64(q.Limit))
}

func (q EventsQuery) appendQuery(buf []byte) []byte {
	buf = binary.AppendUvarint(append(buf, askEvents), q.After)
	return binary.AppendUvarint(buf, uint64(q.Limit))
}

func (q ScanQuery) appendQuery(buf []byte) []byte {
	buf = appendBytes(append(buf, askScan), q.After)
	return binary.AppendUvarint(buf, uint64(q.Limit))
}
