package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"

	"github.com/quorate/quorate/protocol"
)

// Row is everything that maps of one name hold under one key.
type Row struct {
	Map, Key string
	// Record is the last-write-wins record, nil if there is none.
	Record *protocol.Record
	// Set is what the observed-remove map has under the key.
	Set protocol.OREntry
	// Index is the log index of the latest change in it.
	Index uint64
	// RemovedMillis is when the last of it was removed, 0 while something of it is live.
	RemovedMillis int64
	// Gone says that nothing is stored any more: the row is deleted.
	Gone bool
}

// The names of the fields of a value. A record has "value", "timestamp" and perhaps
// "ttlMs", as on the wire; a set has "records" and "tombstones".
const (
	fieldMap        = "map"
	fieldKey        = "key"
	fieldRecords    = "records"
	fieldTombstones = "tombstones"
	fieldTag        = "tag"
)

// maxName is the length of names above which PostgreSQL may refuse them in an index.
const maxName = 1000

// hashed begins the columns of names that PostgreSQL does not hold as they are.
const hashed = "~sha256:"

// column is what stands for a name in its column: the name itself, or its hash if it is
// too long, no text to PostgreSQL, or could be taken for a hash.
func column(name string) (text string, plain bool) {
	if len(name) <= maxName && utf8.ValidString(name) && strings.IndexByte(name, 0) < 0 && !strings.HasPrefix(name, hashed) {
		return name, true
	}
	sum := sha256.Sum256([]byte(name))
	return hashed + hex.EncodeToString(sum[:]), false
}

// appendValue encodes the value of r: one MsgPack map. Names that their columns do not
// hold are in it.
func appendValue(dst []byte, r *Row) []byte {
	_, plainMap := column(r.Map)
	_, plainKey := column(r.Key)
	fields := uint32(0)
	var record map[string]msgp.Raw
	if r.Record != nil {
		record = protocol.Fields(protocol.AppendRecord(nil, *r.Record))
		fields += uint32(len(record))
	}
	hasSet := len(r.Set.Records) > 0 || len(r.Set.Tombstones) > 0
	for _, present := range []bool{!plainMap, !plainKey, hasSet, hasSet} {
		if present {
			fields++
		}
	}
	dst = msgp.AppendMapHeader(dst, fields)
	if !plainMap {
		dst = msgp.AppendString(msgp.AppendString(dst, fieldMap), r.Map)
	}
	if !plainKey {
		dst = msgp.AppendString(msgp.AppendString(dst, fieldKey), r.Key)
	}
	for _, name := range []string{"value", "timestamp", "ttlMs"} {
		if raw, ok := record[name]; ok {
			dst = append(msgp.AppendString(dst, name), raw...)
		}
	}
	if hasSet {
		dst = appendSet(dst, &r.Set)
	}
	return dst
}

func appendSet(dst []byte, set *protocol.OREntry) []byte {
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, fieldRecords), uint32(len(set.Records)))
	for i := range set.Records {
		rec := &set.Records[i]
		fields := protocol.Fields(protocol.AppendRecord(nil, protocol.Record{Value: rec.Value, Timestamp: rec.Timestamp, TTLMillis: rec.TTLMillis}))
		dst = msgp.AppendMapHeader(dst, uint32(len(fields)+1))
		dst = msgp.AppendString(msgp.AppendString(dst, fieldTag), rec.Tag)
		for _, name := range []string{"value", "timestamp", "ttlMs"} {
			if raw, ok := fields[name]; ok {
				dst = append(msgp.AppendString(dst, name), raw...)
			}
		}
	}
	dst = msgp.AppendArrayHeader(msgp.AppendString(dst, fieldTombstones), uint32(len(set.Tombstones)))
	for _, tag := range set.Tombstones {
		dst = msgp.AppendString(dst, tag)
	}
	return dst
}

var errValue = errors.New("value of a row is not a record")

// decodeRow reads a row back from its columns.
func decodeRow(mapName, key string, value []byte) (Row, error) {
	row := Row{Map: mapName, Key: key}
	if shape, err := protocol.GuardAnswer(value); err != nil || shape.Size != len(value) {
		return Row{}, fmt.Errorf("map %q, key %q: %w", mapName, key, errors.Join(errValue, err))
	}
	fields := protocol.Fields(value)
	if len(fields) == 0 {
		return Row{}, fmt.Errorf("map %q, key %q: %w", mapName, key, errValue)
	}
	err := errors.Join(
		text(fields, fieldMap, &row.Map), text(fields, fieldKey, &row.Key),
		row.readRecord(fields, value), row.readSet(fields),
	)
	if err != nil {
		return Row{}, fmt.Errorf("map %q, key %q: %w: %w", mapName, key, errValue, err)
	}
	row.Set.Key = row.Key
	return row, nil
}

func text(fields map[string]msgp.Raw, name string, into *string) error {
	raw, ok := fields[name]
	if !ok {
		return nil
	}
	s, rest, err := msgp.ReadStringBytes(raw)
	if err == nil && len(rest) > 0 {
		err = errValue
	}
	*into = s
	return err
}

// readRecord takes the fields of a record, which other fields do not disturb.
func (r *Row) readRecord(fields map[string]msgp.Raw, value []byte) error {
	if _, ok := fields["timestamp"]; !ok {
		return nil
	}
	rec, _, err := protocol.ReadRecord(value)
	if err != nil {
		return err
	}
	rec = rec.Clone()
	if rec.IsTombstone() {
		rec.Value = nil
	}
	r.Record = &rec
	return nil
}

func (r *Row) readSet(fields map[string]msgp.Raw) error {
	if raw, ok := fields[fieldRecords]; ok {
		list, err := elements(raw)
		if err != nil {
			return err
		}
		for _, element := range list {
			rec, _, err := protocol.ReadRecord(element)
			if err != nil {
				return err
			}
			rec = rec.Clone()
			add := protocol.ORRecord{Value: rec.Value, Timestamp: rec.Timestamp, TTLMillis: rec.TTLMillis}
			if err := text(protocol.Fields(element), fieldTag, &add.Tag); err != nil {
				return err
			}
			r.Set.Records = append(r.Set.Records, add)
		}
	}
	raw, ok := fields[fieldTombstones]
	if !ok {
		return nil
	}
	list, err := elements(raw)
	for _, element := range list {
		tag, _, bad := msgp.ReadStringBytes(element)
		err = errors.Join(err, bad)
		r.Set.Tombstones = append(r.Set.Tombstones, tag)
	}
	return err
}

// elements splits an array.
func elements(raw msgp.Raw) ([]msgp.Raw, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(raw)
	var list []msgp.Raw
	for range n {
		if err != nil {
			return nil, err
		}
		after, skipErr := msgp.Skip(rest)
		if err = skipErr; err == nil {
			list = append(list, msgp.Raw(rest[:len(rest)-len(after)]))
			rest = after
		}
	}
	return list, err
}
