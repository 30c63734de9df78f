package gateway

import (
	"strconv"

	"numera/engine/inventory"
)

// AppendEvent writes an event as consumers of the stream numera-events read it: what happened, and
// the order or product right after it. Readers must ignore members that they do not know.
func AppendEvent(buf []byte, shard inventory.ShardID, e *inventory.Event) []byte {
	buf = appendText(append(buf, `{"kind":`...), e.Kind.String())
	buf = strconv.AppendUint(append(buf, `,"shard":`...), uint64(shard), 10)
	buf = strconv.AppendUint(append(buf, `,"sequence":`...), e.Sequence, 10)
	buf = appendTime(append(buf, `,"at":`...), e.AtUnixMilli)
	buf = appendText(append(buf, `,"correlation":`...), e.Correlation)
	if e.Kind.AboutProduct() {
		buf = appendProduct(append(buf, `,"product":`...), e.Product)
	} else {
		buf = appendOrder(append(buf, `,"order":`...), e.Order)
	}
	return append(buf, '}')
}
