package shard

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"numera/wal"
)

// keptSnapshots is how many snapshots of a shard are kept: the newest, and one that takes its place
// when it cannot be read.
const keptSnapshots = 2

// snapshots are a shard's snapshot files. Raft guards the state in them by a checksum, and keeps
// that with the index, the term and the voters in a file that nothing guards: one flipped bit there
// would skip a part of the log. So the state is preceded by a checksum of the description.
type snapshots struct {
	*raft.FileSnapshotStore
	dir    string // holds the folder of the files, and what was set aside
	logger *slog.Logger
}

func openSnapshots(dir string, logger *slog.Logger, raftLogger hclog.Logger) (*snapshots, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, raftLogger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	return &snapshots{FileSnapshotStore: store, dir: dir, logger: logger}, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(
	version raft.SnapshotVersion, index, term uint64,
	voters raft.Configuration, votersIndex uint64, peers raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, voters, votersIndex, peers)
	if err != nil {
		return nil, err
	}
	sum := describe(&raft.SnapshotMeta{
		ID: sink.ID(), Index: index, Term: term,
		Configuration: voters, ConfigurationIndex: votersIndex,
	})
	if _, err := sink.Write(sum[:]); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

// Open implements raft.SnapshotStore.
func (s *snapshots) Open(name string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, state, err := s.FileSnapshotStore.Open(name)
	if err != nil {
		return nil, nil, err
	}
	var sum [4]byte
	if _, err := io.ReadFull(state, sum[:]); err != nil {
		return nil, nil, errors.Join(err, state.Close())
	}
	if sum != describe(meta) || meta.ID != name {
		return nil, nil, errors.Join(errors.New("its description is damaged"), state.Close())
	}
	meta.Size -= int64(len(sum))
	return meta, state, nil
}

// describe is the checksum of what raft keeps beside the state.
func describe(m *raft.SnapshotMeta) (sum [4]byte) {
	text := fmt.Appendf(nil, "%s %d %d %d ", m.ID, m.Index, m.Term, m.ConfigurationIndex)
	text = append(text, raft.EncodeConfiguration(m.Configuration)...)
	binary.BigEndian.PutUint32(sum[:], crc32.Checksum(text, castagnoli))
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// kept is a snapshot as the name of its folder tells.
type kept struct {
	name                 string
	term, index, written uint64
}

func (s *snapshots) files() string { return filepath.Join(s.dir, "snapshots") }

// kept lists the snapshots, the newest first.
func (s *snapshots) kept() (all []kept, err error) {
	entries, err := os.ReadDir(s.files())
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	for _, entry := range entries {
		k := kept{name: entry.Name()}
		n, _ := fmt.Sscanf(k.name, "%d-%d-%d", &k.term, &k.index, &k.written)
		if n == 3 && entry.IsDir() && !strings.HasSuffix(k.name, half) {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b kept) int {
		return -cmp.Or(
			cmp.Compare(a.term, b.term), cmp.Compare(a.index, b.index),
			cmp.Compare(a.written, b.written))
	})
	return all, nil
}

// restore gives the newest snapshot that can be read to use, and refuses a log that does not go on
// from it: that would be a shorter history. Newer ones, which cannot be read, are set aside, so
// that raft takes the same one. Nothing is changed when it refuses.
func (s *snapshots) restore(logs *wal.Group, use func(io.ReadCloser) error) error {
	all, err := s.kept()
	if err != nil {
		return err
	}
	var from *raft.SnapshotMeta
	var unreadable []kept
	for _, k := range all {
		if from, err = s.read(k, use); err == nil {
			break
		}
		s.logger.Error("a snapshot cannot be read", "snapshot", k.name, "error", err)
		unreadable, from = append(unreadable, k), nil
	}
	if from == nil {
		from = &raft.SnapshotMeta{}
	}
	first, err := logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if first > from.Index+1 || first == 0 && from.Index == 0 {
		return fmt.Errorf("%w: the log starts at %d and the newest readable snapshot ends at %d: "+
			"restore the snapshots folder", ErrCluster, first, from.Index)
	}
	if err := s.discardDiverged(logs, from); err != nil {
		return err
	}
	if err := s.removeHalf(); err != nil {
		return err
	}
	for _, k := range unreadable {
		aside := filepath.Join(s.dir, k.name+".unreadable")
		if err := os.Rename(filepath.Join(s.files(), k.name), aside); err != nil {
			return fmt.Errorf("set a snapshot aside: %w", err)
		}
	}
	return nil
}

// half ends the name of a snapshot that is being written. Raft removes it when it fails, but not when
// the process ends meanwhile.
const half = ".tmp"

// removeHalf removes what was half written: a snapshot may be large, and a process may end often.
func (s *snapshots) removeHalf() error {
	found, err := filepath.Glob(filepath.Join(s.files(), "*"+half))
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, path := range found {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove a half written snapshot: %w", err)
		}
	}
	return nil
}

func (s *snapshots) read(k kept, use func(io.ReadCloser) error) (*raft.SnapshotMeta, error) {
	meta, state, err := s.Open(k.name)
	if err != nil {
		return nil, err
	}
	return meta, use(state)
}

// errDiverged is returned when the log has another entry where a snapshot ends: nothing from there
// on was ever committed, and raft would never get rid of it (its issue 697).
var errDiverged = errors.New("shard: the log diverges from a snapshot that was installed")

// diverged compares the log with the snapshot's end. No entry there is no divergence: the log may
// go on after a gap with entries that this replica has acknowledged.
func diverged(logs *wal.Group, term, index uint64) error {
	var entry raft.Log
	switch err := logs.GetLog(index, &entry); {
	case err == raft.ErrLogNotFound || err == nil && entry.Term == term:
		return nil
	case err != nil:
		return fmt.Errorf("read log: %w", err)
	}
	return fmt.Errorf("%w: index %d is of term %d, not %d", errDiverged, index, entry.Term, term)
}

// discardDiverged empties a log that diverges from the snapshot. Where only this replica votes
// nobody can have sent the snapshot: then it is of another log.
func (s *snapshots) discardDiverged(logs *wal.Group, from *raft.SnapshotMeta) error {
	err := diverged(logs, from.Term, from.Index)
	switch {
	case !errors.Is(err, errDiverged):
		return err
	case len(from.Configuration.Servers) < 2:
		return fmt.Errorf("%w: %w", ErrCluster, err)
	}
	s.logger.Warn("discarding a log that was never committed", "reason", err)
	return logs.DiscardLog()
}

// checkInstalled says whether the log fits the snapshot that a leader has just installed.
func (s *snapshots) checkInstalled(logs *wal.Group) error {
	all, err := s.kept()
	if err != nil || len(all) == 0 {
		return err
	}
	return diverged(logs, all[0].term, all[0].index)
}

// cut deletes the log before the end of the oldest snapshot, once there are as many as are kept.
// Raft itself is told not to: it would count entries back from the end of the log, and an estimate
// too low would leave a snapshot that the log does not go on from. The entry at the snapshot's end
// stays, to be compared.
func (s *snapshots) cut(logs *wal.Group) error {
	all, err := s.kept()
	if err != nil || len(all) < keptSnapshots {
		return err
	}
	return logs.DeleteRange(0, all[keptSnapshots-1].index-1)
}
