package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// receipts is a small file beside the database that says, for each group, the number of the last
// commit that was acknowledged. The database alone can't tell a last record that was damaged
// after its sync from one that was torn by a crash before it: both end the write-ahead log. A
// commit that is in the receipts and not in the database is one that was lost.
//
// A receipt is written after the sync of its commit and before the acknowledgement, and is not
// synced itself: it survives the process, and reaches the disk when the kernel writes it back. A
// power cut can only make it older, which proves less and never accuses wrongly.
//
// The file's header names the owner of the store, and its presence, put there by a rename at the
// end of the first boot, is what makes a directory a store.
//
//	frame  of kindReceipts, body: owner; zeros up to receiptsHeaderBytes
//	slots  one for each group id: commit u64, CRC-32C of group and commit u32, zero u32
//
// Slots don't cross sectors, so a slot is written whole or not at all. An empty slot is zeros.
type receipts struct {
	file vfs.File
}

const (
	receiptsName        = "RECEIPTS"
	receiptsTempName    = "RECEIPTS.new"
	receiptsHeaderBytes = 4096
	receiptBytes        = 16
)

func receiptChecksum(group uint16, commit uint64) uint32 {
	var buf [10]byte
	binary.BigEndian.PutUint16(buf[0:], group)
	binary.BigEndian.PutUint64(buf[2:], commit)
	return crc32.Checksum(buf[:], castagnoli)
}

func putReceipt(slot *[receiptBytes]byte, group uint16, commit uint64) {
	binary.BigEndian.PutUint64(slot[0:], commit)
	binary.BigEndian.PutUint32(slot[8:], receiptChecksum(group, commit))
}

// sign records that a commit of the group is about to be acknowledged. slot is scratch space of
// the caller's, who is alone in signing for the group.
func (r *receipts) sign(slot *[receiptBytes]byte, group uint16, commit uint64) error {
	putReceipt(slot, group, commit)
	_, err := r.file.WriteAt(slot[:], receiptsHeaderBytes+int64(group)*receiptBytes)
	if err != nil {
		return fmt.Errorf("sign receipt of group %d: %w", group, err)
	}
	return nil
}

func openReceipts(fs vfs.FS, dir string) (*receipts, error) {
	file, err := fs.OpenReadWrite(fs.PathJoin(dir, receiptsName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("open receipts: %w", err)
	}
	return &receipts{file}, nil
}

// createReceipts writes the empty file, whose appearance completes the first boot.
func createReceipts(fs vfs.FS, dir, owner string) error {
	header := make([]byte, receiptsHeaderBytes)
	frame := header[:frameHeaderBytes+copy(header[frameHeaderBytes:], owner)]
	sealFrame(frame, kindReceipts, 0)
	temp := fs.PathJoin(dir, receiptsTempName)
	if err := writeSynced(fs, temp, header); err != nil {
		return fmt.Errorf("create receipts: %w", err)
	}
	if err := fs.Rename(temp, fs.PathJoin(dir, receiptsName)); err != nil {
		return fmt.Errorf("create receipts: %w", err)
	}
	if err := syncDir(fs, dir); err != nil {
		return fmt.Errorf("create receipts: %w", err)
	}
	return nil
}

// readReceipts returns the owner and the last acknowledged commit of every group that has one.
// The error wraps ErrCorrupt when the file is damaged.
func readReceipts(fs vfs.FS, dir string) (string, map[uint16]uint64, error) {
	file, err := fs.Open(fs.PathJoin(dir, receiptsName))
	if err != nil {
		return "", nil, fmt.Errorf("read receipts: %w", err)
	}
	content, err := io.ReadAll(file)
	if errClose := file.Close(); err == nil {
		err = errClose
	}
	if err != nil {
		return "", nil, fmt.Errorf("read receipts: %w", err)
	}
	return parseReceipts(content)
}

func parseReceipts(content []byte) (string, map[uint16]uint64, error) {
	if len(content) < receiptsHeaderBytes {
		return "", nil, fmt.Errorf("receipts: %w: %d bytes", ErrCorrupt, len(content))
	}
	header := content[:receiptsHeaderBytes]
	length := min(binary.BigEndian.Uint32(header), receiptsHeaderBytes)
	owner, _, err := openFrame(header[:length], kindReceipts, 0, 1)
	if err != nil {
		return "", nil, fmt.Errorf("receipts: %w", err)
	}
	if len(bytes.Trim(header[length:], "\x00")) > 0 {
		return "", nil, fmt.Errorf("receipts: %w: header is not followed by zeros", ErrCorrupt)
	}
	commits := make(map[uint16]uint64)
	slots := content[receiptsHeaderBytes:]
	for i := 0; (i+1)*receiptBytes <= len(slots); i++ {
		slot := [receiptBytes]byte(slots[i*receiptBytes:])
		if slot == ([receiptBytes]byte{}) {
			continue
		}
		group, commit := uint16(i), binary.BigEndian.Uint64(slot[:])
		var want [receiptBytes]byte
		putReceipt(&want, group, commit)
		if slot != want {
			return "", nil, fmt.Errorf("receipt of group %d: %w", group, ErrCorrupt)
		}
		commits[group] = commit
	}
	return string(owner), commits, nil
}
