package inventory

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutboxTexts encodes small orders and large ones side by side: none writes into another's memory, nor
// does whoever appends to one.
func TestOutboxTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b outbox
	var views []*OrderView
	var entries []outboxEntry
	for range 2000 {
		n := 1 + random.IntN(4)
		if random.IntN(10) == 0 {
			n = random.IntN(20_000)
		}
		v := &OrderView{Items: []ItemView{{Product: "a", Numbers: make([]uint32, n)}}}
		for i := range n {
			v.Items[0].Numbers[i] = random.Uint32()
		}
		correlation := strings.Repeat("c", random.IntN(maxCorrelation+1))
		views, entries = append(views, v), append(entries, b.entry(int64(len(views)), correlation, AppendOrder(nil, v)))
		_ = append(entries[random.IntN(len(entries))].image(), 0xff)
	}
	for i, v := range views {
		require.Equal(t, AppendOrder(nil, v), entries[i].image())
		require.Equal(t, int64(i), entries[i].at.value())
		require.Empty(t, strings.Trim(string(entries[i].text[:entries[i].correlation]), "c"))
	}
}
