package inventory

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImages encodes small orders and large ones side by side: none writes into another's memory, nor
// does whoever appends to one.
func TestImages(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b outbox
	var views []*OrderView
	var images [][]byte
	for range 2000 {
		n := 1 + random.IntN(4)
		if random.IntN(10) == 0 {
			n = random.IntN(20_000)
		}
		v := &OrderView{Items: []ItemView{{Product: "a", Numbers: make([]uint32, n)}}}
		for i := range n {
			v.Items[0].Numbers[i] = random.Uint32()
		}
		views, images = append(views, v), append(images, b.image(AppendOrder(nil, v)))
		_ = append(images[random.IntN(len(images))], 0xff)
	}
	for i, v := range views {
		require.Equal(t, AppendOrder(nil, v), images[i])
	}
}
