package shard

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
}

const identityFile = "cluster.json"

// loadIdentity reads the identity of dir, or makes one for a first boot. Until it is saved as
// made, a first boot that was interrupted is begun anew.
func loadIdentity(dir string, shards int) (identity, error) {
	var id identity
	text, err := os.ReadFile(filepath.Join(dir, identityFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			return id, fmt.Errorf("%w: %s is not empty and has no %s (%w)",
				ErrCluster, dir, identityFile, errors.Join(err))
		}
		id = identity{
			Cluster: randomHex(16), Node: randomHex(8), Secret: randomHex(32), Shards: shards,
		}
		if shards == 0 {
			id.Shards = 8
		}
		return id, id.save(dir)
	case err != nil:
		return id, fmt.Errorf("shard: read identity: %w", err)
	}
	if err := json.Unmarshal(text, &id); err != nil {
		return id, fmt.Errorf("%w: %s: %w", ErrCluster, identityFile, err)
	}
	switch {
	case len(id.Cluster) != 32 || len(id.Secret) != 64 || id.Node == "" ||
		id.Shards < 1 || id.Shards > mostShards:
		return id, fmt.Errorf("%w: %s is damaged", ErrCluster, identityFile)
	case shards != 0 && shards != id.Shards:
		return id, fmt.Errorf("%w: it was made with %d shards, not %d: the number is fixed",
			ErrCluster, id.Shards, shards)
	}
	return id, nil
}

// save writes the identity durably: whole or not at all.
func (id identity) save(dir string) error {
	text, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return fmt.Errorf("shard: save identity: %w", err)
	}
	path := filepath.Join(dir, identityFile)
	if err := writeSynced(path+".new", append(text, '\n')); err != nil {
		return fmt.Errorf("shard: save identity: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
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

func (id identity) cluster() (c transport.ClusterID) {
	hex.Decode(c[:], []byte(id.Cluster)) // its length was checked; bad digits are zeros
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
