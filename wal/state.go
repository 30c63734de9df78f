package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// state is everything about a group that is not a log record. It is written whole in the batch
// of every commit of the group, so whichever version survives says by itself what the log must
// look like and what was voted. Its body is
//
//	commit       u64  number of this commit, from 1, without gaps
//	first        u64  0 when the log is empty
//	last         u64  0 when the log is empty
//	lastChecksum u32  of the record at last, 0 when the log is empty
//	stable values, in the order of their keys: key u16 length, value u32 length, key, value
type state struct {
	commit       uint64
	first        uint64
	last         uint64
	lastChecksum uint32
	// stable is sorted by key and never changed in place: a copied state shares it.
	stable []stableValue
}

type stableValue struct {
	key   []byte
	value []byte
}

const (
	stateFixedBytes = 8 + 8 + 8 + 4

	// stateMaxBytes bounds the state, since every commit writes it again. Raft keeps three
	// stable values of a few dozen bytes.
	stateMaxBytes = 16 << 10
)

func (s *state) empty() bool { return s.last == 0 }

func (s *state) contains(index uint64) bool {
	return !s.empty() && s.first <= index && index <= s.last
}

func (s *state) frameBytes() int {
	n := frameHeaderBytes + stateFixedBytes
	for _, v := range s.stable {
		n += 6 + len(v.key) + len(v.value)
	}
	return n
}

// put encodes the state into frame, which has exactly frameBytes bytes.
func (s *state) put(frame []byte, group uint16) {
	body := frame[frameHeaderBytes:]
	binary.BigEndian.PutUint64(body[0:], s.commit)
	binary.BigEndian.PutUint64(body[8:], s.first)
	binary.BigEndian.PutUint64(body[16:], s.last)
	binary.BigEndian.PutUint32(body[24:], s.lastChecksum)
	rest := body[stateFixedBytes:]
	for _, v := range s.stable {
		binary.BigEndian.PutUint16(rest[0:], uint16(len(v.key)))
		binary.BigEndian.PutUint32(rest[2:], uint32(len(v.value)))
		rest = rest[6:]
		rest = rest[copy(rest, v.key):]
		rest = rest[copy(rest, v.value):]
	}
	sealFrame(frame, kindState, group)
}

// getState decodes a frame; the state aliases nothing of it. The error wraps ErrCorrupt.
func getState(frame []byte, group uint16) (state, error) {
	body, _, err := openFrame(frame, kindState, group, stateFixedBytes)
	if err != nil {
		return state{}, fmt.Errorf("state of group %d: %w", group, err)
	}
	body = bytes.Clone(body)
	s := state{
		commit:       binary.BigEndian.Uint64(body[0:]),
		first:        binary.BigEndian.Uint64(body[8:]),
		last:         binary.BigEndian.Uint64(body[16:]),
		lastChecksum: binary.BigEndian.Uint32(body[24:]),
	}
	if s.commit == 0 || s.first > s.last || (s.first == 0) != (s.last == 0) {
		return state{}, fmt.Errorf("state of group %d: %w: commit %d, log %d to %d",
			group, ErrCorrupt, s.commit, s.first, s.last)
	}
	for rest := body[stateFixedBytes:]; len(rest) > 0; {
		if len(rest) < 6 {
			return state{}, fmt.Errorf("state of group %d: %w: cut value", group, ErrCorrupt)
		}
		keyBytes := uint64(binary.BigEndian.Uint16(rest))
		valueBytes := uint64(binary.BigEndian.Uint32(rest[2:]))
		rest = rest[6:]
		if uint64(len(rest)) < keyBytes+valueBytes {
			return state{}, fmt.Errorf("state of group %d: %w: cut value", group, ErrCorrupt)
		}
		v := stableValue{rest[:keyBytes:keyBytes], rest[keyBytes : keyBytes+valueBytes]}
		s.stable = append(s.stable, v)
		rest = rest[keyBytes+valueBytes:]
	}
	return s, nil
}

func compareStable(v stableValue, key []byte) int { return bytes.Compare(v.key, key) }

// value returns the stable value of key, not to be changed, and whether there is one.
func (s *state) value(key []byte) ([]byte, bool) {
	i, found := slices.BinarySearchFunc(s.stable, key, compareStable)
	if !found {
		return nil, false
	}
	return s.stable[i].value, true
}

// setValue replaces or adds a stable value, of which it keeps copies. It returns ErrTooLarge
// when the state would exceed stateMaxBytes, and leaves it as it was.
func (s *state) setValue(key, value []byte) error {
	i, found := slices.BinarySearchFunc(s.stable, key, compareStable)
	next := slices.Clone(s.stable)
	v := stableValue{bytes.Clone(key), bytes.Clone(value)}
	if found {
		next[i] = v
	} else {
		next = slices.Insert(next, i, v)
	}
	changed := state{stable: next}
	if len(key) > math.MaxUint16 || changed.frameBytes() > stateMaxBytes {
		return fmt.Errorf("%w: stable values above %d bytes", ErrTooLarge, stateMaxBytes)
	}
	s.stable = next
	return nil
}
