package inventory

import "slices"

// outbox keeps the events that an attached consumer has not acknowledged yet. Without a consumer
// it keeps none; sequences go on all the same.
type outbox struct {
	chunks    []*outboxChunk
	first     uint64 // sequence of the first event in chunks[0]
	kept      uint64 // sequence of the oldest event that is kept
	next      uint64 // sequence of the next event, from 1
	consumers []consumer
	texts     []byte // what is filled of a piece of memory that the texts of many entries share
}

const outboxChunkLen = 1024

// outboxChunk is written once, event by event.
type outboxChunk [outboxChunkLen]outboxEntry

// outboxEntry is 32 bytes: the two of a new order fill a cache line.
type outboxEntry struct {
	text        []byte // the correlation, and the order or product after the change; shared by its events
	at          uint48 // Unix milliseconds of log time
	kind        EventKind
	correlation uint8 // how many bytes of text it is
}

func (e *outboxEntry) image() []byte { return e.text[e.correlation:] }

// consumer has made everything up to acknowledged durable.
type consumer struct {
	name         string
	acknowledged uint64
}

// last is the sequence of the newest event, 0 before the first.
func (b *outbox) last() uint64 { return b.next - 1 }

// backlog is how many events are kept.
func (b *outbox) backlog() int { return int(b.next - b.kept) }

// wanted says that an event appended now would be kept.
func (b *outbox) wanted() bool { return len(b.consumers) > 0 }

// tell numbers events of one change, and keeps them if they are wanted. image is the caller's again
// afterwards, and not looked at if they are not.
func (b *outbox) tell(atUnixMilli int64, correlation string, image []byte, kinds ...EventKind) {
	if !b.wanted() {
		b.skip(len(kinds))
		return
	}
	e := b.entry(atUnixMilli, correlation, image)
	for _, e.kind = range kinds {
		b.append(e)
	}
}

// append numbers an event and keeps it.
func (b *outbox) append(e outboxEntry) {
	if len(b.chunks) == 0 {
		b.first = b.next
	}
	i := b.next - b.first
	if i == uint64(len(b.chunks))*outboxChunkLen {
		b.chunks = append(b.chunks, new(outboxChunk))
	}
	b.chunks[i/outboxChunkLen][i%outboxChunkLen] = e
	b.next++
}

// entry makes the entry of a change, without its kind. The texts of entries stand side by side, since they
// come and go in the order of their events: each apart would cost an allocation.
func (b *outbox) entry(atUnixMilli int64, correlation string, image []byte) outboxEntry {
	assert(len(correlation) <= maxCorrelation, "a correlation id is short")
	if n := len(correlation) + len(image); n > cap(b.texts)-len(b.texts) {
		b.texts = make([]byte, 0, max(textsLen, n))
	}
	start := len(b.texts)
	b.texts = append(append(b.texts, correlation...), image...)
	return outboxEntry{
		text: slices.Clip(b.texts[start:]), at: makeUint48(atUnixMilli),
		correlation: uint8(len(correlation)),
	}
}

const textsLen = 16 << 10

// skip numbers n events that nobody wants.
func (b *outbox) skip(n int) {
	b.next += uint64(n)
	b.kept = b.next
}

func (b *outbox) find(name string) (int, bool) {
	return slices.BinarySearchFunc(b.consumers, name, func(c consumer, name string) int {
		switch {
		case c.name < name:
			return -1
		case c.name > name:
			return 1
		}
		return 0
	})
}

// attach makes name a consumer from the next event on, or finds it; it returns the sequence after
// which its events start.
func (b *outbox) attach(name string) uint64 {
	i, known := b.find(name)
	if !known {
		b.consumers = slices.Insert(b.consumers, i, consumer{name, b.last()})
	}
	return b.consumers[i].acknowledged
}

// detach forgets a consumer, if it is one.
func (b *outbox) detach(name string) {
	if i, known := b.find(name); known {
		b.consumers = slices.Delete(b.consumers, i, i+1)
		b.trim()
	}
}

// acknowledge notes how far a consumer is; ok is false if it is not attached. An acknowledgement
// of the past or the future changes nothing.
func (b *outbox) acknowledge(name string, sequence uint64) (ok bool) {
	i, known := b.find(name)
	if known && sequence > b.consumers[i].acknowledged && sequence < b.next {
		b.consumers[i].acknowledged = sequence
		b.trim()
	}
	return known
}

// trim drops what every consumer has acknowledged.
func (b *outbox) trim() {
	kept := b.next
	for _, c := range b.consumers {
		kept = min(kept, c.acknowledged+1)
	}
	b.kept = kept
	if kept == b.next {
		b.chunks = nil
		return
	}
	for b.first+outboxChunkLen <= kept {
		b.chunks[0] = nil
		b.chunks = b.chunks[1:]
		b.first += outboxChunkLen
	}
}

// at gives a kept event.
func (b *outbox) at(sequence uint64) *outboxEntry {
	i := sequence - b.first
	return &b.chunks[i/outboxChunkLen][i%outboxChunkLen]
}

// part is a view of the kept events from first to last for any one goroutine.
func (b *outbox) part(first, last uint64) outbox {
	from, to := (first-b.first)/outboxChunkLen, (last-b.first)/outboxChunkLen
	return outbox{
		chunks: slices.Clone(b.chunks[from : to+1]), first: b.first + from*outboxChunkLen,
		kept: first, next: last + 1,
	}
}

// freeze returns a view for any one goroutine: events are never changed, only appended.
func (b *outbox) freeze() outbox {
	view := *b
	view.chunks = slices.Clone(b.chunks)
	view.consumers = slices.Clone(b.consumers)
	return view
}
