package wal

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// fault holds the first storage error. Any goroutine may raise it; after that it never changes.
type fault struct {
	once   sync.Once
	raised chan struct{} // closed by raise, after cause is set
	cause  error
}

func newFault() *fault { return &fault{raised: make(chan struct{})} }

func (f *fault) raise(cause error) {
	f.once.Do(func() {
		f.cause = cause
		close(f.raised)
	})
}

// err is nil before the fault; then it wraps ErrFaulted and the cause.
func (f *fault) err() error {
	select {
	case <-f.raised:
		return fmt.Errorf("%w: %w", ErrFaulted, f.cause)
	default:
		return nil
	}
}

// guard runs a call into Pebble on a goroutine of its own, and returns its error or the fault. The
// goroutine is left behind when Pebble has met a fatal error: see Fatalf. After a fault nothing is
// called any more.
func (f *fault) guard(call func() error) error {
	if err := f.err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer f.raiseOnPanic()
		done <- call()
	}()
	select {
	case err := <-done:
		return cmp.Or(err, f.err())
	case <-f.raised:
		return f.err()
	}
}

// raiseOnPanic is deferred around calls into Pebble, which panics on some failed writes and on
// some damaged files.
func (f *fault) raiseOnPanic() {
	if r := recover(); r != nil {
		f.raise(fmt.Errorf("pebble panicked: %v", r))
	}
}

// pebbleLogger is Pebble's logger. Pebble calls Fatalf where it cannot go on, and when Fatalf
// returns it goes on: a commit whose sync failed becomes a success, a version edit that is not in
// the MANIFEST is installed and the files it replaces are deleted.
type pebbleLogger struct {
	slog  *slog.Logger
	fault *fault
}

var _ pebble.Logger = pebbleLogger{}

func (l pebbleLogger) Infof(format string, args ...any) {
	l.slog.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.slog.Error("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf raises the fault and never returns. It doesn't exit the process by itself, because the
// owner of the process wants to say why, nor panic, because a panic could be recovered between
// here and there. Whatever waits for the goroutine it parks also waits for the fault.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.fault.raise(fmt.Errorf("pebble: "+format, args...))
	select {}
}
