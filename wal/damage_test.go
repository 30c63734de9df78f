package wal

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

// damagedStore is what the crash of a running store leaves: files of every kind, and what was
// acknowledged.
type damagedStore struct {
	fs    *vfs.MemFS
	terms map[uint64]uint64
}

// crashedStore writes to group 1 until its log spans several files: flushed tables, a
// write-ahead log that was rotated, and a newest one with records at its end.
func crashedStore(t *testing.T, flushes int) damagedStore {
	fs := &cloneable{MemFS: vfs.NewCrashableMem()}
	s := created(t, testConfig(t, fs))
	g := groupOf(t, s, 1)
	last := uint64(0)
	store := func(n uint64) {
		require.NoError(t, g.StoreLogs(entriesOf(1, last+1, last+n)))
		last += n
	}
	for range flushes {
		store(30)
		require.NoError(t, g.SetUint64([]byte("CurrentTerm"), last))
		require.NoError(t, s.db.Flush())
	}
	if flushes > 0 { // else a compaction that is under way would leave tables nobody needs
		all := []byte{0xff}
		require.NoError(t, s.db.Compact(t.Context(), nil, all, false))
	}
	for range 10 {
		store(5)
	}
	require.NoError(t, g.SetUint64([]byte("CurrentTerm"), last))
	crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: seeded(t)})
	require.NoError(t, s.Close())
	return damagedStore{crashed, termsOf(1, 1, last)}
}

// newest returns the last file whose name matches, by number.
func (d damagedStore) newest(t *testing.T, match func(name string) bool) string {
	names, err := d.fs.List(testDir)
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return !match(name) })
	require.NotEmpty(t, names)
	slices.Sort(names)
	return path.Join(testDir, names[len(names)-1])
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	file, err := fs.Open(name)
	require.NoError(t, err)
	content, err := io.ReadAll(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return content
}

// overwrite keeps content as it is: the file system spoils what it was given, under -race.
func overwrite(fs vfs.FS, name string, content []byte) error {
	return writeSynced(fs, name, slices.Clone(content))
}

// openDamaged opens a copy whose file was replaced by content. A refused start must have changed
// nothing. One that is not refused must have lost nothing.
func (d damagedStore) openDamaged(t *testing.T, name string, content []byte) error {
	fs := d.fs.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, overwrite(fs, name, content))
	s, err := Open(testConfig(t, fs))
	if err != nil {
		require.Equal(t, content, readFile(t, fs, name), "a refused start changed the file")
		return err
	}
	g := groupOf(t, s, 1)
	requireLog(t, g, d.terms)
	term, errTerm := g.GetUint64([]byte("CurrentTerm"))
	require.NoError(t, errTerm)
	require.EqualValues(t, len(d.terms), term)
	require.NoError(t, s.Close())
	return nil
}

func isWAL(name string) bool      { return strings.HasSuffix(name, ".log") }
func isTable(name string) bool    { return strings.HasSuffix(name, ".sst") }
func isManifest(name string) bool { return strings.HasPrefix(name, "MANIFEST-") }

// A bit flipped anywhere is refused, or harmless: in a byte that says nothing, like the zeros
// after the last record.
func TestFlippedBitIsNeverAShorterHistory(t *testing.T) {
	for _, file := range []struct {
		name  string
		match func(string) bool
		// harmlessMax is how many of a hundred flips may pass, having lost nothing.
		harmlessMax int
	}{
		{"write-ahead log", isWAL, 0},
		{"table", isTable, 40},
		{"manifest", isManifest, 90},
		{"receipts", func(name string) bool { return name == receiptsName }, 0},
	} {
		t.Run(file.name, func(t *testing.T) {
			rng := seeded(t)
			d := crashedStore(t, 3)
			name := d.newest(t, file.match)
			content := readFile(t, d.fs, name)
			passed := 0
			for range 100 {
				bit := rng.IntN(len(content) * 8)
				flipped := slices.Clone(content)
				flipped[bit/8] ^= 1 << (bit % 8)
				if d.openDamaged(t, name, flipped) == nil {
					passed++
				}
			}
			t.Logf("%d of 100 flips were harmless", passed)
			require.LessOrEqual(t, passed, file.harmlessMax)
		})
	}
}

// The last record is the one that nothing after it vouches for.
func TestFlippedBitInTheLastRecordIsDetected(t *testing.T) {
	for _, flushes := range []int{0, 1, 3} {
		t.Run(fmt.Sprint(flushes, " flushes"), func(t *testing.T) {
			d := crashedStore(t, flushes)
			name := d.newest(t, isWAL)
			content := readFile(t, d.fs, name)
			for bit := (len(content) - 60) * 8; bit < len(content)*8; bit += 3 {
				flipped := slices.Clone(content)
				flipped[bit/8] ^= 1 << (bit % 8)
				require.ErrorIs(t, d.openDamaged(t, name, flipped), ErrCorrupt, "bit %d", bit)
			}
		})
	}
}

func TestCutBytesAreDetected(t *testing.T) {
	for _, file := range []struct {
		name  string
		match func(string) bool
	}{{"write-ahead log", isWAL}, {"table", isTable}} {
		t.Run(file.name, func(t *testing.T) {
			d := crashedStore(t, 2)
			name := d.newest(t, file.match)
			content := readFile(t, d.fs, name)
			for size := 0; size < len(content); size += 1 + len(content)/150 {
				require.Error(t, d.openDamaged(t, name, content[:size]), "cut to %d", size)
				holed := append(slices.Clone(content[:size]), content[size+1:]...)
				require.Error(t, d.openDamaged(t, name, holed), "without byte %d", size)
			}
		})
	}
	t.Run("manifest", func(t *testing.T) {
		// A cut manifest is an older one: harmless while the tables and logs it names are there.
		d := crashedStore(t, 2)
		name := d.newest(t, isManifest)
		content := readFile(t, d.fs, name)
		for size := 0; size < len(content); size += 1 + len(content)/150 {
			_ = d.openDamaged(t, name, content[:size])
		}
	})
}

func TestMissingFilesAreDetected(t *testing.T) {
	for name, match := range map[string]func(string) bool{
		"write-ahead log": isWAL, "table": isTable, "manifest": isManifest,
	} {
		t.Run(name, func(t *testing.T) {
			d := crashedStore(t, 2)
			require.NoError(t, d.fs.Remove(d.newest(t, match)))
			_, err := Open(testConfig(t, d.fs))
			require.Error(t, err)
		})
	}
}

// A store without its receipts is neither a store nor an empty directory.
func TestMissingReceiptsAreDetected(t *testing.T) {
	d := crashedStore(t, 1)
	config := testConfig(t, d.fs)
	require.NoError(t, d.fs.Remove(path.Join(testDir, receiptsName)))
	_, err := Open(config)
	require.ErrorIs(t, err, ErrNotCreated)
	config.Create = true
	_, err = Open(config)
	require.ErrorIs(t, err, ErrCorrupt)
}

// What was detected once is detected on every start, until somebody repairs it.
func TestRefusalIsRepeated(t *testing.T) {
	d := crashedStore(t, 1)
	name := d.newest(t, isWAL)
	content := readFile(t, d.fs, name)
	require.NoError(t, overwrite(d.fs, name, content[:len(content)-1]))
	for range 3 {
		_, err := Open(testConfig(t, d.fs))
		require.ErrorIs(t, err, ErrCorrupt)
	}
	require.NoError(t, overwrite(d.fs, name, content))
	s := reopened(t, testConfig(t, d.fs))
	requireLog(t, groupOf(t, s, 1), d.terms)
	require.NoError(t, s.Close())
}

// Damage in the values themselves, below Pebble's own checksums.
func TestRecordThatDoesNotVerifyIsRefused(t *testing.T) {
	damage := map[string]func(t *testing.T, s *Store){
		"flipped": func(t *testing.T, s *Store) {
			frame := frameOf(t, s, 4)
			frame[len(frame)-1] ^= 1
			require.NoError(t, s.db.Set(recordKey(1, 4), frame, nil))
		},
		"cut": func(t *testing.T, s *Store) {
			frame := frameOf(t, s, 4)
			require.NoError(t, s.db.Set(recordKey(1, 4), frame[:len(frame)-3], nil))
		},
		"empty": func(t *testing.T, s *Store) {
			require.NoError(t, s.db.Set(recordKey(1, 4), nil, nil))
		},
		"of another index": func(t *testing.T, s *Store) {
			require.NoError(t, s.db.Set(recordKey(1, 4), frameOf(t, s, 5), nil))
		},
		"missing": func(t *testing.T, s *Store) {
			require.NoError(t, s.db.Delete(recordKey(1, 4), nil))
		},
		"missing at the end": func(t *testing.T, s *Store) {
			require.NoError(t, s.db.Delete(recordKey(1, 9), nil))
		},
		"older version": func(t *testing.T, s *Store) {
			older := entriesOf(0, 4, 4)[0]
			frame := make([]byte, recordFrameBytes(older))
			putRecord(frame, 1, 0, older)
			require.NoError(t, s.db.Set(recordKey(1, 4), frame, nil))
		},
		"older version at the end": func(t *testing.T, s *Store) {
			older := entriesOf(0, 9, 9)[0]
			previous := openedLinks(t, frameOf(t, s, 8), 8).checksum
			frame := make([]byte, recordFrameBytes(older))
			putRecord(frame, 1, previous, older)
			require.NoError(t, s.db.Set(recordKey(1, 9), frame, nil))
		},
		"no state": func(t *testing.T, s *Store) {
			require.NoError(t, s.db.Delete(stateKey(1), nil))
		},
		"older state": func(t *testing.T, s *Store) {
			older := groupOf(t, s, 1).state
			older.commit--
			frame := make([]byte, older.frameBytes())
			older.put(frame, 1)
			require.NoError(t, s.db.Set(stateKey(1), frame, nil))
		},
	}
	for name, spoil := range damage {
		t.Run(name, func(t *testing.T) {
			config := testConfig(t, vfs.NewMem())
			s := created(t, config)
			require.NoError(t, groupOf(t, s, 1).StoreLogs(entriesOf(1, 1, 9)))
			require.NoError(t, groupOf(t, s, 1).Set([]byte("k"), []byte("v")))
			spoil(t, s)
			require.NoError(t, s.Close())
			_, err := Open(config)
			require.ErrorIs(t, err, ErrCorrupt)
		})
	}
}

func frameOf(t *testing.T, s *Store, index uint64) []byte {
	frame, err := groupOf(t, s, 1).read(index)
	require.NoError(t, err)
	return frame
}

func openedLinks(t *testing.T, frame []byte, index uint64) recordLinks {
	_, links, err := verifyRecord(frame, 1, index)
	require.NoError(t, err)
	return links
}

// A record that goes bad while the node runs is corruption too, and ends the node.
func TestRecordThatGoesBadIsAFault(t *testing.T) {
	config := testConfig(t, vfs.NewMem())
	faults := make(chan error, 2)
	config.OnFault = func(err error) { faults <- err }
	s := created(t, config)
	g := groupOf(t, s, 1)
	require.NoError(t, g.StoreLogs(entriesOf(1, 1, 9)))
	require.NoError(t, s.db.Delete(recordKey(1, 4), nil))

	require.ErrorIs(t, g.GetLog(4, new(raft.Log)), ErrCorrupt)
	require.ErrorIs(t, <-faults, ErrCorrupt)
	require.ErrorIs(t, g.StoreLogs(entriesOf(1, 10, 10)), ErrFaulted)
	require.ErrorIs(t, g.Set([]byte("k"), nil), ErrFaulted)
	require.ErrorIs(t, s.Close(), ErrFaulted)
	require.Empty(t, faults)
}
