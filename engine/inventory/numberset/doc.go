// Package numberset is the set of taken numbers of one product, as offsets 0 to count-1.
//
// It owns a bitmap of taken numbers and a summary of the free ones between them. Beside taking
// and giving back it answers what an order asks for: the k-th free number (so that a random pick
// is a random k), the lowest unbroken run of n free numbers, the longest one, and how many free
// numbers are below a given one. None of these walks the set: none costs more than about a
// microsecond, in any state of a hundred million numbers. DESIGN.md beside the code argues why
// views are safe, and docs/numberset.md has the structure and the measurements.
//
// Invariants: every node of the summary equals what a walk over its words would find; a page
// that a [View] can see is never written again.
//
// A [Set] has one owner and no lock. [Set.Freeze] gives others an immutable [View] at no cost;
// the owner pays on its next write to each page, by copying it.
//
// The package refuses, by a panic, offsets and ranks that are out of range and a set that would
// shrink or grow above [MaxCount]. It has no clock, no randomness and no I/O: the caller chooses.
//
//	taken := numberset.Make(1_000_000)
//	if start, ok := taken.FirstRun(3); ok {
//		for offset := start; offset < start+3; offset++ {
//			taken.Add(offset)
//		}
//	}
//	random := taken.SelectFree(k) // k below taken.Free()
package numberset
