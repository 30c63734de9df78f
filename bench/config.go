package bench

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"
)

// Path names how requests reach the shards.
type Path string

// The paths.
const (
	PathShard Path = "shard" // proposed to the shard in this process
	PathNATS  Path = "nats"  // through the client of internal callers
	PathHTTP  Path = "http"
)

// Config says what one load is. Zero values mean the defaults named beside them.
type Config struct {
	Path     Path     // default PathShard
	Workload Workload // default WorkloadAny

	// Rate is how many requests a second are meant to start. 0: a closed loop, InFlight at any
	// time.
	Rate     float64
	Arrivals Arrivals // default ArrivalsPoisson

	// InFlight bounds the requests under way. With a rate it must be large enough never to be
	// reached: what has to wait for a place counts as late. Default 1,024 on the shard and NATS
	// paths, and 256 on the HTTP path, where each has a connection of its own.
	InFlight int

	// Requests and Duration bound the load; what comes first ends it. Defaults 2,000,000 (about
	// 100 bytes of ledger each) and 10 s; at most 50 million and an hour.
	Requests int
	Duration time.Duration

	// Products, Numbers (of each) and Quantity (of an order): the workload's default; 1 for
	// Quantity, at most 1,000.
	Products int
	Numbers  int
	Quantity int

	Seed uint64 // of arrivals and choices; default 1

	// Shards of the system that is started; default 8.
	Shards int

	// Dir is where the started system keeps its data, in a folder of its own that is removed
	// afterwards. Default the operating system's temporary directory. Its speed is what is measured.
	Dir string

	// NoConsumer leaves the outbox without a consumer, to see what one costs.
	NoConsumer bool

	outbox int // how many events a shard keeps at most; 0: as in production

	// Target, on the HTTP path, is the URL of a server that runs already, on loopback, with the
	// tokens of both its roles. Empty: one is started in this process.
	Target       string
	ServiceToken string
	AdminToken   string

	// Progress, where set, gets a line every second.
	Progress io.Writer

	prefix string // of the products' ids
}

const (
	mostRequests = 50_000_000
	mostDuration = time.Hour
	mostInFlight = 65_536
	mostListed   = 1000 // products whose orders can be listed one after the other over HTTP
)

func (c Config) withDefaults() Config {
	c.Path = cmp.Or(c.Path, PathShard)
	c.Workload = cmp.Or(c.Workload, WorkloadAny)
	c.Arrivals = cmp.Or(c.Arrivals, ArrivalsPoisson)
	if c.InFlight == 0 {
		c.InFlight = 1024
		if c.Path == PathHTTP {
			c.InFlight = 256
		}
	}
	c.Requests = cmp.Or(c.Requests, 2_000_000)
	c.Duration = cmp.Or(c.Duration, 10*time.Second)
	c.Quantity = cmp.Or(c.Quantity, 1)
	c.Seed = cmp.Or(c.Seed, 1)
	c.Shards = cmp.Or(c.Shards, 8)
	c.prefix = "bench-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
	return c
}

func (c *Config) validate() error {
	switch {
	case c.Path != PathShard && c.Path != PathNATS && c.Path != PathHTTP:
		return fmt.Errorf("%w: no path %q; there are shard, nats, http", ErrConfig, c.Path)
	case c.Arrivals != ArrivalsPoisson && c.Arrivals != ArrivalsConstant:
		return fmt.Errorf("%w: no arrivals %q; there are poisson, constant", ErrConfig, c.Arrivals)
	case c.Rate < 0 || c.Rate > 10_000_000:
		return fmt.Errorf("%w: a rate of %g a second", ErrConfig, c.Rate)
	case c.InFlight < 1 || c.InFlight > mostInFlight:
		return fmt.Errorf("%w: %d in flight, and it can be 1 to %d", ErrConfig, c.InFlight, mostInFlight)
	case c.Requests < 1 || c.Requests > mostRequests:
		return fmt.Errorf("%w: %d requests, and it can be 1 to %d", ErrConfig, c.Requests, mostRequests)
	case c.Duration < 0 || c.Duration > mostDuration:
		return fmt.Errorf("%w: a duration of %v, and it can be up to %v",
			ErrConfig, c.Duration, mostDuration)
	case c.Products < 0 || c.Products > 1_000_000 || c.Numbers < 0 || c.Numbers > 100_000_000 ||
		c.Quantity < 1 || c.Quantity > 1000 || c.Numbers > 0 && c.Quantity > c.Numbers:
		return fmt.Errorf("%w: %d products of %d numbers, %d an order",
			ErrConfig, c.Products, c.Numbers, c.Quantity)
	case c.Target != "":
		return c.validateTarget()
	}
	return nil
}

func (c *Config) validateTarget() error {
	if c.Path != PathHTTP {
		return fmt.Errorf("%w: only the http path has a target", ErrConfig)
	}
	u, err := url.Parse(c.Target)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%w: the target %q is not like http://127.0.0.1:8080", ErrConfig, c.Target)
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() != "localhost" && !ip.IsLoopback() {
		return fmt.Errorf("%w: the target %q is not on loopback", ErrConfig, c.Target)
	}
	if c.ServiceToken == "" || c.AdminToken == "" {
		return fmt.Errorf("%w: a target needs the tokens of both roles", ErrConfig)
	}
	return nil
}

// shape is how the requests under way are spread: a peer that blocks has a lane for each.
func (c *Config) shape() shape {
	if c.Path == PathShard {
		return shape{lanes: 1, window: c.InFlight}
	}
	return shape{lanes: c.InFlight, window: 1}
}
