package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/quorate/quorate/fsm"
)

// magic ends with the format version. After it come records: a kind, the length of
// the payload (4 bytes little-endian), the payload, and the CRC-32C of all these
// (4 bytes little-endian). The file is: header; per group a begin, chunks, an end;
// footer, with nothing behind it.
const magic = "QUORBAK\x01"

// The kinds of records. Numbers are on disk: never reused.
const (
	recordHeader = 1 // Header, JSON
	recordGroup  = 2 // Part, JSON
	recordChunk  = 3 // a zstd frame of at most chunkSize bytes of the group's snapshot
	recordEnd    = 4 // groupEnd, JSON
	recordFooter = 5 // footer, JSON
)

const (
	// chunkSize is how much of a snapshot is in one chunk, before compression.
	chunkSize = 1 << 20
	// maxRecord bounds the payload of a record: what zstd makes of a chunk that does
	// not compress is a little larger than the chunk.
	maxRecord = chunkSize + 64<<10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Errors of this package. All are wrapped with what was found.
var (
	// ErrDamaged: the file is no complete backup as it was written.
	ErrDamaged = errors.New("backup is damaged or incomplete")
	// ErrFormat: a newer build wrote the file, or it is no backup at all.
	ErrFormat = errors.New("not a backup that this build can read")
)

// Header says where a backup comes from.
type Header struct {
	// ClusterID is the cluster that was saved, NodeID the node that was asked.
	ClusterID string `json:"clusterId"`
	NodeID    string `json:"nodeId"`
	// Version is that of the program which wrote the backup.
	Version string `json:"version"`
	// CreatedMillis is when the backup was begun, by the clock of its writer.
	CreatedMillis int64 `json:"createdMs"`
	// Groups is the number of data groups; the backup has those and the system group.
	Groups uint32 `json:"groups"`
}

// Part begins the snapshot of one group.
type Part struct {
	Group uint32 `json:"group"`
	// Index and Term are those of the last log entry in it.
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	// Node is the server id of the replica that it was taken from.
	Node string `json:"node"`
}

// groupEnd ends a group.
type groupEnd struct {
	// Bytes is the size of the snapshot.
	Bytes int64 `json:"bytes"`
}

// footer ends a backup.
type footer struct {
	Groups int `json:"groups"`
	// Hash is the SHA-256 of everything before the footer, in hexadecimal.
	Hash string `json:"sha256"`
}

// Summary is what a backup contains.
type Summary struct {
	Header
	// Size is that of the file.
	Size  int64         `json:"size"`
	Parts []PartSummary `json:"parts"`
}

// PartSummary is one group of a Summary.
type PartSummary struct {
	Part
	// Bytes is the size of the snapshot, uncompressed.
	Bytes int64 `json:"bytes"`
	// Records and Keys count the last-write-wins records and the keys of observed-remove
	// maps, tombstones included, Items everything. Zero unless the contents were checked.
	Records uint64 `json:"records,omitempty"`
	Keys    uint64 `json:"keys,omitempty"`
	Items   uint64 `json:"items,omitempty"`
}

// count takes over what a check of the contents found.
func (g *PartSummary) count(info fsm.SnapshotInfo) {
	g.Records, g.Keys, g.Items = info.Records, info.Sets, info.Items
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

func decode(payload []byte, into any) error {
	if err := json.Unmarshal(payload, into); err != nil {
		return damaged("record: %w", err)
	}
	return nil
}
