package shard

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes what raft says to an operator's log. Raft's "info" is about its own workings:
// it is shown as debug.
func raftLogger(to *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Info, Output: io.Discard})
	l.RegisterSink(sink{to})
	return l
}

// selfElection is what raft says at every start, of a node alone too.
const selfElection = "heartbeat timeout reached, starting election"

// sink implements hclog.SinkAdapter.
type sink struct{ to *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(name string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch {
	case level >= hclog.Error:
		to = slog.LevelError
	case level == hclog.Warn && msg != selfElection:
		to = slog.LevelWarn
	}
	s.to.Log(context.Background(), to, "raft: "+msg, args...)
}
