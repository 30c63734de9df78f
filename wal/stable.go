package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Set stores a stable value. It is synced when Set returns, after every write of the group that
// was called before. It returns ErrTooLarge when the values of the group would exceed 16 KiB
// together, ErrClosed, or ErrFaulted.
func (g *Group) Set(key, value []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.writable(); err != nil {
		return err
	}
	next := g.state
	if err := next.setValue(key, value); err != nil {
		return fmt.Errorf("group %d: %w", g.id, err)
	}
	return g.commit(g.newBatch(0), next)
}

// Get returns a copy of the stable value of key, or ErrKeyNotFound.
func (g *Group) Get(key []byte) ([]byte, error) {
	if err := g.store.fault.err(); err != nil {
		return nil, err
	}
	shown := state{stable: *g.stable.Load()}
	value, found := shown.value(key)
	if !found {
		return nil, ErrKeyNotFound
	}
	return bytes.Clone(value), nil
}

// SetUint64 is Set of a number.
func (g *Group) SetUint64(key []byte, value uint64) error {
	return g.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 returns the number that SetUint64 stored, or ErrKeyNotFound.
func (g *Group) GetUint64(key []byte) (uint64, error) {
	value, err := g.Get(key)
	if err != nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("group %d: value of %q is no number", g.id, key)
	}
	return binary.BigEndian.Uint64(value), nil
}
