package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// MaxMessage bounds what a Packer makes, in bytes: well below the 1 MiB that NATS servers allow
// by default.
const MaxMessage = 512 << 10

// MaxBody bounds one answer, in bytes: the taken numbers of the largest product are 12.5 MB.
const MaxBody = 16 << 20

// Packer writes responses into messages of at most MaxMessage bytes, several into one where they
// fit, one in several parts where it does not. They must all be answers to one message of requests,
// and go out on its reply subject in the order given. It keeps its buffers from one use to the
// next. The zero value is ready; one goroutine at a time may use it.
type Packer struct {
	message []byte
	count   int // responses in message
	item    []byte
}

// kept is the capacity above which a Packer gives a buffer back.
const kept = 2 * MaxMessage

// Add encodes a response, of which it keeps nothing, and gives send the messages that have become
// full. send must not keep the bytes, as nats.Conn.Publish does not; its error is returned, and the
// message is lost. An answer larger than MaxBody goes out as Malformed instead, so that its asker
// does not wait, and ErrTooLarge is returned.
func (p *Packer) Add(r *Response, send func(message []byte) error) (err error) {
	if p.count == 0 {
		p.message = Begin(p.message[:0], KindResponses)
	}
	before := len(p.message)
	p.message = AppendResponse(p.message, r)
	if size := len(p.message) - before; size > MaxBody {
		err = fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
		p.message = AppendResponse(p.message[:before], &Response{ID: r.ID, Failure: Malformed})
	}
	if len(p.message) <= MaxMessage { // so that count ≤ MaxItems: see minResponse
		p.count++
		return err
	}
	p.item = append(p.item[:0], p.message[before:]...)
	p.message = p.message[:before]
	defer p.shrink()
	if failed := p.flush(send); failed != nil {
		return failed
	}
	if HeaderSize+len(p.item) > MaxMessage {
		return errors.Join(err, p.split(r.ID, send))
	}
	p.message = append(Begin(p.message[:0], KindResponses), p.item...)
	p.count = 1
	return err
}

// Flush gives send the message that is not full yet, if there is one.
func (p *Packer) Flush(send func(message []byte) error) error {
	defer p.shrink()
	return p.flush(send)
}

func (p *Packer) flush(send func(message []byte) error) error {
	if p.count == 0 {
		return nil
	}
	Seal(p.message, p.count)
	p.count = 0
	return send(p.message)
}

// split sends p.item, which begins with its id, in parts made in p.message.
func (p *Packer) split(id uint64, send func([]byte) error) error {
	const room = MaxMessage - HeaderSize - partHeader
	answer := p.item[8:]
	for number := uint32(0); len(answer) > 0; number++ {
		n := min(room, len(answer))
		part := Part{ID: id, Number: number, More: n < len(answer), Bytes: answer[:n]}
		p.message = AppendPart(p.message[:0], part)
		if err := send(p.message); err != nil {
			return err
		}
		answer = answer[n:]
	}
	return nil
}

func (p *Packer) shrink() {
	if p.count == 0 && cap(p.message) > kept {
		p.message = nil
	}
	if cap(p.item) > kept {
		p.item = nil
	}
}

// Part is a piece of a response that is too large for one message: all pieces in order, joined
// by a Reassembler, are the response.
type Part struct {
	ID     uint64 // of the response
	Number uint32 // from 0
	More   bool   // another one follows
	Bytes  []byte // at least one; decoded, they are in the memory of the message
}

const (
	minPart    = 8 + 1 + 1 + 1
	partHeader = 8 + 5 + 1 // the most bytes that precede Part.Bytes
)

// AppendPart writes the whole message that carries p into buf, which must be empty.
func AppendPart(buf []byte, p Part) []byte {
	buf = binary.BigEndian.AppendUint64(Begin(buf, KindPart), p.ID)
	buf = binary.AppendUvarint(buf, uint64(p.Number))
	buf = append(appendBool(buf, p.More), p.Bytes...)
	Seal(buf, 1)
	return buf
}

// Part decodes the item of a message of KindPart.
func (f Frame) Part() (Part, error) {
	r, err := f.read(KindPart, minPart, true)
	if err != nil {
		return Part{}, err
	}
	p := Part{ID: r.id(), Number: r.uint32(), More: r.bool(), Bytes: r.buf}
	if r.failed || len(p.Bytes) == 0 {
		return Part{}, fmt.Errorf("%w: part", ErrMalformed)
	}
	return p, nil
}

// Reassembler joins the parts of the response to one request. It holds at most MaxBody bytes.
// The zero value is ready; one goroutine at a time may use it.
type Reassembler struct {
	source   uint64
	next     uint32
	complete bool
	id       uint64
	answer   []byte
}

// Add takes the next part; complete says that it was the last one and Response may be called.
// source tells answers to several messages with the same request apart, as its batch number
// does: parts of two sources never mix, and the first part of any source starts anew. A part out
// of order, or beyond MaxBody, is ErrMalformed, and what was gathered is dropped: the parts of
// one source come from one connection, where NATS keeps the order, so one has been lost.
func (a *Reassembler) Add(source uint64, p Part) (complete bool, err error) {
	if p.Number == 0 {
		*a = Reassembler{source: source, id: p.ID, answer: a.answer[:0]}
	}
	if a.source != source {
		return false, fmt.Errorf("%w: part %d of another answer", ErrMalformed, p.Number)
	}
	if a.id != p.ID || a.next != p.Number || a.complete || len(a.answer)+len(p.Bytes) > MaxBody {
		*a = Reassembler{}
		return false, fmt.Errorf("%w: part %d out of order", ErrMalformed, p.Number)
	}
	a.answer = append(a.answer, p.Bytes...)
	a.next++
	a.complete = !p.More
	return a.complete, nil
}

// Held is how many bytes have been gathered.
func (a *Reassembler) Held() int { return len(a.answer) }

// Response decodes what a complete Reassembler has joined.
func (a *Reassembler) Response() (Response, error) {
	r := reader{buf: a.answer}
	response := Response{ID: a.id}
	r.answer(&response)
	if !a.complete || r.failed || len(r.buf) > 0 {
		return Response{}, fmt.Errorf("%w: joined parts", ErrMalformed)
	}
	return response, nil
}
