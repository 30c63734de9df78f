package wal

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// Version 1 on disk. A change here is a change of format: it needs a new version.
const (
	goldenRecord = "00000036" + "1e909a06" + "02" + "01" + "0007" +
		"0000000000000102" + "0000000000000003" + "deadbeef" + "05" +
		"0000000000000400" + "00000006" + "6e756d657261" + "657874"
	goldenState = "0000003f" + "fcbf29c9" + "01" + "01" + "0007" +
		"0000000000000009" + "0000000000000004" + "0000000000000102" + "deadbeef" +
		"0008" + "00000002" + "4c617374566f7465" + "6e31" + "0001" + "00000000" + "5a"
)

func TestGoldenFrames(t *testing.T) {
	entry := &raft.Log{
		Index: 0x102, Term: 3, Type: raft.LogConfiguration,
		Data: []byte("numera"), Extensions: []byte("ext"), AppendedAt: time.Unix(0, 0x400).UTC(),
	}
	frame := make([]byte, recordFrameBytes(entry))
	putRecord(frame, 7, 0xdeadbeef, entry)
	require.Equal(t, goldenRecord, hex.EncodeToString(frame))
	var got raft.Log
	require.NoError(t, getRecord(frame, 7, 0x102, &got))
	require.Equal(t, *entry, got)

	st := state{commit: 9, first: 4, last: 0x102, lastChecksum: 0xdeadbeef}
	require.NoError(t, st.setValue([]byte("Z"), nil))
	require.NoError(t, st.setValue([]byte("LastVote"), []byte("n0")))
	require.NoError(t, st.setValue([]byte("LastVote"), []byte("n1")))
	frame = make([]byte, st.frameBytes())
	st.put(frame, 7)
	require.Equal(t, goldenState, hex.EncodeToString(frame))
	gotState, err := getState(frame, 7)
	require.NoError(t, err)
	value, found := gotState.value([]byte("LastVote"))
	require.True(t, found)
	require.Equal(t, "n1", string(value))
}

// Every flipped bit and every cut of a frame is seen, and neither panics.
func TestFramesVerify(t *testing.T) {
	record, err := hex.DecodeString(goldenRecord)
	require.NoError(t, err)
	st, err := hex.DecodeString(goldenState)
	require.NoError(t, err)
	open := map[string]func(frame []byte) error{
		string(record): func(frame []byte) error { return getRecord(frame, 7, 0x102, new(raft.Log)) },
		string(st):     func(frame []byte) error { _, err := getState(frame, 7); return err },
	}
	for frame, open := range open {
		require.NoError(t, open([]byte(frame)))
		for bit := range len(frame) * 8 {
			flipped := []byte(frame)
			flipped[bit/8] ^= 1 << (bit % 8)
			require.ErrorIs(t, open(flipped), ErrCorrupt)
		}
		for size := range len(frame) {
			require.ErrorIs(t, open([]byte(frame)[:size]), ErrCorrupt)
		}
		require.ErrorIs(t, open(append([]byte(frame), 0)), ErrCorrupt)
	}
	require.ErrorIs(t, getRecord(record, 8, 0x102, new(raft.Log)), ErrCorrupt)
	require.ErrorIs(t, getRecord(record, 7, 0x103, new(raft.Log)), ErrCorrupt)
	require.ErrorIs(t, getRecord(st, 7, 0x102, new(raft.Log)), ErrCorrupt)
}

// A body that was sealed, so that only its inner lengths can be wrong, must not panic, and what
// is accepted encodes to itself.
func FuzzSealedState(f *testing.F) {
	golden, err := hex.DecodeString(goldenState)
	require.NoError(f, err)
	f.Add(golden[frameHeaderBytes:])
	f.Fuzz(func(t *testing.T, body []byte) {
		frame := append(make([]byte, frameHeaderBytes), body...)
		sealFrame(frame, kindState, 7)
		st, err := getState(frame, 7)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		again := make([]byte, st.frameBytes())
		st.put(again, 7)
		require.Equal(t, frame, again)
	})
}

// The header is sealed and anything may follow it.
func FuzzReceipts(f *testing.F) {
	header := make([]byte, receiptsHeaderBytes)
	copy(header[frameHeaderBytes:], testOwner)
	sealFrame(header[:frameHeaderBytes+len(testOwner)], kindReceipts, 0)
	var slot [receiptBytes]byte
	putReceipt(&slot, 1, 9)
	f.Add(append(make([]byte, receiptBytes), slot[:]...))
	f.Fuzz(func(t *testing.T, slots []byte) {
		owner, commits, err := parseReceipts(append(bytes.Clone(header), slots...))
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.Equal(t, testOwner, owner)
		for group, commit := range commits {
			var want [receiptBytes]byte
			putReceipt(&want, group, commit)
			require.Equal(t, want[:], slots[int(group)*receiptBytes:][:receiptBytes])
		}
	})
}
