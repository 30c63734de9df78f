package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// childDir tells this test binary to run a cluster there until it is killed.
const childDir = "NUMERA_TEST_CLUSTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		c, err := Start(context.Background(), Config{Dir: dir, Volatile: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(c.DSN())
		_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or told to go
		if err := c.Stop(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// openDir makes a directory that everybody may enter, unlike the one that testing makes.
func openDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "numera-cluster-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o711))
	return dir
}

func start(t *testing.T, config Config) *Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := Start(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Stop()) })
	return c
}

// query gives the text of one value.
func query(t *testing.T, dsn, sql string) (value string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	require.NoError(t, conn.QueryRow(ctx, sql).Scan(&value))
	return value
}

func execute(t *testing.T, dsn, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	require.NoError(t, err)
}

// TestStartAgain stops a cluster and starts it again: its data are there, durable settings on, and
// nobody else gets at it meanwhile.
func TestStartAgain(t *testing.T) {
	dir := filepath.Join(openDir(t), "postgres")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data.new", "half"), 0o700)) // interrupted
	c := start(t, Config{Dir: dir})
	require.Equal(t, "on", query(t, c.DSN(), "SHOW fsync"))
	require.Empty(t, query(t, c.DSN(), "SHOW listen_addresses"))
	execute(t, c.DSN(), "CREATE TABLE kept AS SELECT 'here' AS what")
	_, err := Start(context.Background(), Config{Dir: dir})
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, c.Stop())
	require.NoError(t, c.Stop(), "twice")

	c = start(t, Config{Dir: dir, Connections: 10})
	require.Equal(t, "here", query(t, c.DSN(), "SELECT what FROM kept"))
	require.Equal(t, "10", query(t, c.DSN(), "SHOW max_connections"))
}

// child runs a cluster in a process of its own and gives its DSN.
func child(t *testing.T, binary, dir string, as *syscall.Credential) (*exec.Cmd, string) {
	t.Helper()
	process := exec.Command(binary)
	process.Env = append(os.Environ(), childDir+"="+dir)
	process.Dir = dir
	process.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	_, err := process.StdinPipe() // stays open as long as this process runs
	require.NoError(t, err)
	out, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "host=")
	return process, strings.TrimSpace(line)
}

// TestAfterAKill starts over what killed processes have left, one after the other.
func TestAfterAKill(t *testing.T) {
	dir := openDir(t)
	process, dsn := child(t, os.Args[0], dir, nil)
	execute(t, dsn, "CREATE TABLE kept AS SELECT 'here' AS what")
	require.NoError(t, process.Process.Kill())
	require.Error(t, process.Wait())
	c := start(t, Config{Dir: dir, Volatile: true})
	require.Equal(t, "here", query(t, c.DSN(), "SELECT what FROM kept"))

	t.Run("its postmaster still runs", func(t *testing.T) {
		require.NoError(t, c.lock.Close())
		next := start(t, Config{Dir: dir, Volatile: true})
		<-c.Exited()
		require.Equal(t, "here", query(t, next.DSN(), "SELECT what FROM kept"))
	})
	t.Run("another process has its number, as after a restart of a container", func(t *testing.T) {
		other := exec.Command("sleep", "60")
		other.SysProcAttr = &syscall.SysProcAttr{Credential: c.place.owner}
		require.NoError(t, other.Start())
		defer func() {
			require.NoError(t, other.Process.Kill())
			require.Error(t, other.Wait())
		}()
		file := filepath.Join(c.place.data, "postmaster.pid")
		text := fmt.Appendf(nil, "%d\n%s\n", other.Process.Pid, c.place.data)
		require.NoError(t, os.WriteFile(file, text, 0o644))
		start(t, Config{Dir: dir, Volatile: true})
		require.NoError(t, other.Process.Signal(syscall.Signal(0)), "it was left alone")
	})
}

// TestClosedParent puts the data below a directory that only its owner may enter, and under a path
// that is too long for a socket.
func TestClosedParent(t *testing.T) {
	parent := openDir(t)
	require.NoError(t, os.Chmod(parent, 0o700))
	dir := filepath.Join(parent, strings.Repeat("long", 20))
	c := start(t, Config{Dir: dir, Volatile: true})
	require.Equal(t, "1", query(t, c.DSN(), "SELECT '1'"))
	require.False(t, strings.HasPrefix(c.place.socket, dir))
	require.NoError(t, c.Stop())
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(c.place.socket)) })

	require.NoError(t, os.Chmod(parent, 0o711))
	c = start(t, Config{Dir: dir, Volatile: true})
	require.Equal(t, "1", query(t, c.DSN(), "SELECT '1'"), "open, the same data have another owner")
}

// TestAsUser runs a cluster as somebody who is not root.
func TestAsUser(t *testing.T) {
	dir, binary := openDir(t), os.Args[0]
	var who *syscall.Credential
	if os.Geteuid() == 0 {
		var err error
		who, err = unprivileged()
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, int(who.Uid), int(who.Gid)))
		text, err := os.ReadFile(binary) // is where only root gets at it
		require.NoError(t, err)
		binary = filepath.Join(dir, "cluster.test")
		require.NoError(t, os.WriteFile(binary, text, 0o755))
	}
	process, dsn := child(t, binary, dir, who)
	require.Equal(t, "numera", query(t, dsn, "SELECT current_user::text"))
	require.NoError(t, process.Process.Kill())
	require.Error(t, process.Wait())
	start(t, Config{Dir: dir, Volatile: true})
}

// TestProgramsMissing has data of a PostgreSQL that nobody has installed.
func TestProgramsMissing(t *testing.T) {
	dir := openDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("8\n"), 0o644))
	_, err := Start(context.Background(), Config{Dir: dir})
	require.ErrorIs(t, err, ErrProgramsMissing)
	require.ErrorContains(t, err, "apt-get install postgresql-8")
}

// TestDoesNotStart has a data directory that is none.
func TestDoesNotStart(t *testing.T) {
	dir := openDir(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data"), 0o700))
	_, err := Start(context.Background(), Config{Dir: dir})
	require.ErrorContains(t, err, "PostgreSQL ended")
	require.ErrorContains(t, err, "postgresql.conf", "the log says why")
}

// TestNoNamespace is what is said below a closed directory where there are no user namespaces.
func TestNoNamespace(t *testing.T) {
	p := place{data: "/root/numera/data", shut: true}
	err := p.explain(&fs.PathError{Op: "fork/exec", Path: "initdb", Err: syscall.EPERM})
	require.ErrorIs(t, err, syscall.EPERM)
	require.ErrorContains(t, err, "chmod o+x")
	require.Equal(t, io.EOF, p.explain(io.EOF))
}
