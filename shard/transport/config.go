package transport

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Config is what a node listens with. Only Listen and Cluster have no default.
type Config struct {
	// Listen is the "host:port" to listen on; port 0 picks one.
	Listen string

	// Advertise is the "host:port" by which peers know this node: its
	// raft.ServerAddress in every group. Peers must dial exactly this text, and a
	// node refuses connections meant for another. Empty: the address listened on,
	// which must then be a specific one.
	Advertise string

	// Cluster is the id of the cluster; connections of another are refused.
	Cluster ClusterID

	// TLS is used for both directions, from version 1.3. It must demand and verify
	// the peer's certificate, since whoever may connect may write the log; the
	// server's name is the host that was dialled unless ServerName is set. Nil is
	// plain TCP, for loopback.
	TLS *tls.Config

	// AllowPlain permits plain TCP beyond loopback, for a network that encrypts
	// and authenticates by itself.
	AllowPlain bool

	// HandshakeTimeout bounds TLS and the preamble of an incoming connection.
	// 0 means 5 s.
	HandshakeTimeout time.Duration

	// MaxHandshakes is how many incoming connections may be in TLS or the preamble
	// at once; one more closes the oldest of them. A descriptor and a goroutine
	// each. 0 means 64.
	MaxHandshakes int

	// MaxConnsPerGroup is how many incoming connections a group may have; more are
	// refused. About 256 KiB each, and a peer needs two or three. 0 means 64.
	MaxConnsPerGroup int

	// RPCTimeout bounds dialling and each RPC, including the follower's fsync; a
	// snapshot has it for every 256 KiB. 0 means 10 s.
	RPCTimeout time.Duration

	// Logger gets refused connections and what raft's transport logs. Nil discards.
	Logger hclog.Logger
}

func (c Config) withDefaults() Config {
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 5*time.Second)
	c.MaxHandshakes = cmp.Or(c.MaxHandshakes, 64)
	c.MaxConnsPerGroup = cmp.Or(c.MaxConnsPerGroup, 64)
	c.RPCTimeout = cmp.Or(c.RPCTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.MinVersion = max(c.TLS.MinVersion, tls.VersionTLS13)
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.HandshakeTimeout < 0 || c.RPCTimeout < 0 || c.MaxHandshakes < 0 || c.MaxConnsPerGroup < 0:
		return fmt.Errorf("%w: a negative limit", ErrConfig)
	case c.Cluster == ClusterID{}:
		return fmt.Errorf("%w: no cluster id", ErrConfig)
	case c.TLS != nil && c.TLS.ClientAuth != tls.RequireAndVerifyClientCert:
		return fmt.Errorf("%w: TLS must require and verify the peer's certificate", ErrConfig)
	case c.Advertise == "":
		return nil
	}
	host, port, err := net.SplitHostPort(c.Advertise)
	if err != nil {
		return fmt.Errorf("%w: advertise %q: %w", ErrConfig, c.Advertise, err)
	}
	if ip := net.ParseIP(host); host == "" || port == "" || port == "0" ||
		ip != nil && ip.IsUnspecified() || len(c.Advertise) > maxTarget {
		return fmt.Errorf("%w: nobody can dial advertise %q", ErrConfig, c.Advertise)
	}
	return nil
}

// advertised returns the address that peers dial when bound is what is listened on.
func (c Config) advertised(bound *net.TCPAddr) (string, error) {
	switch {
	case c.TLS == nil && !c.AllowPlain && !bound.IP.IsLoopback():
		return "", fmt.Errorf("%w: plain TCP on %v, which is not loopback", ErrConfig, bound)
	case c.Advertise != "":
		return c.Advertise, nil
	case bound.IP.IsUnspecified():
		return "", fmt.Errorf("%w: listening on %v needs an advertised address", ErrConfig, bound)
	}
	return bound.String(), nil
}
