package shard

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"numera/shard/transport"
)

// identity is what a node is told when its cluster is made, and never again. It is kept in
// cluster.json beside the write-ahead log.
type identity struct {
	Cluster string `json:"cluster"` // 32 hexadecimal digits
	Node    string `json:"node"`    // its raft id
	Shards  int    `json:"shards"`
	Secret  string `json:"secret"` // 64 hexadecimal digits: what keys and tokens are hashed with
	Made    bool   `json:"made"`   // the write-ahead log and the raft groups exist

	// Checksum is that of the others: with one flipped bit in the secret no key would be known
	// again, and act twice.
	Checksum uint32 `json:"checksum"`
}

const (
	identityFile  = "cluster.json"
	defaultShards = 8
)

// loadIdentity reads the identity of dir, or makes one for a first boot: a given one, or one of its
// own. Until it is saved as made, a first boot that was interrupted is repeated.
func loadIdentity(dir string, shards int, given *identity) (identity, error) {
	var id identity
	text, err := os.ReadFile(filepath.Join(dir, identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := checkFresh(dir); err != nil {
			return id, err
		}
		id = identity{
			Cluster: randomHex(16), Node: randomHex(8), Secret: randomHex(32),
			Shards: cmp.Or(shards, defaultShards),
		}
		if given != nil {
			id = *given
		}
		return id, id.save(dir)
	case err != nil:
		return id, fmt.Errorf("shard: read identity: %w", err)
	}
	if err := json.Unmarshal(text, &id); err != nil {
		return id, fmt.Errorf("%w: %s: %w", ErrCluster, identityFile, err)
	}
	switch {
	case id.Checksum != id.checksum():
		return id, fmt.Errorf("%w: %s is damaged", ErrCluster, identityFile)
	case shards != 0 && shards != id.Shards:
		return id, fmt.Errorf("%w: it was made with %d shards, not %d: the number is fixed",
			ErrCluster, id.Shards, shards)
	}
	return id, nil
}

// checkFresh refuses a directory that holds anything: it is somebody's. What a first boot leaves
// that was interrupted while it saved its identity, and what ext4 puts into an empty file system,
// are nothing.
func checkFresh(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("shard: %w", err)
	}
	for _, entry := range entries {
		if name := entry.Name(); name != identityFile+unsaved && name != "lost+found" {
			return fmt.Errorf("%w: %s has no %s and is not empty: it holds %s",
				ErrCluster, dir, identityFile, name)
		}
	}
	return syncDir(filepath.Dir(dir)) // it may have been made just now
}

func (id identity) checksum() uint32 {
	id.Checksum = 0
	return crc32.Checksum(fmt.Appendf(nil, "%+v", id), castagnoli)
}

// unsaved ends the name of a file that is not whole yet.
const unsaved = ".new"

// save writes the identity durably: whole or not at all.
func (id identity) save(dir string) error {
	id.Checksum = id.checksum()
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("shard: save identity: %w", err)
	}
	path := filepath.Join(dir, identityFile)
	if err := writeSynced(path+unsaved, append(text, '\n')); err != nil {
		return fmt.Errorf("shard: save identity: %w", err)
	}
	if err := os.Rename(path+unsaved, path); err != nil {
		return fmt.Errorf("shard: save identity: %w", err)
	}
	return syncDir(dir)
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("shard: sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("shard: sync %s: %w", dir, err)
	}
	return nil
}

// The texts were made by randomHex: the checksum vouches for it.

func (id identity) cluster() (c transport.ClusterID) {
	_, _ = hex.Decode(c[:], []byte(id.Cluster))
	return c
}

func (id identity) secret() []byte {
	secret, _ := hex.DecodeString(id.Secret)
	return secret
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}
