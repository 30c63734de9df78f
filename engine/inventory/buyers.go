package inventory

// buyers interns the ids of buyers: an order keeps a slot of four bytes. A buyer without orders
// is forgotten.
type buyers struct {
	slab[buyer]
	index index[buyerKey]
}

type buyer struct {
	buyerKey
	refs uint32 // orders, and commands under way
}

// buyerKey is an id with its hash, which the digests of the buyer's orders use too.
type buyerKey struct {
	digest uint64
	id     BuyerID
}

func makeBuyerKey(id BuyerID) buyerKey {
	return buyerKey{digest: mixString(0, string(id)), id: id}
}

func (k buyerKey) hash() uint64 { return k.digest }

func (b *buyers) keyOf(slot uint32) buyerKey { return b.at(slot).buyerKey }

// hold finds or makes the slot of a buyer and keeps it from being forgotten.
func (b *buyers) hold(key buyerKey) uint32 {
	at := b.index.look(key)
	if !at.known {
		slot := b.take()
		*b.edit(slot) = buyer{buyerKey: key, refs: 1}
		at.set(slot)
		return slot
	}
	slot := at.ref()
	b.edit(slot).refs++
	return slot
}

// drop undoes one hold.
func (b *buyers) drop(slot uint32) {
	record := b.edit(slot)
	record.refs--
	if record.refs == 0 {
		b.index.remove(record.buyerKey)
		b.giveBack(slot)
	}
}
