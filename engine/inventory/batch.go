package inventory

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Version is of the format of batches and snapshots, and of what commands decide: all replicas must pick the
// same numbers, now and when they read the log again. Nothing of another one may be read: a replica that
// meets it stops.
const Version = 3

// Batch is one entry of the log: commands that commit together, with the proposer's time and a
// seed for the random picks in it.
type Batch struct {
	TimeUnixMilli int64
	Seed          uint64
	Entries       []Entry // not to be changed in a batch that was decoded

	// fingerprints are those of the entries, if they were decoded: that spares the apply goroutine, on which
	// everybody waits.
	fingerprints []uint32
	reserves     []*Reserve // memory of Decode
}

// fingerprintOf is the fingerprint of a reservation.
func (b *Batch) fingerprintOf(i int) uint32 {
	if i < len(b.fingerprints) {
		return b.fingerprints[i]
	}
	if c, ok := b.Entries[i].Command.(*Reserve); ok {
		return fingerprint(c.appendRequest(nil))
	}
	return 0
}

// fingerprint is what two uses of one key are compared by: CRC-32C of what appendRequest gives. Bodies
// that differ in one burst of up to 32 bits never agree; any others with probability 2⁻³².
func fingerprint(request []byte) uint32 { return crc32.Checksum(request, castagnoli) }

// seedOf is the seed of the random picks of the i-th entry.
func (b *Batch) seedOf(i int) uint64 { return mix(b.Seed, uint64(i)+1) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const batchHeader = 4 + 2 + 8 + 8 // checksum, version, time, seed

// AppendBatchHeader starts a batch in buf, which must be empty: the entries follow, by
// AppendEntry, and then SealBatch.
func AppendBatchHeader(buf []byte, timeUnixMilli int64, seed uint64) []byte {
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint16(buf, Version)
	buf = binary.BigEndian.AppendUint64(buf, uint64(timeUnixMilli))
	return binary.BigEndian.AppendUint64(buf, seed)
}

// SealBatch writes the checksum (CRC-32C over all that follows it) of a finished batch.
func SealBatch(buf []byte) {
	binary.BigEndian.PutUint32(buf, crc32.Checksum(buf[4:], castagnoli))
}

// BatchSeed reads the seed of an encoded batch and looks at nothing else. Of what is too short to be
// one it is 0.
func BatchSeed(buf []byte) uint64 {
	if len(buf) < batchHeader {
		return 0
	}
	return binary.BigEndian.Uint64(buf[batchHeader-8:])
}

// Append encodes the whole batch.
func (b *Batch) Append(buf []byte) []byte {
	start := len(buf)
	buf = AppendBatchHeader(buf, b.TimeUnixMilli, b.Seed)
	for _, e := range b.Entries {
		buf = AppendEntry(buf, e)
	}
	SealBatch(buf[start:])
	return buf
}

// Decode reads a batch from exactly buf into b. It uses the memory of the batch that b held before,
// its commands included: nothing of that one may be in use any more. It shares no memory with buf.
func (b *Batch) Decode(buf []byte) error {
	if len(buf) < batchHeader {
		return fmt.Errorf("%w: batch of %d bytes", ErrMalformed, len(buf))
	}
	if binary.BigEndian.Uint32(buf) != crc32.Checksum(buf[4:], castagnoli) {
		return fmt.Errorf("%w: batch checksum", ErrMalformed)
	}
	if v := binary.BigEndian.Uint16(buf[4:]); v != Version {
		return fmt.Errorf("%w: batch of version %d, this is version %d", ErrMalformed, v, Version)
	}
	b.TimeUnixMilli = int64(binary.BigEndian.Uint64(buf[6:]))
	b.Seed = BatchSeed(buf)
	b.Entries, b.fingerprints = b.Entries[:0], b.fingerprints[:0]
	r := reader{buf: buf[batchHeader:]}
	for len(r.buf) > 0 {
		i := len(b.Entries)
		if i == len(b.reserves) {
			b.reserves = append(b.reserves, new(Reserve))
		}
		e, err := r.entry(b.reserves[i])
		if err != nil {
			return fmt.Errorf("entry %d of the batch: %w", i, err)
		}
		f := uint32(0)
		if _, ok := e.Command.(*Reserve); ok {
			f = fingerprint(r.request)
		}
		b.Entries, b.fingerprints = append(b.Entries, e), append(b.fingerprints, f)
	}
	return nil
}
