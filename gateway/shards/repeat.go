package shards

import "numera/engine/inventory"

// repeatable says whether a command may be sent again when it may have acted already: whether
// doing it twice, with other commands in between, is the same as doing it once. Queries are.
//
// Block, Unblock, PutProduct, SetSaleState and LowerClock are not: after A's first attempt B may
// have set something else, or unblocked, and A's second would silently undo that; LowerClock
// would set back time that has passed since. They are repeated only while nothing was done.
func repeatable(kind inventory.Kind) bool {
	switch kind {
	case 0,
		// By their key.
		inventory.KindReserve, inventory.KindRestock,
		// Each leaves a status that it never comes back to, and repeated answers the order.
		inventory.KindBeginPayment, inventory.KindConfirm, inventory.KindRefuse,
		inventory.KindRelease, inventory.KindShip, inventory.KindRefund,
		// The deadline is later by as much as the second attempt is, within its limit.
		inventory.KindExtend,
		// An attached consumer stays where it is; acknowledgements only rise. A consumer that
		// comes back while it is being detached is told so, attaches again and scans.
		inventory.KindAttach, inventory.KindDetach, inventory.KindAcknowledge:
		return true
	}
	return false
}

// doubtful says that a refusal of a repeated command may stem from its own first attempt having
// acted: it is not the answer to the call. The first extend may have taken all that the limit
// allows. Of the other repeatable commands none refuses what it has done itself.
func doubtful(kind inventory.Kind, o *inventory.Outcome) bool {
	return kind == inventory.KindExtend && o.Code == inventory.CodeExtensionLimit
}
