package gateway

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"numera/engine/inventory"
)

// role is what a token permits. Each includes those before it.
type role uint8

const (
	rolePublic  role = iota // anybody, without a token
	roleBuyer               // a signed token whose subject is the buyer
	roleService             // the internal callers
	roleAdmin
)

var roleNames = [...]string{"public", "buyer", "service", "admin"}

func (r role) String() string { return roleNames[r] }

// caller is who makes a call. Only a buyer has a buyer.
type caller struct {
	role  role
	buyer inventory.BuyerID
}

// authority knows who may do what by their tokens. Its methods may be called by any goroutine.
type authority struct {
	secret         []byte
	life           time.Duration
	admin, service []byte // nil: nobody
	now            func() time.Time
	parser         *jwt.Parser
	verified       tokenCache
}

func newAuthority(config *Config) *authority {
	return &authority{
		secret:  config.TokenSecret,
		life:    config.TokenLife,
		admin:   []byte(config.AdminToken),
		service: []byte(config.ServiceToken),
		now:     config.Now,
		parser: jwt.NewParser(
			jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithExpirationRequired(), jwt.WithStrictDecoding(),
			jwt.WithTimeFunc(config.Now),
		),
	}
}

// maxToken bounds the tokens that are looked at, in bytes.
const maxToken = 4096

// identify says who calls, by an Authorization header or none. ok is false for a header that
// names nobody, whatever the operation is.
func (a *authority) identify(header []byte) (who caller, ok bool) {
	if len(header) == 0 {
		return caller{}, true
	}
	const scheme = "Bearer "
	if len(header) < len(scheme) || !bytes.EqualFold(header[:len(scheme)], []byte(scheme)) {
		return caller{}, false
	}
	token := bytes.TrimLeft(header[len(scheme):], " ")
	// Both are compared, so that the time tells nothing.
	admin, service := same(token, a.admin), same(token, a.service)
	switch {
	case !visible(token, maxToken):
		return caller{}, false
	case admin:
		return caller{role: roleAdmin}, true
	case service:
		return caller{role: roleService}, true
	}
	return a.buyer(token)
}

func same(token, secret []byte) bool {
	return len(secret) > 0 && subtle.ConstantTimeCompare(token, secret) == 1
}

func (a *authority) buyer(token []byte) (who caller, ok bool) {
	now := a.now()
	if known, ok := a.verified.get(token); ok {
		return known.caller, now.Before(known.expires)
	}
	var claims jwt.RegisteredClaims
	_, err := a.parser.ParseWithClaims(string(token), &claims,
		func(*jwt.Token) (any, error) { return a.secret, nil })
	buyer := inventory.BuyerID(claims.Subject)
	if err != nil || !buyer.Valid() {
		return caller{}, false
	}
	who = caller{role: roleBuyer, buyer: buyer}
	a.verified.put(string(token), verifiedToken{who, claims.ExpiresAt.Time})
	return who, true
}

// session signs a token for a buyer that nobody knows.
func (a *authority) session() (
	token string, buyer inventory.BuyerID, expiresUnixMilli int64, err error,
) {
	now := a.now().Truncate(time.Second) // as a token's times are whole seconds
	expires := now.Add(a.life.Truncate(time.Second))
	buyer = inventory.BuyerID("b-" + strings.ToLower(rand.Text()))
	token, err = jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject:   string(buyer),
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(expires),
	}).SignedString(a.secret)
	if err != nil {
		return "", "", 0, fmt.Errorf("sign a session: %w", err)
	}
	return token, buyer, expires.UnixMilli(), nil
}

// tokenCache remembers tokens that have been verified, in two generations: when the young one is
// full it becomes the old one, and what is used again moves up. Whether a token has expired is up
// to whoever asks.
type tokenCache struct {
	mu         sync.RWMutex
	young, old map[string]verifiedToken
}

type verifiedToken struct {
	caller  caller
	expires time.Time
}

// tokenGeneration is how many tokens one generation holds: about 10 MB both.
const tokenGeneration = 16 << 10

func (t *tokenCache) get(token []byte) (v verifiedToken, ok bool) {
	t.mu.RLock()
	v, ok = t.young[string(token)]
	old := false
	if !ok {
		v, old = t.old[string(token)]
	}
	t.mu.RUnlock()
	if old {
		t.put(string(token), v)
	}
	return v, ok || old
}

func (t *tokenCache) put(token string, v verifiedToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.young == nil || len(t.young) >= tokenGeneration {
		t.old, t.young = t.young, make(map[string]verifiedToken, tokenGeneration/16)
	}
	t.young[token] = v
}
