package postgres_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"numera/engine/inventory"
	"numera/gateway/order/postgres"
	"numera/gateway/order/postgres/postgrestest"
)

const noon = 1_796_000_000_000 // of some day, in Unix milliseconds

// view makes the i-th order of shard 3: one number of product a, reserved.
func view(i int) *inventory.OrderView {
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], uint64(i))
	sum := sha256.Sum256(seed[:])
	return &inventory.OrderView{
		ID:     inventory.MakeOrderID(3, noon, inventory.KeyHash(sum[:])),
		Status: inventory.StatusReserved, Buyer: inventory.BuyerID(fmt.Sprint("b-", i)),
		Items: []inventory.ItemView{{
			Product: "a", Numbers: []uint32{uint32(i + 1)},
			UnitPrice: inventory.Money{Amount: 1990, Currency: "BRL"},
		}},
		CreatedUnixMilli: noon, ExpiresUnixMilli: noon + 1_800_000, Changed: uint64(2*i + 2),
	}
}

func BenchmarkUpsert(b *testing.B) {
	orders := postgres.NewOrders(postgrestest.New(b))
	ctx := context.Background()
	for _, size := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			i := 0
			var spent [3]time.Duration
			for b.Loop() {
				views := make([]*inventory.OrderView, size)
				for k := range views {
					views[k] = view(size*10_000_000 + i)
					i++
				}
				for step, status := range []inventory.Status{
					inventory.StatusReserved, inventory.StatusPaying, inventory.StatusPaid,
				} {
					for _, v := range views {
						v.Status, v.Changed = status, v.Changed+1
						if step > 0 {
							v.Payment = "p-1"
						}
					}
					began := time.Now()
					require.NoError(b, orders.Upsert(ctx, views...))
					spent[step] += time.Since(began)
				}
			}
			for step, name := range []string{"insert", "update", "update2"} {
				b.ReportMetric(float64(spent[step].Microseconds())/float64(i), name+"-µs/order")
			}
		})
	}
}
