package protocol

// ORMapSyncInit is ORMAP_SYNC_INIT: start the sync of an observed-remove map.
type ORMapSyncInit struct {
	MapName string `wire:"mapName"`
	// RootHash and BucketHashes are the client's root and first-level hashes.
	RootHash     uint32            `wire:"rootHash"`
	BucketHashes map[string]uint32 `wire:"bucketHashes"`
	// LastSyncTimestamp is as in SyncInit.
	LastSyncTimestamp int64 `wire:"lastSyncTimestamp,optional"`
	// ClaimedEpoch is the latest covering epoch that the client has confirmed.
	ClaimedEpoch int64 `wire:"claimedEpoch,optional"`
}

// Kind implements Message.
func (*ORMapSyncInit) Kind() Kind { return KindORMapSyncInit }

// Correlation is the map name.
func (m *ORMapSyncInit) Correlation() string { return m.MapName }

// ORMapSyncRespRoot is ORMAP_SYNC_RESP_ROOT: the server's root hash of the map.
type ORMapSyncRespRoot struct {
	MapName   string    `wire:"mapName"`
	RootHash  uint32    `wire:"rootHash"`
	Timestamp Timestamp `wire:"timestamp"`
	// CoveringEpoch is the epoch that the answer covers, for ClientApplyAck; left
	// out when zero, in this message and the other two that have it.
	CoveringEpoch int64 `wire:"coveringEpoch,optional"`
	// FullResync orders the client to discard its local map first.
	FullResync bool `wire:"fullResync,optional"`
}

// Kind implements Message.
func (*ORMapSyncRespRoot) Kind() Kind { return KindORMapSyncRespRoot }

// ORMapMerkleReqBucket is ORMAP_MERKLE_REQ_BUCKET: ask for the children of a node.
type ORMapMerkleReqBucket struct {
	MapName string `wire:"mapName"`
	// Path is 0 to 3 lower-case hex digits.
	Path string `wire:"path"`
}

// Kind implements Message.
func (*ORMapMerkleReqBucket) Kind() Kind { return KindORMapMerkleReqBucket }

// Correlation is the map name.
func (m *ORMapMerkleReqBucket) Correlation() string { return m.MapName }

// ORMapSyncRespBuckets is ORMAP_SYNC_RESP_BUCKETS; see SyncRespBuckets.
type ORMapSyncRespBuckets struct {
	MapName string            `wire:"mapName"`
	Path    string            `wire:"path"`
	Buckets map[string]uint32 `wire:"buckets"`
}

// Kind implements Message.
func (*ORMapSyncRespBuckets) Kind() Kind { return KindORMapSyncRespBuckets }

// ORMapSyncRespLeaf is ORMAP_SYNC_RESP_LEAF: the state of all keys of a leaf.
type ORMapSyncRespLeaf struct {
	MapName       string    `wire:"mapName"`
	Path          string    `wire:"path"`
	Entries       []OREntry `wire:"entries"`
	CoveringEpoch int64     `wire:"coveringEpoch,optional"`
}

// Kind implements Message.
func (*ORMapSyncRespLeaf) Kind() Kind { return KindORMapSyncRespLeaf }

// ORMapDiffRequest is ORMAP_DIFF_REQUEST: ask for the state of some keys.
type ORMapDiffRequest struct {
	MapName string   `wire:"mapName"`
	Keys    []string `wire:"keys"`
}

// Kind implements Message.
func (*ORMapDiffRequest) Kind() Kind { return KindORMapDiffRequest }

// Correlation is the map name.
func (m *ORMapDiffRequest) Correlation() string { return m.MapName }

// ORMapDiffResponse is ORMAP_DIFF_RESPONSE: one entry per requested key, in order.
type ORMapDiffResponse struct {
	MapName       string    `wire:"mapName"`
	Entries       []OREntry `wire:"entries"`
	CoveringEpoch int64     `wire:"coveringEpoch,optional"`
}

// Kind implements Message.
func (*ORMapDiffResponse) Kind() Kind { return KindORMapDiffResponse }

// ORMapPushDiff is ORMAP_PUSH_DIFF: a client's state of some keys. The tombstones
// of each entry are those of its whole map. It has no answer.
type ORMapPushDiff struct {
	MapName string    `wire:"mapName"`
	Entries []OREntry `wire:"entries"`
}

// Kind implements Message.
func (*ORMapPushDiff) Kind() Kind { return KindORMapPushDiff }

// Correlation is the map name.
func (m *ORMapPushDiff) Correlation() string { return m.MapName }

// ClientApplyAck is CLIENT_APPLY_ACK: the client has durably applied everything
// up to a covering epoch. It has no answer.
type ClientApplyAck struct {
	Cursor int64 `wire:"cursor"`
}

// Kind implements Message.
func (*ClientApplyAck) Kind() Kind { return KindClientApplyAck }

// Correlation is empty: it has no answer.
func (*ClientApplyAck) Correlation() string { return "" }
