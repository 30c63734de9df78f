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
	images    []byte // what is filled of a piece of memory that many images share
}

const outboxChunkLen = 1024

// outboxChunk is written once, event by event.
type outboxChunk [outboxChunkLen]outboxEntry

type outboxEntry struct {
	kind        EventKind
	atUnixMilli int64
	correlation string
	image       []byte // the order or product after the change; shared by events of one change
}

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

// append numbers an event and keeps it if it is wanted.
func (b *outbox) append(e outboxEntry) {
	if !b.wanted() {
		b.skip(1)
		return
	}
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

// image copies the image of an order for its events. Images stand side by side, since they come and go
// in the order of their events: each apart would cost an allocation.
func (b *outbox) image(encoded []byte) []byte {
	if len(encoded) > cap(b.images)-len(b.images) {
		b.images = make([]byte, 0, max(imagesLen, len(encoded)))
	}
	start := len(b.images)
	b.images = append(b.images, encoded...)
	return slices.Clip(b.images[start:])
}

const imagesLen = 16 << 10

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

// freeze returns a view for any one goroutine: events are never changed, only appended.
func (b *outbox) freeze() outbox {
	view := *b
	view.chunks = slices.Clone(b.chunks)
	view.consumers = slices.Clone(b.consumers)
	return view
}
