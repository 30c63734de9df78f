package engine

import "numera/engine/inventory"

// Stats are a shard's sizes as of the last batch.
type Stats struct {
	inventory.Counts
	NextDeadlineUnixMilli int64 // 0: no order is due ever
}

// Stats reads the sizes.
func (e *Engine) Stats() Stats {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return Stats{Counts: e.state.Counts(), NextDeadlineUnixMilli: e.nextDeadline.Load()}
}

// UntilDeadline is how many seconds are left to the earliest deadline, 0 without any.
func (s Stats) UntilDeadline(nowUnixMilli int64) float64 {
	if s.NextDeadlineUnixMilli == 0 {
		return 0
	}
	return float64(s.NextDeadlineUnixMilli-nowUnixMilli) / 1000
}

// EachProduct visits the views of all products, in no particular order, as of the last batch.
func (e *Engine) EachProduct(visit func(*inventory.ProductView)) {
	e.products.Range(func(_, p any) bool {
		visit(p.(*published).standing.Load().View())
		return true
	})
}
