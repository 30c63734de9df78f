package inventory

// Counts are a shard's sizes.
type Counts struct {
	Live, Sold, Ended int // orders
	Products, Halted  int
	Backlog           int // events kept for consumers
}

// Counts reads the sizes.
func (s *State) Counts() Counts {
	return Counts{
		Live: s.count.live, Sold: s.count.sold, Ended: s.count.ended,
		Products: len(s.list), Halted: len(s.halted),
		Backlog: s.outbox.backlog(),
	}
}
