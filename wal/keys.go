package wal

import "encoding/binary"

// kind tells the families of keys apart. It is the first byte of a key, so that the states of all
// groups lie together and are listed at start without touching a log; it is repeated in the frame
// of the value, so that no value can pass for one of another kind.
type kind uint8

const (
	kindState    kind = 1 // key: kind ‖ group
	kindRecord   kind = 2 // key: kind ‖ group ‖ index
	kindReceipts kind = 3 // in no key: the header of the receipts file
)

const (
	stateKeyBytes  = 3
	recordKeyBytes = 11
)

func stateKey(group uint16) []byte {
	key := make([]byte, stateKeyBytes)
	putStateKey(key, group)
	return key
}

func putStateKey(key []byte, group uint16) {
	key[0] = byte(kindState)
	binary.BigEndian.PutUint16(key[1:], group)
}

func recordKey(group uint16, index uint64) []byte {
	key := make([]byte, recordKeyBytes)
	putRecordKey(key, group, index)
	return key
}

func putRecordKey(key []byte, group uint16, index uint64) {
	key[0] = byte(kindRecord)
	binary.BigEndian.PutUint16(key[1:], group)
	binary.BigEndian.PutUint64(key[3:], index)
}
