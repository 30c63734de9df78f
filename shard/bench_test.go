package shard

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/shard/wire"
)

// BenchmarkServerOverloaded is a command that meets a full queue, from its message to its answer.
func BenchmarkServerOverloaded(b *testing.B) {
	var d disk
	config := testConfig(b, b.TempDir())
	config.FS, config.QueueLength, config.InFlight = d.wrap(vfs.Default), 1, 1
	n := openNode(b, config)
	c := newClient(b, config.Conn)
	const commands = 500
	message := wire.Begin(nil, wire.KindRequests)
	for i := range commands {
		message = wire.AppendRequest(message, &wire.Request{
			ID: uint64(i), Remaining: time.Minute,
			Entry: &inventory.Entry{Command: reserve(fmt.Sprint("key-", i), "buyer")},
		})
	}
	wire.Seal(message, commands)
	release := d.hold()
	time.AfterFunc(4*time.Second, release) // before the write-ahead log takes it for a stall
	m := &nats.Msg{Subject: wire.Subject(0), Reply: c.subject, Data: message}
	n.Shard(0).server.receive(m)
	b.ResetTimer()
	for range (b.N + commands - 1) / commands {
		n.Shard(0).server.receive(m)
	}
	b.StopTimer()
	if err := n.Close(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPropose(b *testing.B) {
	n := openNode(b, testConfig(b, b.TempDir()))
	b.Cleanup(func() { require.NoError(b, n.Close()) })
	s := n.Shard(0)
	do(b, s, product("a", 100_000_000))
	slots := make(chan struct{}, 1024)
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		s.Propose(&Proposal{
			Entry: inventory.Entry{Command: reserve(fmt.Sprint(i), "b")},
			Done: func(o *inventory.Outcome, err error) {
				if err != nil || o.Code != inventory.CodeOK {
					panic(fmt.Sprint(err, o))
				}
				<-slots
			},
		})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
}
