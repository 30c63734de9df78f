// Package cluster runs a private PostgreSQL from the machine's own programs.
//
// A [Cluster] is one data directory and one postmaster, reached through a Unix socket that only
// its owner can open: no port, no password. It belongs to one process at a time, which a lock on
// the directory ensures. A postmaster that a killed process has left behind is stopped before the
// next one starts. It is meant for one machine; whoever has a PostgreSQL of their own gives its
// DSN instead.
//
// PostgreSQL refuses to run as root. Started by root it runs as the user postgres, or else nobody,
// and the directory is given to that user; where that user cannot enter the directory, because a
// parent is closed to it, it runs in a user namespace, in which the owner of the parents has
// another number than 0.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Config says where a Cluster is and how it runs.
type Config struct {
	// Dir holds the data and the log, and is made if it does not exist. Required, absolute.
	Dir string
	// Connections is how many may be open at once. Default 100; about 2 MB each.
	Connections int
	// Volatile forgoes every fsync: what is written is lost in a power cut. For tests.
	Volatile bool
}

const (
	user     = "numera"
	database = "numera"
	port     = "5432" // names the socket; nothing listens on TCP
)

// Cluster is a running PostgreSQL. Any goroutine may call it.
type Cluster struct {
	config  Config
	place   place
	lock    *os.File
	process *os.Process
	exited  chan struct{} // closed when the postmaster has ended
	err     error         // of its end; to be read after exited
}

// Start makes the data directory if there is none, starts PostgreSQL over it, and returns when it
// takes connections and its database exists: within seconds. Stop has to be called.
//
// Errors: ErrProgramsMissing, ErrInUse, or why PostgreSQL did not start, with the end of its log.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	if config.Connections == 0 {
		config.Connections = 100
	}
	if err := os.MkdirAll(config.Dir, 0o711); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	lock, err := lockFile(filepath.Join(config.Dir, "lock"))
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: config, lock: lock, exited: make(chan struct{})}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.place, err = prepare(c.config.Dir); err != nil {
		return err
	}
	if err := stopStale(ctx, c.place.data); err != nil {
		return err
	}
	if err := c.initialise(ctx); err != nil {
		return c.place.explain(err)
	}
	if err := c.launch(); err != nil {
		return c.place.explain(err)
	}
	if err := c.await(ctx); err != nil {
		return errors.Join(err, c.end())
	}
	return nil
}

// initialise makes the data directory. It gets its name when it is whole, so that one which was
// interrupted is made again.
func (c *Cluster) initialise(ctx context.Context) error {
	if _, err := os.Stat(c.place.data); err == nil {
		return nil
	}
	fresh := c.place.data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if err := c.place.mkdir(fresh, 0o700); err != nil {
		return err
	}
	initdb := exec.CommandContext(ctx, filepath.Join(c.place.programs, "initdb"),
		"--pgdata", fresh, "--username", user, "--auth", "trust", "--encoding", "UTF8",
		"--locale", "C", "--no-sync", "--no-instructions")
	c.place.attend(initdb, fresh)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("cluster: initdb: %w: %s", err, out)
	}
	if err := os.Rename(fresh, c.place.data); err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	if !c.config.Volatile {
		syscall.Sync() // in place of initdb's own, which syncs file by file
	}
	return nil
}

// settings are given at each start, so that they are those of this program and not of the one that
// made the directory. They leave the machine's memory and processors to the shards.
func (c *Cluster) settings() []string {
	all := []string{
		"listen_addresses=", "unix_socket_directories=" + c.place.socket,
		"unix_socket_permissions=0700", "port=" + port,
		"max_connections=" + strconv.Itoa(c.config.Connections),
		"shared_buffers=128MB", "wal_level=minimal", "max_wal_senders=0", "max_wal_size=2GB",
		"checkpoint_timeout=10min", "max_parallel_workers_per_gather=0", "jit=off",
		"timezone=UTC", "log_timezone=UTC", "log_checkpoints=off",
		// A statement may hold what nobody may read in a log.
		"log_min_error_statement=panic", "log_parameter_max_length_on_error=0",
		"log_error_verbosity=terse",
	}
	if c.config.Volatile {
		all = append(all, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
	}
	return all
}

// launch starts the postmaster. The kernel stops it when this process ends without doing so, which
// it tells by the thread: the goroutine keeps one for as long as the postmaster lives.
func (c *Cluster) launch() error {
	log, err := os.OpenFile(c.place.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	defer log.Close()
	arguments := []string{"-D", c.place.data}
	for _, setting := range c.settings() {
		arguments = append(arguments, "-c", setting)
	}
	postmaster := exec.Command(filepath.Join(c.place.programs, "postgres"), arguments...)
	c.place.attend(postmaster, c.place.data)
	postmaster.Stdout, postmaster.Stderr = log, log
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := postmaster.Start(); err != nil {
			started <- fmt.Errorf("cluster: %w", err)
			return
		}
		c.process = postmaster.Process
		started <- nil
		c.err = postmaster.Wait()
		close(c.exited)
	}()
	return <-started
}

const (
	readyPause = 20 * time.Millisecond
	endPause   = 20 * time.Millisecond
)

// await returns when PostgreSQL takes connections and has its database.
func (c *Cluster) await(ctx context.Context) error {
	for {
		err := c.ensureDatabase(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("cluster: PostgreSQL ended: %w: %s", c.err, tail(c.place.log))
		case <-ctx.Done():
			return fmt.Errorf("cluster: PostgreSQL is not ready: %w", err)
		case <-time.After(readyPause):
		}
	}
}

func (c *Cluster) ensureDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, dsn(c.config.Dir, "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+database)
	var failure *pgconn.PgError
	if errors.As(err, &failure) && failure.Code == duplicateDatabase {
		return nil
	}
	return err
}

const duplicateDatabase = "42P04"

// DSN is how the database of the cluster in dir is reached, by this process's user and by root,
// once it runs. It holds no secret.
func DSN(dir string) string { return dsn(dir, database) }

func dsn(dir, name string) string {
	return fmt.Sprintf("host=%s port=%s user=%s dbname=%s", socketDir(dir), port, user, name)
}

// DSN is that of its directory.
func (c *Cluster) DSN() string { return DSN(c.config.Dir) }

// Exited is closed when the postmaster has ended, asked to or not.
func (c *Cluster) Exited() <-chan struct{} { return c.exited }

// stopPatience is how long a clean stop may take before an unclean one, after which the next start
// replays the log.
const stopPatience = 20 * time.Second

// Stop ends all connections and stops PostgreSQL cleanly. It may be called more than once.
func (c *Cluster) Stop() error {
	return errors.Join(c.end(), ignoreClosed(c.lock.Close()))
}

func (c *Cluster) end() error {
	for _, how := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		if err := c.process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("cluster: stop: %w", err)
		}
		select {
		case <-c.exited:
			return nil
		case <-time.After(stopPatience):
		}
	}
	return errors.New("cluster: PostgreSQL does not stop")
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// tail is the end of PostgreSQL's log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "; ")
}
