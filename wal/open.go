package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
)

// Open opens the store in config.Dir, or initialises it when config.Create says so. It returns
// ErrNotCreated, ErrAlreadyCreated, ErrWrongOwner, or an error that wraps ErrCorrupt, in which
// case no file was changed. Opening reads every live record, at some 250 MB a second.
func Open(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	s := &Store{
		config:    config,
		fault:     newFault(),
		groups:    make(map[uint16]*Group),
		stopWatch: make(chan struct{}),
		watchDone: make(chan struct{}),
	}
	s.awakeNanos.Store(1) // 0 means "no write in flight"
	if err := s.fault.guard(s.open); err != nil {
		return nil, fmt.Errorf("open store in %s: %w", config.Dir, err)
	}
	s.serving.Store(true)
	go s.watch()
	return s, nil
}

func (s *Store) open() error {
	exists, err := s.initialised()
	switch {
	case err != nil:
		return err
	case exists && s.config.Create:
		return ErrAlreadyCreated
	case !exists && !s.config.Create:
		return ErrNotCreated
	case exists:
		return s.openExisting()
	default:
		return s.create()
	}
}

func (s *Store) initialised() (bool, error) {
	fs := s.config.FS
	_, err := fs.Stat(fs.PathJoin(s.config.Dir, receiptsName))
	if oserror.IsNotExist(err) {
		return false, nil
	}
	return err == nil, err
}

// create makes an empty database, or takes over one that an interrupted first boot left, and
// then the receipts, which make it a store.
func (s *Store) create() (err error) {
	if s.db, err = pebble.Open(s.config.Dir, s.pebbleOptions()); err != nil {
		return asCorrupt(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	states, err := readStates(s.db)
	if err != nil {
		return err
	}
	if len(states) > 0 {
		return fmt.Errorf("%w: %d groups and no receipts", ErrCorrupt, len(states))
	}
	if err := createReceipts(s.config.FS, s.config.Dir, s.config.Owner); err != nil {
		return err
	}
	s.receipts, err = openReceipts(s.config.FS, s.config.Dir)
	return err
}

// openExisting verifies the store through a read-only database before it opens it for writing.
// Pebble takes damage in the last block of its log for the end of the log; opened for writing it
// would flush what comes before and delete the rest, and with it the evidence.
func (s *Store) openExisting() (err error) {
	owner, commits, err := readReceipts(s.config.FS, s.config.Dir)
	if err != nil {
		return err
	}
	if owner != s.config.Owner {
		return fmt.Errorf("%w: %q, not %q", ErrWrongOwner, owner, s.config.Owner)
	}
	if s.lock, err = pebble.LockDirectory(s.config.Dir, s.config.FS); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	states, err := s.verifyReadOnly(commits)
	if err != nil {
		return err
	}
	options := s.pebbleOptions()
	options.ErrorIfNotExists = true
	options.Lock = s.lock
	if s.db, err = pebble.Open(s.config.Dir, options); err != nil {
		return asCorrupt(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.db.Close())
		}
	}()
	if s.receipts, err = openReceipts(s.config.FS, s.config.Dir); err != nil {
		return err
	}
	return s.adopt(states)
}

func (s *Store) verifyReadOnly(commits map[uint16]uint64) (states map[uint16]state, err error) {
	options := s.pebbleOptions()
	options.ReadOnly = true
	options.Lock = s.lock
	db, err := pebble.Open(s.config.Dir, options)
	if err != nil {
		return nil, asCorrupt(err)
	}
	defer func() {
		if errClose := db.Close(); err == nil {
			err = errClose
		}
	}()
	if states, err = readStates(db); err != nil {
		return nil, err
	}
	for group, commit := range commits {
		// A group that is missing has made 0 commits.
		if found := states[group].commit; found < commit {
			return nil, fmt.Errorf("group %d: %w: commit %d was acknowledged and %d is the last",
				group, ErrCorrupt, commit, found)
		}
	}
	for group, st := range states {
		if err := verifyLog(db, group, &st); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// adopt makes the groups of the verified states. Pebble has flushed them by now, also the last
// commits, which may not have been acknowledged: raft is about to read them, so they are signed.
func (s *Store) adopt(states map[uint16]state) error {
	for id, st := range states {
		var slot [receiptBytes]byte
		if err := s.receipts.sign(&slot, id, st.commit); err != nil {
			return err
		}
	}
	if err := s.receipts.file.Sync(); err != nil {
		return fmt.Errorf("sync receipts: %w", err)
	}
	for id, st := range states {
		s.groups[id] = s.newGroup(id, st)
	}
	return nil
}

func readStates(db *pebble.DB) (states map[uint16]state, err error) {
	iter, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{byte(kindState)},
		UpperBound: []byte{byte(kindState) + 1},
	})
	if err != nil {
		return nil, asCorrupt(err)
	}
	defer func() { err = errors.Join(err, asCorrupt(iter.Close())) }()
	states = make(map[uint16]state)
	for valid := iter.First(); valid; valid = iter.Next() {
		key := iter.Key()
		if len(key) != stateKeyBytes {
			return nil, fmt.Errorf("%w: key %x", ErrCorrupt, key)
		}
		group := binary.BigEndian.Uint16(key[1:])
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, asCorrupt(err)
		}
		if states[group], err = getState(value, group); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// verifyLog walks the records that the state says there are. It starts at the first of them: a
// seek from the start of the group's keys would wade through everything deleted since the last
// compaction.
func verifyLog(db *pebble.DB, group uint16, st *state) (err error) {
	if st.empty() {
		return nil
	}
	iter, err := db.NewIter(&pebble.IterOptions{
		LowerBound: recordKey(group, st.first),
		UpperBound: recordKey(group, st.last+1),
	})
	if err != nil {
		return asCorrupt(err)
	}
	defer func() { err = errors.Join(err, asCorrupt(iter.Close())) }()
	index, checksum := st.first, uint32(0)
	for valid := iter.First(); valid; valid = iter.Next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return asCorrupt(err)
		}
		_, links, err := verifyRecord(value, group, index)
		if err != nil {
			return err
		}
		if index > st.first && links.previous != checksum {
			return fmt.Errorf("group %d, index %d: %w: not the successor of the record before",
				group, index, ErrCorrupt)
		}
		index, checksum = index+1, links.checksum
	}
	if err := iter.Error(); err != nil {
		return asCorrupt(err)
	}
	if index != st.last+1 {
		return fmt.Errorf("group %d, index %d: %w: log ends before %d",
			group, index, ErrCorrupt, st.last)
	}
	if checksum != st.lastChecksum {
		return fmt.Errorf("group %d, index %d: %w: not the record stored last",
			group, st.last, ErrCorrupt)
	}
	return nil
}

// asCorrupt marks what Pebble calls corruption with our own error.
func asCorrupt(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

func (s *Store) pebbleOptions() *pebble.Options {
	options := &pebble.Options{
		FS:                          strictFS{s.config.FS, s.fault},
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      pebbleLogger{s.config.Logger, s.fault},
		MemTableSize:                s.config.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		EventListener:               s.listener(),
	}
	if interval := s.config.MinSyncInterval; interval > 0 {
		options.WALMinSyncInterval = func() time.Duration { return interval }
	}
	options.WithFSDefaults()
	return options
}

func (s *Store) listener() *pebble.EventListener {
	logger, c := s.config.Logger, &s.counters
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			c.backgroundErrors.Add(1)
			logger.Error("background error in the store", "error", err)
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			logger.Error("damaged file in the store", "path", info.Path, "error", info.Details)
			if s.serving.Load() {
				s.fault.raise(fmt.Errorf("%w: %s: %w", ErrCorrupt, info.Path, info.Details))
			}
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			c.slowOperations.Add(1)
			logger.Warn("slow disk", "operation", info.String())
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			c.writeStalls.Add(1)
			logger.Warn("store holds writes back", "reason", info.Reason)
		},
	}
}
