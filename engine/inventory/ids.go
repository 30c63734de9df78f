package inventory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"strings"
)

// ProductID is one label of [a-z0-9-] (1–63 bytes) or two joined by a dot. The first label
// decides the shard, so that products of one label can be sold in one basket.
type ProductID string

// Valid says whether p has the form of a product id.
func (p ProductID) Valid() bool {
	first, second, two := strings.Cut(string(p), ".")
	return validLabel(first) && (!two || validLabel(second))
}

func validLabel(label string) bool {
	if len(label) < 1 || len(label) > 63 {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// Label is the first label of p: what a basket has in common.
func (p ProductID) Label() string {
	label, _, _ := strings.Cut(string(p), ".")
	return label
}

// Shard is where p lives among the given number of shards (≥ 1): FNV-1a, 64 bits, of the first
// label, modulo shards. It is part of the stored format: it never changes.
func (p ProductID) Shard(shards uint16) ShardID {
	h := fnv.New64a()
	h.Write([]byte(p.Label()))
	return ShardID(h.Sum64() % uint64(shards))
}

// ShardID numbers the raft groups from 0.
type ShardID uint16

// BuyerID is an opaque id of who orders, 1–64 visible ASCII bytes, never a phone, e-mail or
// document.
type BuyerID string

// Valid says whether b has the form of a buyer id.
func (b BuyerID) Valid() bool { return visibleASCII(string(b), 64) }

// PaymentID names one payment attempt, 1–64 visible ASCII bytes.
type PaymentID string

// Valid says whether p has the form of a payment id.
func (p PaymentID) Valid() bool { return visibleASCII(string(p), 64) }

func visibleASCII(s string, most int) bool {
	if len(s) < 1 || len(s) > most {
		return false
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return false
		}
	}
	return true
}

// KeyHash is what remains of an idempotency key: a keyed hash of its whole scope. 96 bits: with
// 2²⁴ orders in a shard two keys collide with probability 2⁻⁴⁹.
type KeyHash [12]byte

func (k KeyHash) hash() uint64 { return binary.BigEndian.Uint64(k[:8]) }

// HashKey hashes an idempotency key in its scope under the cluster's secret (32 bytes). The
// truncation makes SHA-256 safe as a prefix MAC; the lengths make the fields unambiguous.
func HashKey(secret []byte, tenant string, buyer BuyerID, key, label string) KeyHash {
	buf := make([]byte, 0, 512)
	buf = append(buf, secret...)
	for _, field := range [...]string{tenant, string(buyer), key, label} {
		buf = binary.AppendUvarint(buf, uint64(len(field)))
		buf = append(buf, field...)
	}
	sum := sha256.Sum256(buf)
	return KeyHash(sum[:])
}

// OrderID says where an order lives and, by its hash, which it is: shard (2 bytes), day of
// creation in log time (2 bytes, days since 1970), KeyHash (12). Sixteen bytes, as a uuid
// column takes them; written as 32 hexadecimal digits.
type OrderID [16]byte

const dayMilli = 24 * 60 * 60 * 1000

// MakeOrderID builds the id of the order with this key, created at this log time.
func MakeOrderID(shard ShardID, createdUnixMilli int64, key KeyHash) OrderID {
	var id OrderID
	binary.BigEndian.PutUint16(id[0:], uint16(shard))
	binary.BigEndian.PutUint16(id[2:], uint16(createdUnixMilli/dayMilli))
	copy(id[4:], key[:])
	return id
}

// ParseOrderID reads the 32 digits; ok is false for anything else.
func ParseOrderID(text string) (id OrderID, ok bool) {
	if len(text) != 2*len(id) {
		return OrderID{}, false
	}
	for i := range len(text) {
		c := text[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return OrderID{}, false
		}
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}

// Shard is the shard that the order lives on.
func (o OrderID) Shard() ShardID { return ShardID(binary.BigEndian.Uint16(o[0:])) }

// Key is the hash that the order is looked up by.
func (o OrderID) Key() KeyHash { return KeyHash(o[4:]) }

func (o OrderID) String() string { return hex.EncodeToString(o[:]) }
