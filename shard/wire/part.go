package wire

import (
	"encoding/binary"
	"fmt"
)

// MaxMessage bounds what a Packer makes, in bytes: well below the 1 MiB that NATS servers allow
// by default.
const MaxMessage = 512 << 10

// MaxBody bounds one answer, in bytes: the taken numbers of the largest product are 12.5 MB.
const MaxBody = 16 << 20

// Packer writes responses into messages of at most MaxMessage bytes, several into one where they
// fit, one in several parts where it does not. It keeps its buffers from one use to the next. The
// zero value is ready; one goroutine at a time may use it.
type Packer struct {
	message []byte
	item    []byte
}

// kept is the capacity above which a Packer gives a buffer back.
const kept = 2 * MaxMessage

// Pack gives send the messages that carry the responses, in order. They must all be answers to
// one message of requests, and go out on its reply subject in the order given. send must not
// keep the bytes, as nats.Conn.Publish does not. Pack stops at the first error of send and
// returns it. An answer larger than MaxBody goes out as Malformed instead, so that its asker does
// not wait; the rest is sent, and ErrTooLarge returned.
func (p *Packer) Pack(responses []Response, send func(message []byte) error) error {
	defer p.shrink()
	var tooLarge error
	p.message = Begin(p.message[:0], KindResponses)
	count := 0
	for i := range responses {
		before := len(p.message)
		p.message = AppendResponse(p.message, &responses[i])
		if size := len(p.message) - before; size > MaxBody {
			tooLarge = fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
			failure := Response{ID: responses[i].ID, Failure: Malformed}
			p.message = AppendResponse(p.message[:before], &failure)
		}
		if count++; len(p.message) <= MaxMessage { // so that count ≤ MaxItems: see minResponse
			continue
		}
		p.item = append(p.item[:0], p.message[before:]...)
		if err := p.flush(p.message[:before], count-1, send); err != nil {
			return err
		}
		p.message = Begin(p.message[:0], KindResponses)
		if count = 1; HeaderSize+len(p.item) <= MaxMessage {
			p.message = append(p.message, p.item...)
			continue
		}
		if err := p.split(responses[i].ID, send); err != nil {
			return err
		}
		p.message = Begin(p.message[:0], KindResponses)
		count = 0
	}
	if err := p.flush(p.message, count, send); err != nil {
		return err
	}
	return tooLarge
}

func (p *Packer) flush(message []byte, count int, send func([]byte) error) error {
	if count == 0 {
		return nil
	}
	Seal(message, count)
	return send(message)
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
	if cap(p.message) > kept {
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
