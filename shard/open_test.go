package shard

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"numera/shard/transport"
	"numera/wal"
)

// TestInterruptedFirstBoot stops a first boot after each of its steps, and expects the next to end
// it, with the same identity once there is one.
func TestInterruptedFirstBoot(t *testing.T) {
	steps := []struct {
		name string
		do   func(t *testing.T, n *Node)
	}{
		{"directory", func(t *testing.T, n *Node) {
			require.NoError(t, os.Mkdir(n.config.Dir, 0o700))
		}},
		{"file system", func(t *testing.T, n *Node) {
			require.NoError(t, os.Mkdir(filepath.Join(n.config.Dir, "lost+found"), 0o700))
		}},
		{"identity half saved", func(t *testing.T, n *Node) {
			half := []byte(`{"cluster": "0`)
			path := filepath.Join(n.config.Dir, "cluster.json.new")
			require.NoError(t, os.WriteFile(path, half, 0o600))
		}},
		{"identity saved", func(t *testing.T, n *Node) {
			id, err := loadIdentity(n.config.Dir, n.config.Shards, nil)
			require.NoError(t, err)
			n.identity = id
		}},
		{"log made", func(t *testing.T, n *Node) { require.NoError(t, n.openStore()) }},
		{"snapshots folder made", func(t *testing.T, n *Node) {
			_, err := n.snapshots(0)
			require.NoError(t, err)
		}},
		{"group half bootstrapped", func(t *testing.T, n *Node) {
			logs, err := n.store.Group(0)
			require.NoError(t, err)
			require.NoError(t, logs.SetUint64([]byte("CurrentTerm"), 1))
		}},
		{"group bootstrapped", func(t *testing.T, n *Node) {
			require.NoError(t, n.foundGroup(0, raft.Configuration{Servers: []raft.Server{
				{ID: raft.ServerID(n.identity.Node), Address: "127.0.0.1:1"},
			}}))
		}},
		{"all groups bootstrapped", func(t *testing.T, n *Node) {
			peers, err := transport.Listen(transport.Config{
				Listen: n.config.Listen, Cluster: n.identity.cluster(),
			})
			require.NoError(t, err)
			n.peers = peers
			require.NoError(t, n.found())
			require.NoError(t, peers.Close())
		}},
	}
	for stopAfter := range steps {
		t.Run(steps[stopAfter].name, func(t *testing.T) {
			t.Parallel()
			config := testConfig(t, filepath.Join(t.TempDir(), "data"))
			config.Shards = 2
			n := &Node{config: config.withDefaults()}
			for _, step := range steps[:stopAfter+1] {
				step.do(t, n)
			}
			if n.store != nil {
				require.NoError(t, n.store.Close())
			}
			began := n.identity.Cluster

			n = openNode(t, config)
			if began != "" {
				require.Equal(t, began, n.identity.Cluster)
			}
			require.True(t, do(t, n.Shard(1), product("a", 10)).Created)
			digest := n.Shard(1).Digest()
			require.NoError(t, n.Close())
			n = openNode(t, config)
			require.Equal(t, digest, n.Shard(1).Digest())
			require.NoError(t, n.Close())
		})
	}
}

// TestOpenRefuses meets every directory that is not the node's own, or not whole.
func TestOpenRefuses(t *testing.T) {
	made := func(t *testing.T, entries int) Config {
		config := testConfig(t, t.TempDir())
		n := openNode(t, config)
		do(t, n.Shard(0), product("a", 100))
		for i := range entries {
			do(t, n.Shard(0), reserve(fmt.Sprint(i), "b"))
			require.NoError(t, n.Shard(0).Snapshot())
		}
		require.NoError(t, n.Close())
		return config
	}
	identityText := func(t *testing.T, c Config) (string, []byte) {
		path := filepath.Join(c.Dir, identityFile)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return path, text
	}
	cases := []struct {
		name   string
		damage func(t *testing.T, c *Config)
		want   error
	}{
		{"another number of shards", func(t *testing.T, c *Config) { c.Shards = 2 }, ErrCluster},
		{"somebody's directory", func(t *testing.T, c *Config) {
			c.Dir = t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(c.Dir, "thesis.txt"), nil, 0o600))
		}, ErrCluster},
		{"no identity", func(t *testing.T, c *Config) {
			require.NoError(t, os.Remove(filepath.Join(c.Dir, identityFile)))
		}, ErrCluster},
		{"a digit of the secret", func(t *testing.T, c *Config) {
			path, text := identityText(t, *c)
			at := len(text) - 100
			for text[at] < '0' || text[at] > '8' {
				at--
			}
			text[at]++
			require.NoError(t, os.WriteFile(path, text, 0o600))
		}, ErrCluster},
		{"no log", func(t *testing.T, c *Config) {
			require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "wal")))
		}, wal.ErrNotCreated},
		{"another node's log", func(t *testing.T, c *Config) {
			other := made(t, 0)
			require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "wal")))
			require.NoError(t, os.Rename(filepath.Join(other.Dir, "wal"), filepath.Join(c.Dir, "wal")))
		}, wal.ErrWrongOwner},
		{"no snapshots", func(t *testing.T, c *Config) {
			require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, "snapshots")))
		}, ErrCluster},
		{"no directory", func(t *testing.T, c *Config) {
			c.Dir = filepath.Join(c.Dir, identityFile, "x")
		}, syscall.ENOTDIR},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			config := made(t, 8)
			c.damage(t, &config)
			_, err := Open(config)
			require.ErrorIs(t, err, c.want)
		})
	}
}
