package gateway

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
)

// minimal is a request of each operation that is well-formed.
func minimal(op *operation) asking {
	a := asking{subject: op.subject, params: map[string]string{}, key: "k"}
	for _, m := range op.members {
		switch m.name {
		case "order":
			a.params["order"] = testOrder().ID.String()
		case "product":
			a.params["product"] = "rifa-1"
		case "letter":
			a.params["letter"] = "7"
		case "status":
			a.params["status"] = "review"
		case "payment":
			if m.place == inPath {
				a.params["payment"] = "p-1"
			}
		}
	}
	a.body = map[string]string{
		"orders.create":        `{"items":[{"product":"rifa-1","quantity":1}],"buyer":"b-1"}`,
		"orders.begin-payment": `{"payment":"p"}`,
		"orders.confirm":       `{"payment":"p"}`,
		"orders.refuse":        `{"payment":"p"}`,
		"products.put":         putting(`"campaign":""`),
		"products.restock":     `{"count":1}`,
		"products.block":       `{"numbers":[1]}`,
		"products.unblock":     `{"numbers":[1]}`,
		"products.state":       `{"state":"open"}`,
		"payments.create":      `{"method":"pix"}`,
		"payments.review":      `{"decision":"approve"}`,
		"orders.refund-part":   `{"amount":{"amount":1,"currency":"BRL"}}`,
	}[op.subject]
	return a
}

func signed(method jwt.SigningMethod, key any, subject string, expires time.Time) string {
	token, err := jwt.NewWithClaims(method, jwt.RegisteredClaims{
		Subject: subject, ExpiresAt: jwt.NewNumericDate(expires),
	}).SignedString(key)
	if err != nil {
		panic(err)
	}
	return token
}

func TestRolesAreKept(t *testing.T) {
	g := open(t, nil)
	secret := g.config.TokenSecret
	tokens := map[role]string{
		rolePublic: "", roleBuyer: signed(jwt.SigningMethodHS256, secret, "b-1", time.Now().Add(time.Hour)),
		roleService: serviceToken, roleAdmin: adminToken,
	}
	for i := range operations {
		op := &operations[i]
		for has, token := range tokens {
			a := minimal(op)
			a.token = token
			r := g.both2xx(a)
			switch {
			case has >= op.role:
				require.Less(t, r.status, 300, "%s as %s: %s", op.subject, has, r.body)
			case has == rolePublic:
				require.Equal(t, "401 unauthenticated", fmt.Sprint(r.status, " ", r.code(t)), op.subject)
				require.Equal(t, "Bearer", r.header["Www-Authenticate"]+r.header["WWW-Authenticate"])
			default:
				require.Equal(t, "403 forbidden", fmt.Sprint(r.status, " ", r.code(t)), op.subject)
			}
		}
	}
}

// both2xx asks over both transports and compares only the status: a session is never the same.
func (g *gate) both2xx(a asking) reply {
	g.t.Helper()
	overHTTP, overNATS := g.overHTTP(a), g.overNATS(a)
	require.Equal(g.t, overHTTP.status, overNATS.status, "%s\n%s", overHTTP.body, overNATS.body)
	return overHTTP
}

func TestBadTokensAreRefusedEverywhere(t *testing.T) {
	g := open(t, nil)
	secret := g.config.TokenSecret
	later := time.Now().Add(time.Hour)
	good := signed(jwt.SigningMethodHS256, secret, "b-1", later)
	noExpiry, err := jwt.NewWithClaims(jwt.SigningMethodHS256,
		jwt.RegisteredClaims{Subject: "b-1"}).SignedString(secret)
	require.NoError(t, err)
	forged := good[:len(good)-4] + map[bool]string{true: "AAAA", false: "BBBB"}[!strings.HasSuffix(good, "AAAA")]
	bad := map[string]string{
		"nonsense":        "nonsense",
		"alg none":        signed(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "b-1", later),
		"HS512":           signed(jwt.SigningMethodHS512, secret, "b-1", later),
		"another secret":  signed(jwt.SigningMethodHS256, []byte(strings.Repeat("x", 32)), "b-1", later),
		"expired":         signed(jwt.SigningMethodHS256, secret, "b-1", time.Now().Add(-time.Second)),
		"no expiry":       noExpiry,
		"forged":          forged,
		"no subject":      signed(jwt.SigningMethodHS256, secret, "", later),
		"subject, spaces": signed(jwt.SigningMethodHS256, secret, "b 1", later),
		"long subject":    signed(jwt.SigningMethodHS256, secret, strings.Repeat("b", 65), later),
		"almost admin":    adminToken + "x",
		"part of admin":   adminToken[:4],
	}
	for name, token := range bad {
		for i := range operations {
			a := minimal(&operations[i])
			a.token = token
			r := g.both(a)
			require.Equal(t, 401, r.status, "%s with %s: %s", operations[i].subject, name, r.body)
			require.Equal(t, "unauthenticated", r.code(t))
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json"} {
			require.Equal(t, 401, g.request("GET", path, asking{token: token}).status, path)
		}
	}
	for _, header := range []string{"Basic YTpi", "Bearer", "Bearer  ", "bearer" + adminToken, adminToken} {
		r := g.request("GET", "/v1/products/rifa-1", asking{header: map[string]string{"Authorization": header}})
		require.Equal(t, 401, r.status, header)
	}
	require.Zero(t, g.shards.count())
	r := g.request("GET", "/v1/products/rifa-1", asking{header: map[string]string{"Authorization": "bearer " + good}})
	require.Equal(t, 200, r.status, "the scheme has no case")
}

func TestACachedTokenExpiresAtItsTime(t *testing.T) {
	var skew atomic.Int64
	g := open(t, func(c *Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		c.TokenLife = time.Hour
	})
	token, buyer := g.session()
	require.True(t, inventory.BuyerID(buyer).Valid())
	get := asking{subject: "orders.get", params: anOrder, token: token}
	for range 2 {
		require.Equal(t, 200, g.both(get).status)
	}
	skew.Store(int64(time.Hour + time.Second))
	require.Equal(t, 401, g.both(get).status)
	require.Equal(t, 401, g.both(get).status)
}

func TestTheTokenCacheIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	var cache tokenCache
	used := verifiedToken{caller: caller{roleBuyer, "b-used"}}
	cache.put("used", used)
	for i := range 5 * tokenGeneration {
		cache.put(fmt.Sprint(i), verifiedToken{})
		if i%1000 == 0 {
			known, ok := cache.get([]byte("used"))
			require.True(t, ok)
			require.Equal(t, used, known)
		}
	}
	require.LessOrEqual(t, len(cache.young)+len(cache.old), 2*tokenGeneration)
	_, ok := cache.get([]byte("0"))
	require.False(t, ok)
}

func TestABuyerOrdersForNobodyElse(t *testing.T) {
	g := open(t, nil)
	token, buyer := g.session()
	ask := func(token, named string) reply {
		return g.both(asking{
			subject: "orders.create", token: token, key: "k",
			body: `{"items":[{"product":"rifa-1","quantity":1}]` + named + `}`,
		})
	}
	for _, named := range []string{"", `,"buyer":null`, `,"buyer":"` + buyer + `"`} {
		require.Equal(t, 201, ask(token, named).status)
		require.Equal(t, inventory.BuyerID(buyer), g.shards.last.(*inventory.Reserve).Buyer)
	}
	r := ask(token, `,"buyer":"b-other"`)
	require.Equal(t, 403, r.status)
	require.Equal(t, "forbidden", r.code(t))

	r = ask(serviceToken, "")
	require.Equal(t, 400, r.status)
	require.Equal(t, "/buyer", r.json(t)["pointer"])
	require.Equal(t, 201, ask(serviceToken, `,"buyer":"b-other"`).status)
	require.Equal(t, 422, ask(serviceToken, `,"buyer":"b other"`).status)

	// A buyer reaches the buyer's own orders only, a service all.
	for _, subject := range []string{"orders.release", "orders.extend"} {
		require.Equal(t, 200, g.both(asking{subject: subject, params: anOrder, token: token}).status)
		require.Equal(t, buyer, string(by(g.shards.last)), subject)
		require.Equal(t, 200, g.both(asking{subject: subject, params: anOrder, token: serviceToken}).status)
		require.Empty(t, by(g.shards.last), subject)
	}
}

func by(c inventory.Command) inventory.BuyerID {
	switch c := c.(type) {
	case *inventory.Release:
		return c.By
	case *inventory.Extend:
		return c.By
	}
	return "no such command"
}

func TestKeysAreNeededAndHaveAForm(t *testing.T) {
	g := open(t, nil)
	for _, subject := range []string{"orders.create", "products.restock"} {
		for key, code := range map[string]string{
			"": "idempotency_key_missing", "a b": "idempotency_key_invalid",
			strings.Repeat("k", 256): "idempotency_key_invalid", "é": "idempotency_key_invalid",
		} {
			a := minimal(operationOf(t, subject))
			a.token, a.key = adminToken, key
			r := g.both(a)
			require.Equal(t, http.StatusBadRequest, r.status)
			require.Equal(t, code, r.code(t), "%q", key)
		}
	}
	require.Zero(t, g.shards.count())
	a := minimal(operationOf(t, "orders.create"))
	a.token, a.key = adminToken, strings.Repeat("~", 255)
	require.Equal(t, 201, g.both(a).status)
}

func TestRateLimitIsPerBuyerOrAddress(t *testing.T) {
	now := time.Now()
	g := open(t, func(c *Config) {
		c.RatePerSecond, c.Burst = 0.5, 3
		c.Now = func() time.Time { return now }
	})
	product := asking{subject: "products.get", params: aProduct}
	session := func() string {
		r := g.overNATS(asking{subject: "sessions.create"}) // has an address of its own
		require.Equal(t, 201, r.status)
		return r.json(t)["token"].(string)
	}
	first, second := session(), session()
	for range 3 {
		require.Equal(t, 200, g.overHTTP(product).status)
	}
	r := g.overHTTP(product)
	require.Equal(t, 429, r.status)
	require.Equal(t, "rate_limited", r.code(t))
	require.Equal(t, "2", r.header["Retry-After"])

	for _, token := range []string{first, second} {
		get := asking{subject: "orders.get", params: anOrder, token: token}
		for range 3 {
			require.Equal(t, 200, g.overHTTP(get).status)
		}
		require.Equal(t, 429, g.overHTTP(get).status)
	}
	for range 10 { // a refused call takes nothing, and services are free
		require.Equal(t, "2", g.overHTTP(product).header["Retry-After"])
		require.Equal(t, 200, g.overHTTP(asking{
			subject: "orders.get", params: anOrder, token: serviceToken,
		}).status)
	}
}
