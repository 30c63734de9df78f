package inventory

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTexts holds texts against a map, with views that must go on showing what was when they were made.
func TestTexts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var kept texts
	want := make(map[textRef]string)
	verify := func(kept *texts, want map[textRef]string) {
		for ref, text := range want {
			require.Equal(t, text, string(kept.append([]byte{}, ref)))
		}
	}
	for range 20 {
		view, then := kept.freeze(), maps.Clone(want)
		for ref := range want { // in any order
			if random.IntN(3) == 0 {
				kept.giveBack(ref)
				delete(want, ref)
			}
		}
		for range 300 {
			text := strings.Repeat(string(rune('!'+random.IntN(90))), 1+random.IntN(maxTextLen))
			ref := kept.put(text)
			require.Empty(t, want[ref], "nothing is written over")
			want[ref] = text
		}
		verify(&kept, want)
		verify(&view, then)
	}
	require.Empty(t, kept.append(nil, kept.put("")))

	units := 0
	for ref := range want {
		_, n := ref.split()
		units += int(n)
		kept.giveBack(ref)
	}
	before := kept.units.used
	for range units / 4 { // long ones do not fit where short ones were; short ones do everywhere
		kept.put(strings.Repeat("x", 3*textUnitLen))
	}
	require.Less(t, kept.units.used, before+uint32(units), "what was given back is used again")
}

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
