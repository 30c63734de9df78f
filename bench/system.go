package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"numera/engine/inventory"
	"numera/gateway/shards"
	"numera/shard"
	"numera/shard/clock"
)

// system is a whole numera in this process: NATS, a node with its shards on a real disk, and the
// client of the shards. Close it to remove its data.
type system struct {
	dir      string
	registry *prometheus.Registry
	nats     *natsserver.Server
	node     *shard.Node
	client   *shards.Client
	closers  []func() error
	fault    chan error // capacity 1
}

// openSystem starts a system below dir, which serves when it returns. Where outbox is not 0, it is how
// many events a shard keeps at most.
func openSystem(
	ctx context.Context, dir string, shardCount, outbox int,
) (s *system, err error) {
	s = &system{registry: prometheus.NewRegistry(), fault: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: start the system: %w", ErrIncomplete, err), s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp(dir, "numera-bench-"); err != nil {
		return s, err
	}
	s.onClose(func() error { return os.RemoveAll(s.dir) })
	if err := s.startNATS(); err != nil {
		return s, err
	}
	conn, err := s.connect()
	if err != nil {
		return s, err
	}
	limits := inventory.DefaultLimits()
	limits.OutboxEvents = cmp.Or(outbox, limits.OutboxEvents)
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	s.node, err = shard.Open(shard.Config{
		Dir: filepath.Join(s.dir, "shards"), Shards: shardCount, Conn: conn,
		Clock: clock.New(clock.NewSystem(), quiet), Logger: quiet, Registerer: s.registry,
		ElectionTimeout: 150 * time.Millisecond, OnFault: s.onFault, Limits: limits,
	})
	if err != nil {
		return s, err
	}
	s.onClose(s.node.Close)
	ready, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.node.Ready(ready); err != nil {
		return s, err
	}
	if conn, err = s.connect(); err != nil {
		return s, err
	}
	if s.client, err = shards.New(conn, shards.Config{}); err != nil {
		return s, err
	}
	s.onClose(func() error { s.client.Close(); return nil })
	return s, nil
}

func (s *system) onClose(f func() error) { s.closers = append(s.closers, f) }

func (s *system) onFault(err error) {
	select {
	case s.fault <- err:
	default:
	}
}

func (s *system) startNATS() (err error) {
	s.nats, err = natsserver.NewServer(&natsserver.Options{DontListen: true, NoSigs: true, NoLog: true})
	if err != nil {
		return err
	}
	s.nats.Start()
	s.onClose(func() error {
		s.nats.Shutdown()
		s.nats.WaitForShutdown()
		return nil
	})
	return nil
}

func (s *system) connect() (*nats.Conn, error) {
	conn, err := nats.Connect("", nats.InProcessServer(s.nats), nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1))
	if err != nil {
		return nil, err
	}
	s.onClose(func() error { conn.Close(); return nil })
	return conn, nil
}

// close stops what was started, in reverse, and removes the data.
func (s *system) close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	select {
	case err := <-s.fault:
		errs = append(errs, fmt.Errorf("%w: storage fault: %w", ErrIncomplete, err))
	default:
	}
	return errors.Join(errs...)
}
