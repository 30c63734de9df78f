package wal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Every value is a frame:
//
//	length   u32  of the whole frame
//	checksum u32  CRC-32C of what follows
//	kind     u8
//	version  u8
//	group    u16  0 in frames of no group
//	body
//
// All integers are big-endian. Pebble has checksums of its own, for its blocks and chunks; the
// frame's are for what happens between them and us, and they chain the records (see record.go).
const (
	frameHeaderBytes = 12
	frameVersion     = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealFrame fills in the header of a frame whose body is written, and returns its checksum.
func sealFrame(frame []byte, k kind, group uint16) uint32 {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)))
	frame[8] = byte(k)
	frame[9] = frameVersion
	binary.BigEndian.PutUint16(frame[10:], group)
	checksum := crc32.Checksum(frame[8:], castagnoli)
	binary.BigEndian.PutUint32(frame[4:], checksum)
	return checksum
}

// openFrame verifies a frame of at least frameHeaderBytes+bodyBytes and returns its body, which
// aliases frame, and its checksum. The error wraps ErrCorrupt.
func openFrame(frame []byte, k kind, group uint16, bodyBytes int) ([]byte, uint32, error) {
	if len(frame) < frameHeaderBytes+bodyBytes {
		return nil, 0, fmt.Errorf("%w: frame of %d bytes", ErrCorrupt, len(frame))
	}
	if length := binary.BigEndian.Uint32(frame); uint64(length) != uint64(len(frame)) {
		return nil, 0, fmt.Errorf("%w: frame of %d bytes says %d", ErrCorrupt, len(frame), length)
	}
	checksum := binary.BigEndian.Uint32(frame[4:])
	if sum := crc32.Checksum(frame[8:], castagnoli); sum != checksum {
		return nil, 0, fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, sum, checksum)
	}
	if kind(frame[8]) != k || binary.BigEndian.Uint16(frame[10:]) != group {
		return nil, 0, fmt.Errorf("%w: frame of another kind or group", ErrCorrupt)
	}
	if frame[9] != frameVersion {
		return nil, 0, fmt.Errorf("%w: frame of unknown version %d", ErrCorrupt, frame[9])
	}
	return frame[frameHeaderBytes:], checksum, nil
}
