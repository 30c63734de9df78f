package inventory_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"runtime/debug"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	. "numera/engine/inventory"
)

// TestSnapshotIdentity restores a shard that has a bit of everything, by digest and by every read,
// and demands that both go on the same.
func TestSnapshotIdentity(t *testing.T) {
	s := eventful(t)
	replica := s.restored(DefaultLimits(), 3)
	sameReads(t, s.e, replica.e)
	require.Equal(t, stateOf(s.e).EndedRecords(), stateOf(replica.e).EndedRecords())
	require.Equal(t, snapshot(t, replica.e), snapshot(t, replica.restored(DefaultLimits(), 1).e))
	for _, wait := range []int64{0, minute, hour, 25 * hour} {
		s.now += wait
		for _, c := range []Command{
			s.order("b-new", anyOf("a.x", 2, PickRandom)), s.order("b-1", anyOf("a.y", 2, PickRandom)),
			&Restock{Product: "a.x", Count: 5, Key: "k-1"},
		} {
			batch := s.batch(c)
			require.Equal(t, s.e.Apply(batch), replica.e.Apply(batch))
			require.Equal(t, s.e.Digest(), replica.e.Digest())
		}
		sameReads(t, s.e, replica.e)
	}
}

// TestSnapshotIsFrozen writes what was when the state was frozen, however it goes on meanwhile.
func TestSnapshotIsFrozen(t *testing.T) {
	s := eventful(t)
	frozen, digest := s.e.Freeze(), s.e.Digest()
	var before, after bytes.Buffer
	_, err := frozen.WriteTo(&before)
	require.NoError(t, err)
	for range 20 {
		s.pay(s.reserve("b-1", anyOf("a.y", 1, PickRandom)))
		s.do(&Block{Product: "a.x", Numbers: []uint32{34}})
		s.do(&Restock{Product: "a.x", Count: 1, Key: s.key()})
		s.wait(20 * minute)
	}
	require.NotEqual(t, digest, s.e.Digest())
	_, err = frozen.WriteTo(&after)
	require.NoError(t, err)
	require.Equal(t, before.Bytes(), after.Bytes())
	_, err = frozen.WriteTo(brokenWriter{})
	require.ErrorIs(t, err, io.ErrShortWrite)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestSnapshotDamage flips every bit of a snapshot and cuts it everywhere: that is ErrSnapshot,
// never another state, and an engine that tried keeps the state it had.
func TestSnapshotDamage(t *testing.T) {
	s := eventful(t)
	whole := snapshot(t, s.e)
	_, err := Restore(0, DefaultLimits(), iotest.OneByteReader(bytes.NewReader(whole)))
	require.NoError(t, err)
	defer debug.SetGCPercent(debug.SetGCPercent(1000)) // each try makes a state for nothing
	step := 1
	if raceDetector {
		step = 31
	}
	for bit := 0; bit < 8*len(whole); bit += step {
		damaged := bytes.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		state, err := Restore(0, DefaultLimits(), bytes.NewReader(damaged))
		require.ErrorIs(t, err, ErrSnapshot, "bit %d", bit)
		require.Nil(t, state)
	}
	for n := range whole {
		_, err := Restore(0, DefaultLimits(), bytes.NewReader(whole[:n]))
		require.ErrorIs(t, err, ErrSnapshot, "cut at %d", n)
	}
	_, err = Restore(1, DefaultLimits(), bytes.NewReader(whole))
	require.ErrorIs(t, err, ErrSnapshot, "of another shard")
	digest := s.e.Digest()
	require.ErrorIs(t, s.e.Restore(bytes.NewReader(whole[1:])), ErrSnapshot)
	require.Equal(t, digest, s.e.Digest())
}

// TestSnapshotForgery leaves frames out, repeats them and changes what is in them, with checksums
// that are right: the state is the same or there is none.
func TestSnapshotForgery(t *testing.T) {
	s := eventful(t)
	frames := split(snapshot(t, s.e))
	try := func(frames [][]byte, what string, i int) {
		state, err := Restore(0, DefaultLimits(), bytes.NewReader(join(frames)))
		if err != nil {
			require.ErrorIs(t, err, ErrSnapshot)
			return
		}
		require.Equal(t, s.e.Digest(), state.Digest(), "%s %d", what, i)
	}
	for i := range frames {
		without := append(append([][]byte(nil), frames[:i]...), frames[i+1:]...)
		_, err := Restore(0, DefaultLimits(), bytes.NewReader(join(without)))
		require.ErrorIs(t, err, ErrSnapshot, "without frame %d", i)
		twice := append(append([][]byte(nil), frames[:i+1]...), frames[i:]...)
		try(twice, "twice frame", i)
		for at := 0; at < len(frames[i]) && !raceDetector; at++ {
			for _, change := range []byte{1, 0x80, 0xff} {
				forged := append([][]byte(nil), frames...)
				forged[i] = bytes.Clone(frames[i])
				forged[i][at] ^= change
				try(forged, "byte", at)
			}
		}
	}
}

// split takes a snapshot apart into the contents of its frames, and join puts it together again.
func split(snapshot []byte) (frames [][]byte) {
	for len(snapshot) > 0 {
		n := binary.BigEndian.Uint32(snapshot)
		frames = append(frames, snapshot[8:8+n])
		snapshot = snapshot[8+n:]
	}
	return frames
}

func join(frames [][]byte) (snapshot []byte) {
	for _, frame := range frames {
		snapshot = binary.BigEndian.AppendUint32(snapshot, uint32(len(frame)))
		snapshot = binary.BigEndian.AppendUint32(snapshot, crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli)))
		snapshot = append(snapshot, frame...)
	}
	return snapshot
}

// TestSnapshotOfManyBlocked has more blocked numbers than fit a frame of the usual length.
func TestSnapshotOfManyBlocked(t *testing.T) {
	if raceDetector {
		return // it is about sizes
	}
	const count = 1_200_000
	s := openShard(t, DefaultLimits())
	s.put("x", count)
	for from := uint32(1); from < count/2; from += 10_000 {
		c := &Block{Product: "x"}
		for n := range uint32(10_000) {
			c.Numbers = append(c.Numbers, (from+n)*2)
		}
		if c.Numbers[9_999] <= count {
			s.ok(c)
		}
	}
	require.Greater(t, len(snapshot(t, s.e)), 64<<10)
	sameReads(t, s.e, s.restored(DefaultLimits(), 1).e)
}

// FuzzSnapshot changes the frames of a snapshot, mostly with checksums that are right. What can be
// restored can be read, frozen and restored again.
func FuzzSnapshot(f *testing.F) {
	whole := snapshot(f, eventful(f).e)
	for i, frame := range split(whole) {
		f.Add(uint8(i), frame)
	}
	f.Fuzz(func(t *testing.T, at uint8, frame []byte) {
		frames := split(whole)
		if len(frame) == 0 {
			return
		}
		frames[int(at)%len(frames)] = frame
		state, err := Restore(0, DefaultLimits(), bytes.NewReader(join(frames)))
		if err != nil {
			require.ErrorIs(t, err, ErrSnapshot)
			return
		}
		var again bytes.Buffer
		_, err = state.Freeze().WriteTo(&again)
		require.NoError(t, err)
		other, err := Restore(0, DefaultLimits(), &again)
		require.NoError(t, err)
		require.Equal(t, state.Digest(), other.Digest())
	})
}
