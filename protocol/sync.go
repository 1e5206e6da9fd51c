package protocol

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
	MapName string        `wire:"mapName"`
	Path    string        `wire:"path"`
	Records []KeyedRecord `wire:"records"`
}

// Kind implements Message.
func (*SyncRespLeaf) Kind() Kind { return KindSyncRespLeaf }
