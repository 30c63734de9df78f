package inventory

// buyers interns the ids of buyers: an order keeps a slot of four bytes. A buyer without orders
// is forgotten.
type buyers struct {
	slab[buyer]
	slots map[BuyerID]uint32
}

type buyer struct {
	id     BuyerID
	digest uint64
	refs   uint32 // orders, and commands under way
}

func makeBuyers() buyers { return buyers{slots: make(map[BuyerID]uint32)} }

// hold finds or makes the slot of a buyer and keeps it from being forgotten.
func (b *buyers) hold(id BuyerID) uint32 {
	slot, known := b.slots[id]
	if !known {
		slot = b.take()
		*b.edit(slot) = buyer{id: id, digest: mixString(0, string(id))}
		b.slots[id] = slot
	}
	b.edit(slot).refs++
	return slot
}

// drop undoes one hold.
func (b *buyers) drop(slot uint32) {
	record := b.edit(slot)
	record.refs--
	if record.refs == 0 {
		delete(b.slots, record.id)
		b.giveBack(slot)
	}
}
