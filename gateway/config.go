package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says how a Gateway serves. Zero members take the default.
type Config struct {
	// TokenSecret signs and verifies buyers' tokens (HS256): at least 32 bytes, the same in every
	// gateway. Required.
	TokenSecret []byte
	// TokenLife is how long the token of an anonymous session lasts. Default 24 h.
	TokenLife time.Duration
	// AdminToken and ServiceToken are the bearer tokens of the two roles, visible ASCII and
	// different. Empty: nobody has the role.
	AdminToken, ServiceToken string
	// Tenant is part of the scope of every idempotency key, at most 255 bytes.
	Tenant string

	// Timeout bounds every request to the shards but commands: their client bounds those, without a
	// timer for each. Default 5 s.
	Timeout time.Duration
	// ReadTimeout bounds the reading of one whole request, from its first byte (on a new
	// connection from the opening) to its last: a slow sender is cut off. Default 10 s.
	ReadTimeout time.Duration
	// WriteTimeout bounds the writing of an answer, of a stream each page. Default 30 s.
	WriteTimeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request. Default 75 s.
	IdleTimeout time.Duration
	// Connections is how many HTTP connections are held; one more is refused as overloaded. An
	// idle one costs about 20 KB. Default 65,536.
	Connections int
	// NATSWorkers is how many NATS requests are served at once; one more is overloaded. Default
	// 1024.
	NATSWorkers int

	// RatePerSecond is how many requests a second each buyer, or each address without a token,
	// may make on average; Burst how many at once. Services and admins are not limited. 0: no
	// limit. Behind a proxy all anonymous requests share the proxy's address.
	RatePerSecond float64
	Burst         int

	// CORSOrigins are the origins, as browsers send them, whose pages may call; "*" for any.
	// None: no CORS.
	CORSOrigins []string

	// Payments is where orders are paid. nil: this system takes no payments, and what services
	// confirm is shipped and refunded without any.
	Payments Payments

	// Paying is how many payments may be under way at once; one more is overloaded. Default 512.
	Paying int

	// Desk is where persons look after payments. Required with Payments.
	Desk Desk

	// Degraded names what is down besides the shards, for /readyz. nil: nothing ever is.
	Degraded func(ctx context.Context) []string

	// Registry takes the gateway's metrics and is what /metrics shows. Default: its own.
	Registry *prometheus.Registry
	// Log takes what an operator has to know. Default: nothing is logged.
	Log *slog.Logger
	// Now is the wall clock. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	setDefault(&c.TokenLife, 24*time.Hour)
	setDefault(&c.Timeout, defaultTimeout)
	setDefault(&c.ReadTimeout, 10*time.Second)
	setDefault(&c.WriteTimeout, 30*time.Second)
	setDefault(&c.IdleTimeout, 75*time.Second)
	setDefault(&c.Connections, 1<<16)
	setDefault(&c.NATSWorkers, 1024)
	setDefault(&c.Paying, 512)
	setDefault(&c.Burst, max(1, int(c.RatePerSecond)))
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// minSecret is the least length of a key for HMAC-SHA-256, RFC 7518 section 3.2.
const minSecret = 32

// validate checks a Config that has its defaults.
func (c *Config) validate() error {
	switch {
	case len(c.TokenSecret) < minSecret:
		return fmt.Errorf("%w: TokenSecret has %d bytes, not %d",
			ErrConfig, len(c.TokenSecret), minSecret)
	case c.AdminToken != "" && !visible(c.AdminToken, maxToken),
		c.ServiceToken != "" && !visible(c.ServiceToken, maxToken):
		return fmt.Errorf("%w: tokens are 1 to %d visible ASCII characters", ErrConfig, maxToken)
	case c.AdminToken != "" && c.AdminToken == c.ServiceToken:
		return fmt.Errorf("%w: AdminToken and ServiceToken are the same", ErrConfig)
	case len(c.Tenant) > 255:
		return fmt.Errorf("%w: Tenant is longer than 255 bytes", ErrConfig)
	case c.TokenLife < time.Second, c.Timeout < time.Millisecond,
		c.ReadTimeout < time.Millisecond, c.WriteTimeout < time.Millisecond,
		c.IdleTimeout < time.Millisecond:
		return fmt.Errorf("%w: timeouts are at least 1 ms, TokenLife 1 s", ErrConfig)
	case (c.Payments == nil) != (c.Desk == nil):
		return fmt.Errorf("%w: Payments and Desk are set together", ErrConfig)
	case c.Connections < 1, c.NATSWorkers < 1, c.Paying < 1, c.Burst < 1, c.RatePerSecond < 0:
		return fmt.Errorf("%w: Connections, NATSWorkers, Paying and Burst are at least 1", ErrConfig)
	}
	return nil
}

// visible says that s is 1 to most visible ASCII characters: the form of keys, tokens and ids.
func visible[Bytes ~string | ~[]byte](s Bytes, most int) bool {
	if len(s) < 1 || len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}
