package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"numera/engine/inventory"
	"numera/wal"
)

// The bounds of a log entry as the defaults of shard.Config, and as many entries in flight as serve the
// floor best: here one counts until it is answered, there until the engine begins with it.
const (
	floorCommands = 512
	floorBytes    = 256 << 10
	floorInFlight = 4
	floorQueue    = 8192
)

// floorLoop is the least that must be done to make commands durable with Raft and Pebble: check,
// seal and encode each as package shard does, a queue, one log entry of whatever waits in it, an
// fsync, a state machine that does nothing, and an answer to each. It is a single voter like a
// shard of a node alone. It is not package shard's loop with another state machine, so that what is
// slow there shows. Its answers have the order that was asked for, so that the client has as much to
// check.
type floorLoop struct {
	// bare, where set, is what every command is: then nothing is made of it either, and the loop
	// is the floor of any system on Raft and Pebble.
	bare    []byte
	secret  []byte
	store   *wal.Store
	raft    *raft.Raft
	queue   chan *call
	slots   chan struct{} // one for each entry under way
	flying  chan floorEntry
	stop    chan struct{}
	running sync.WaitGroup
	closers []func() error
}

type floorEntry struct {
	future raft.ApplyFuture
	calls  []*call
}

// openFloor starts the loop below dir. bare is how many bytes a command has of which nothing is
// made; 0: commands are real.
func openFloor(ctx context.Context, dir string, bare int) (f *floorLoop, err error) {
	f = &floorLoop{
		bare: make([]byte, bare), secret: make([]byte, 32), queue: make(chan *call, floorQueue),
		slots: make(chan struct{}, floorInFlight), flying: make(chan floorEntry, floorInFlight),
		stop: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: start the floor: %w", ErrIncomplete, err), f.close())
		}
	}()
	if dir, err = os.MkdirTemp(dir, "numera-floor-"); err != nil {
		return f, err
	}
	f.onClose(func() error { return os.RemoveAll(dir) })
	f.store, err = wal.Open(wal.Config{
		Dir: filepath.Join(dir, "wal"), Owner: "floor", Create: true,
		OnFault: func(err error) { panic(fmt.Sprintf("bench: storage fault: %v", err)) },
	})
	if err != nil {
		return f, err
	}
	f.onClose(f.store.Close)
	if err := f.startRaft(); err != nil {
		return f, err
	}
	f.onClose(func() error { return f.raft.Shutdown().Error() })
	for f.raft.VerifyLeader().Error() != nil {
		if ctx.Err() != nil {
			return f, ctx.Err()
		}
		pause(ctx, 5*time.Millisecond)
	}
	f.onClose(func() error {
		close(f.stop)
		f.running.Wait()
		return nil
	})
	f.running.Add(2)
	go f.propose()
	go f.settle()
	return f, nil
}

func (f *floorLoop) onClose(g func() error) { f.closers = append(f.closers, g) }

func (f *floorLoop) close() error {
	var errs []error
	for i := len(f.closers) - 1; i >= 0; i-- {
		errs = append(errs, f.closers[i]())
	}
	return errors.Join(errs...)
}

// startRaft configures raft as package shard does.
func (f *floorLoop) startRaft() error {
	group, err := f.store.Group(0)
	if err != nil {
		return err
	}
	address, transport := raft.NewInmemTransport("")
	c := raft.DefaultConfig()
	c.LocalID = "floor"
	c.HeartbeatTimeout, c.ElectionTimeout = 150*time.Millisecond, 150*time.Millisecond
	c.LeaderLeaseTimeout = 75 * time.Millisecond
	c.CommitTimeout = 50 * time.Millisecond
	c.BatchApplyCh = true
	c.MaxAppendEntries = 16
	c.SnapshotInterval, c.SnapshotThreshold = time.Hour, 1<<40
	c.NoLegacyTelemetry = true
	c.Logger = hclog.NewNullLogger()
	snapshots := raft.NewDiscardSnapshotStore()
	alone := raft.Configuration{Servers: []raft.Server{{ID: c.LocalID, Address: address}}}
	if err := raft.BootstrapCluster(c, group, group, snapshots, transport, alone); err != nil {
		return err
	}
	logs, err := raft.NewLogCache(256, group)
	if err != nil {
		return err
	}
	f.raft, err = raft.NewRaft(c, emptyFSM{}, logs, group, snapshots, transport)
	return err
}

// start implements peer.
func (f *floorLoop) start(c *call) {
	c.encoded = f.bare
	if len(f.bare) == 0 {
		command := c.op.command(&c.reserve)
		if refusal := command.Check(); refusal != nil {
			c.finish(outcomeAnswer(refusal))
			return
		}
		inventory.SealKey(command, f.secret)
		c.encoded = inventory.AppendEntry(c.encoded[:0], inventory.Entry{Command: command})
	}
	f.queue <- c
}

func (f *floorLoop) propose() {
	defer f.running.Done()
	defer close(f.flying)
	for {
		f.slots <- struct{}{}
		calls := make([]*call, 0, 256)
		select {
		case <-f.stop:
			return
		case c := <-f.queue:
			calls = append(calls, c)
		}
		size := len(calls[0].encoded)
	gather:
		for len(calls) < floorCommands && size < floorBytes {
			select {
			case c := <-f.queue:
				calls = append(calls, c)
				size += len(c.encoded)
			default:
				break gather
			}
		}
		entry := inventory.AppendBatchHeader(make([]byte, 0, size+64), time.Now().UnixMilli(), 0)
		for _, c := range calls {
			entry = append(entry, c.encoded...)
		}
		inventory.SealBatch(entry)
		f.flying <- floorEntry{f.raft.Apply(entry, time.Second), calls}
	}
}

// granted is the order of a reservation, in memory that the call uses again.
func (c *call) granted() *inventory.OrderView {
	if c.order.Items == nil {
		c.order.Items = []inventory.ItemView{{Numbers: make([]uint32, c.op.quantity)}}
	}
	c.order.Buyer = c.reserve.Buyer
	c.order.Items[0].Product = c.op.product
	return &c.order
}

func (f *floorLoop) settle() {
	defer f.running.Done()
	for e := range f.flying {
		err := e.future.Error()
		<-f.slots
		for _, c := range e.calls {
			if err != nil {
				c.finish(answer{verdict: unanswered, code: "outcome_unknown"})
				continue
			}
			c.finish(answer{code: "ok", order: c.granted()})
		}
	}
}

// emptyFSM is a state machine without a state.
type emptyFSM struct{}

var _ raft.BatchingFSM = emptyFSM{}

// Apply implements raft.FSM.
func (emptyFSM) Apply(*raft.Log) any { return nil }

// ApplyBatch implements raft.BatchingFSM.
func (emptyFSM) ApplyBatch(logs []*raft.Log) []any { return make([]any, len(logs)) }

// Snapshot implements raft.FSM. The floor takes none.
func (emptyFSM) Snapshot() (raft.FSMSnapshot, error) { return nil, raft.ErrNothingNewToSnapshot }

// Restore implements raft.FSM.
func (emptyFSM) Restore(r io.ReadCloser) error { return r.Close() }
