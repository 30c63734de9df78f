package wal

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// A record is one entry of a group's log. Its body is
//
//	index      u64
//	term       u64
//	previous   u32  checksum of the record before, 0 where the log began
//	type       u8
//	appendedAt i64  Unix nanoseconds, 0 for none; raft shows it and decides nothing by it
//	data       u32 length, bytes
//	extensions the rest
//
// The chain of previous checksums is what tells an old version of a record, which verifies on its
// own, from the one that was written last.
const (
	recordFixedBytes = 8 + 8 + 4 + 1 + 8 + 4

	// recordMaxBytes bounds data and extensions of one record together. Shards keep their
	// entries below 512 KiB; this is where a mistake stops being written to disk.
	recordMaxBytes = 64 << 20
)

func recordFrameBytes(entry *raft.Log) int {
	return frameHeaderBytes + recordFixedBytes + len(entry.Data) + len(entry.Extensions)
}

// putRecord encodes the entry into frame, which has exactly recordFrameBytes(entry) bytes, and
// returns the frame's checksum.
func putRecord(frame []byte, group uint16, previous uint32, entry *raft.Log) uint32 {
	body := frame[frameHeaderBytes:]
	binary.BigEndian.PutUint64(body[0:], entry.Index)
	binary.BigEndian.PutUint64(body[8:], entry.Term)
	binary.BigEndian.PutUint32(body[16:], previous)
	body[20] = byte(entry.Type)
	var appendedAtUnixNano int64
	if !entry.AppendedAt.IsZero() {
		appendedAtUnixNano = entry.AppendedAt.UnixNano()
	}
	binary.BigEndian.PutUint64(body[21:], uint64(appendedAtUnixNano))
	binary.BigEndian.PutUint32(body[29:], uint32(len(entry.Data)))
	n := copy(body[recordFixedBytes:], entry.Data)
	copy(body[recordFixedBytes+n:], entry.Extensions)
	return sealFrame(frame, kindRecord, group)
}

// recordLinks are the checksums by which a record hangs together with its neighbours.
type recordLinks struct {
	previous uint32
	checksum uint32
}

// verifyRecord checks a frame against the key it was found under and returns its body. The
// error wraps ErrCorrupt and names group and index.
func verifyRecord(frame []byte, group uint16, index uint64) ([]byte, recordLinks, error) {
	body, checksum, err := openFrame(frame, kindRecord, group, recordFixedBytes)
	if err != nil {
		return nil, recordLinks{}, fmt.Errorf("group %d, index %d: %w", group, index, err)
	}
	found := binary.BigEndian.Uint64(body)
	dataBytes := uint64(binary.BigEndian.Uint32(body[29:]))
	if found != index || dataBytes > uint64(len(body)-recordFixedBytes) {
		return nil, recordLinks{}, fmt.Errorf(
			"group %d, index %d: %w: record of index %d", group, index, ErrCorrupt, found)
	}
	return body, recordLinks{binary.BigEndian.Uint32(body[16:]), checksum}, nil
}

// getRecord decodes a frame into entry, which aliases it.
func getRecord(frame []byte, group uint16, index uint64, entry *raft.Log) error {
	body, _, err := verifyRecord(frame, group, index)
	if err != nil {
		return err
	}
	*entry = raft.Log{
		Index: index,
		Term:  binary.BigEndian.Uint64(body[8:]),
		Type:  raft.LogType(body[20]),
	}
	if nano := int64(binary.BigEndian.Uint64(body[21:])); nano != 0 {
		entry.AppendedAt = time.Unix(0, nano).UTC()
	}
	dataBytes := int(binary.BigEndian.Uint32(body[29:]))
	rest := body[recordFixedBytes:]
	if dataBytes > 0 {
		entry.Data = rest[:dataBytes:dataBytes]
	}
	if len(rest) > dataBytes {
		entry.Extensions = rest[dataBytes:]
	}
	return nil
}
