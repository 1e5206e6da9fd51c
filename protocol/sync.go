package protocol

import (
	"encoding/binary"

	"github.com/tinylib/msgp/msgp"
)

// SyncInit is SYNC_INIT: start the delta sync of a last-write-wins map.
type SyncInit struct {
	MapName string `wire:"mapName"`
	// LastSyncTimestamp is the millis of the latest server timestamp that the
	// client has seen, over all maps; zero if it never synced.
	LastSyncTimestamp int64 `wire:"lastSyncTimestamp,optional"`
}

// Kind implements Message.
func (*SyncInit) Kind() Kind { return KindSyncInit }

// Correlation is the map name.
func (m *SyncInit) Correlation() string { return m.MapName }

// SyncRespRoot is SYNC_RESP_ROOT: the server's root hash of the map.
type SyncRespRoot struct {
	MapName string `wire:"mapName"`
	// RootHash is zero for an empty or unknown map.
	RootHash  uint32    `wire:"rootHash"`
	Timestamp Timestamp `wire:"timestamp"`
}

// Kind implements Message.
func (*SyncRespRoot) Kind() Kind { return KindSyncRespRoot }

// MerkleReqBucket is MERKLE_REQ_BUCKET: ask for the children of a tree node.
type MerkleReqBucket struct {
	MapName string `wire:"mapName"`
	// Path is 0 to 3 lower-case hex digits.
	Path string `wire:"path"`
}

// Kind implements Message.
func (*MerkleReqBucket) Kind() Kind { return KindMerkleReqBucket }

// Correlation is the map name.
func (m *MerkleReqBucket) Correlation() string { return m.MapName }

// SyncRespBuckets is SYNC_RESP_BUCKETS: the hashes of the children of a node.
type SyncRespBuckets struct {
	MapName string `wire:"mapName"`
	// Path repeats the requested path.
	Path string `wire:"path"`
	// Buckets maps the next hex digit alone, not the whole path, to the hash.
	Buckets map[string]uint32 `wire:"buckets"`
}

// Kind implements Message.
func (*SyncRespBuckets) Kind() Kind { return KindSyncRespBuckets }

// SyncRespLeaf is SYNC_RESP_LEAF: all records of a leaf, tombstones included.
type SyncRespLeaf struct {
	MapName string
	Path    string
	Records []KeyedRecord
}

// Kind implements Message.
func (*SyncRespLeaf) Kind() Kind { return KindSyncRespLeaf }

func (m *SyncRespLeaf) readBody(r *reader) {
	f := r.fields()
	for f.next() {
		switch string(f.name) {
		case "mapName":
			m.MapName = f.required(0).str()
		case "path":
			m.Path = f.required(1).str()
		case "records":
			a := f.required(2).array()
			if a.left > 0 {
				m.Records = make([]KeyedRecord, 0, min(a.left, firstElements))
			}
			for a.next() {
				var kr KeyedRecord
				kr.readFrom(r)
				m.Records = append(m.Records, kr)
			}
		default:
			r.skip()
		}
	}
	f.end("mapName", "path", "records")
}

// LeafFrame makes the frame of one SYNC_RESP_LEAF record by record, so that a leaf needs
// no memory but its frame. The zero value is not ready; see NewLeafFrame.
type LeafFrame struct {
	buf   []byte
	count int // where the number of records lies
	n     uint32
}

// NewLeafFrame begins the frame of a leaf with room for size bytes.
func NewLeafFrame(mapName, path string, size int) *LeafFrame {
	outer := newObject(make([]byte, 0, size))
	outer.str("type", kinds[KindSyncRespLeaf].name)
	outer.key(payload.key())
	o := newObject(outer.buf)
	o.str("mapName", mapName)
	o.str("path", path)
	o.key("records")
	const array32 = 0xdd
	f := &LeafFrame{buf: append(o.buf, array32, 0, 0, 0, 0)}
	f.count = len(f.buf) - 4
	return f
}

// Add appends a record, which it does not keep.
func (f *LeafFrame) Add(key string, rec Record) {
	f.buf = KeyedRecord{Key: key, Record: rec}.appendTo(f.buf)
	f.n++
}

// Len is the number of bytes so far.
func (f *LeafFrame) Len() int { return len(f.buf) }

// Frame returns the frame. Nothing can be added any more.
func (f *LeafFrame) Frame() []byte {
	binary.BigEndian.PutUint32(f.buf[f.count:], f.n)
	return f.buf
}

func (m *SyncRespLeaf) appendFields(o object) object {
	o.str("mapName", m.MapName)
	o.str("path", m.Path)
	o.key("records")
	o.buf = msgp.AppendArrayHeader(o.buf, uint32(len(m.Records)))
	for i := range m.Records {
		o.buf = m.Records[i].appendTo(o.buf)
	}
	return o
}
