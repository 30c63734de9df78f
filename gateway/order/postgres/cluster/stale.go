package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockFile locks a file for as long as this process lives or the file stays open.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s", ErrInUse, filepath.Dir(path)), f.Close())
	}
	return f, nil
}

// stopStale stops the postmaster that a killed process has left over data. The lock is held: nobody
// needs it any more.
func stopStale(ctx context.Context, data string) error {
	file := filepath.Join(data, "postmaster.pid")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || !worksIn(pid, data) {
		// What has the number by now is something else, which PostgreSQL cannot know.
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cluster: %w", err)
		}
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cluster: stop what an earlier process has left: %w", err)
	}
	for worksIn(pid, data) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("cluster: what an earlier process has left, %d, does not stop: %w",
				pid, ctx.Err())
		case <-time.After(endPause):
		}
	}
	return nil
}

// worksIn says that a process lives and works in dir, as a postmaster does in its data directory.
func worksIn(pid int, dir string) bool {
	at, err := os.Stat(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
	if err != nil {
		return false
	}
	data, err := os.Stat(dir)
	return err == nil && os.SameFile(at, data)
}
