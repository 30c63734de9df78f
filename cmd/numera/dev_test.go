package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOneUnitHasOneBuyer(t *testing.T) {
	s := startSystem(t, t.TempDir())
	for product, item := range map[string]string{
		"chosen": `{"product":"chosen","numbers":[1]}`,
		"any":    `{"product":"any","quantity":1}`,
	} {
		s.product(product, 1, "")
		var sold atomic.Int32
		var crowd sync.WaitGroup
		for b := range 64 {
			crowd.Go(func() {
				r := s.reserve("k", fmt.Sprint("b", b), item)
				switch r.status {
				case 201:
					sold.Add(1)
				case 409:
					require.Contains(t, []string{"numbers_taken", "insufficient_stock"}, r.code())
				default:
					t.Error(r.status, r.text)
				}
			})
		}
		crowd.Wait()
		require.EqualValues(t, 1, sold.Load(), product)
	}
	s.stop()
}

func TestOneKeyIsOneOrder(t *testing.T) {
	dir := t.TempDir()
	s := startSystem(t, dir)
	s.product("a", 1000, "")
	const item = `{"product":"a","quantity":3}`
	var ids sync.Map
	var fresh atomic.Int32
	var crowd sync.WaitGroup
	for range 50 {
		crowd.Go(func() {
			r := s.reserve("key", "b", item)
			require.Equal(t, 201, r.status, r.text)
			if r.header.Get("Idempotent-Replay") == "" {
				fresh.Add(1)
			}
			ids.Store(fmt.Sprint(r.order()), true)
		})
	}
	crowd.Wait()
	require.EqualValues(t, 1, fresh.Load())
	orders := 0
	ids.Range(func(any, any) bool { orders++; return true })
	require.Equal(t, 1, orders, "50 equal orders")
	require.Equal(t, 3, s.counters("a").Reserved)
	other := s.reserve("key", "b", `{"product":"a","quantity":4}`)
	require.Equal(t, 422, other.status)
	require.Equal(t, "idempotency_key_reused", other.code())
	s.stop()

	s = startSystem(t, dir)
	r := s.reserve("key", "b", item)
	require.Equal(t, 201, r.status)
	require.Equal(t, "true", r.header.Get("Idempotent-Replay"))
	require.Equal(t, 422, s.reserve("key", "b", `{"product":"a","quantity":4}`).status)
	s.stop()
}

// TestSellOut lets 200 buyers race for ten products by every kind of pick until nothing is left.
func TestSellOut(t *testing.T) {
	s := startSystem(t, t.TempDir())
	const products, count = 10, 1000
	for p := range products {
		s.product(fmt.Sprintf("shop.p%d", p), count, "")
	}
	var left atomic.Int32
	left.Store(products)
	gone := [products]atomic.Bool{}
	var crowd sync.WaitGroup
	for b := range 200 {
		crowd.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(b)))
			for k := 0; left.Load() > 0; k++ {
				p := random.IntN(products)
				id := fmt.Sprintf("shop.p%d", p)
				item := ""
				switch random.IntN(4) {
				case 0:
					item = fmt.Sprintf(`{"product":%q,"numbers":[%d]}`, id, 1+random.IntN(count))
				case 1:
					item = fmt.Sprintf(`{"product":%q,"quantity":%d,"pick":"adjacent"}`, id, 1+random.IntN(5))
				case 2:
					item = fmt.Sprintf(`{"product":%q,"quantity":2},{"product":"shop.p%d","quantity":1}`,
						id, (p+1)%products)
				default:
					item = fmt.Sprintf(`{"product":%q,"quantity":1,"pick":"lowest"}`, id)
				}
				r := s.reserve(fmt.Sprint("k", k), fmt.Sprint("b", b), item)
				if r.status != 201 && r.status != 409 {
					t.Error(r.status, r.text)
					return
				}
				if r.code() == "insufficient_stock" && strings.Contains(item, "lowest") &&
					!gone[p].Swap(true) {
					left.Add(-1)
				}
			}
		})
	}
	crowd.Wait()
	owner := map[string]any{}
	seen := map[any]bool{}
	for p := range products {
		id := fmt.Sprintf("shop.p%d", p)
		c := s.counters(id)
		require.Equal(t, count, c.Reserved, id)
		require.Zero(t, c.Available)
		for _, o := range s.orders(id) {
			if seen[o["id"]] {
				continue
			}
			seen[o["id"]] = true
			for _, item := range o["items"].([]any) {
				item := item.(map[string]any)
				for _, n := range item["numbers"].([]any) {
					number := fmt.Sprint(item["product"], "/", n)
					require.Nil(t, owner[number], "%s is sold to %v and %v", number, owner[number], o["id"])
					owner[number] = o["id"]
				}
			}
		}
	}
	require.Len(t, owner, products*count)
	s.stop()
}

func TestIdleSystemFreesInTime(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 1, `,"hold_seconds":1`)
	r := s.reserve("k", "b", `{"product":"a","numbers":[1]}`)
	require.Equal(t, 201, r.status, r.text)
	expires, err := time.Parse(time.RFC3339, r.order()["expires_at"].(string))
	require.NoError(t, err)
	time.Sleep(time.Until(expires.Add(-100 * time.Millisecond))) // nothing is to arrive meanwhile
	before := s.counters("a")
	require.True(t, before.Reserved == 1 || time.Now().After(expires), "never before its deadline")
	time.Sleep(time.Until(expires.Add(time.Second)))
	require.Eventually(t, func() bool { return s.counters("a").Available == 1 }, patience,
		10*time.Millisecond, "by itself: whoever looks does not write")
	id := r.order()["id"].(string)
	require.Equal(t, "expired", s.call("GET", "/v1/orders/"+id, serviceToken, "", "").order()["status"])
	s.stop()
}

func TestAnotherBuyersOrderDoesNotExist(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 10, "")
	session := func() string {
		r := s.call("POST", "/v1/sessions", "", "", "")
		require.Equal(t, 201, r.status, r.text)
		return r.body["token"].(string)
	}
	mine, other := session(), session()
	const body = `{"items":[{"product":"a","quantity":1}]}`
	r := s.call("POST", "/v1/orders", mine, "k", body)
	require.Equal(t, 201, r.status, r.text)
	path := "/v1/orders/" + r.order()["id"].(string)
	require.Equal(t, 200, s.call("GET", path, mine, "", "").status)
	for _, c := range [][2]string{{"GET", path}, {"DELETE", path}, {"POST", path + "/extend"}} {
		r := s.call(c[0], c[1], other, "", "")
		require.Equal(t, 404, r.status, c)
		require.Equal(t, "order_not_found", r.code())
	}
	named := strings.Replace(body, "{", `{"buyer":"somebody",`, 1)
	require.Equal(t, 403, s.call("POST", "/v1/orders", mine, "k2", named).status)
	require.Equal(t, 401, s.call("GET", path, mine+"x", "", "").status)
	s.stop()
}

func TestBuyerLimitHoldsInParallel(t *testing.T) {
	s := startSystem(t, t.TempDir())
	s.product("a", 1000, `,"max_per_buyer":7`)
	var got atomic.Int32
	var crowd sync.WaitGroup
	for k := range 40 {
		crowd.Go(func() {
			if r := s.reserve(fmt.Sprint(k), "b", `{"product":"a","quantity":2}`); r.status == 201 {
				got.Add(2)
			} else {
				require.Equal(t, "buyer_limit", r.code(), r.text)
			}
		})
	}
	crowd.Wait()
	require.EqualValues(t, 6, got.Load())
	s.stop()
}
