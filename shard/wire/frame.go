package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// Version is the version of the messages that this binary writes and reads.
const Version = 2

// Kind says what the items of a message are.
type Kind uint8

// The kinds of messages. The numbers travel.
const (
	KindRequests  Kind = 1 // of type Request
	KindResponses Kind = 2 // of type Response
	KindPart      Kind = 3 // one, of type Part
	KindInfo      Kind = 4 // one, of type Info
)

// HeaderSize is what Begin writes: checksum, version, kind and count, in bytes.
const HeaderSize = 4 + 1 + 1 + 2

// MaxItems is how many items a message can have.
const MaxItems = math.MaxUint16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Begin starts a message in buf, which must be empty but may have capacity. Items follow, and
// then Seal.
func Begin(buf []byte, kind Kind) []byte {
	return append(buf, 0, 0, 0, 0, Version, byte(kind), 0, 0)
}

// Seal finishes the message by writing how many items it has, 1 to MaxItems, and its checksum.
func Seal(message []byte, count int) {
	binary.BigEndian.PutUint16(message[6:], uint16(count))
	binary.BigEndian.PutUint32(message, crc32.Checksum(message[4:], castagnoli))
}

// Frame is a message whose checksum and version are right; its items are not yet looked at. It
// refers to the memory of the message.
type Frame struct {
	kind  Kind
	count int
	items []byte
}

// Open checks what is around the items of a message.
func Open(message []byte) (Frame, error) {
	if len(message) < HeaderSize {
		return Frame{}, fmt.Errorf("%w: %d bytes", ErrMalformed, len(message))
	}
	if binary.BigEndian.Uint32(message) != crc32.Checksum(message[4:], castagnoli) {
		return Frame{}, fmt.Errorf("%w: checksum", ErrMalformed)
	}
	if version := message[4]; version != Version {
		return Frame{}, fmt.Errorf("%w: version %d, this is version %d",
			ErrMalformed, version, Version)
	}
	f := Frame{
		kind:  Kind(message[5]),
		count: int(binary.BigEndian.Uint16(message[6:])),
		items: message[HeaderSize:],
	}
	if f.count < 1 {
		return Frame{}, fmt.Errorf("%w: no items", ErrMalformed)
	}
	return f, nil
}

// Kind is the kind of the message; it may be one that this version does not know.
func (f Frame) Kind() Kind { return f.kind }

// read starts reading the items, which must be of this kind, take at least size bytes each, and
// be one only if single is set.
func (f Frame) read(kind Kind, size int, single bool) (reader, error) {
	switch {
	case f.kind != kind:
		return reader{}, fmt.Errorf("%w: kind %d where %d is expected", ErrMalformed, f.kind, kind)
	case f.count > len(f.items)/size, single && f.count != 1:
		return reader{}, fmt.Errorf("%w: count %d", ErrMalformed, f.count)
	}
	return reader{buf: f.items}, nil
}

const minInfo = 2 // the least bytes that an Info takes

// AppendInfo writes the whole message that carries info into buf, which must be empty.
func AppendInfo(buf []byte, info Info) []byte {
	buf = appendString(Begin(buf, KindInfo), info.Cluster)
	buf = binary.AppendUvarint(buf, uint64(info.Shards))
	Seal(buf, 1)
	return buf
}

// Info decodes the item of a message of KindInfo.
func (f Frame) Info() (Info, error) {
	r, err := f.read(KindInfo, minInfo, true)
	if err != nil {
		return Info{}, err
	}
	info := Info{Cluster: r.string(), Shards: uint16(r.atMost(math.MaxUint16))}
	if r.failed || len(r.buf) > 0 || info.Shards < 1 {
		return Info{}, fmt.Errorf("%w: info", ErrMalformed)
	}
	return info, nil
}
