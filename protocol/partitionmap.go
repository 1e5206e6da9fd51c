package protocol

// PartitionMapRequest is PARTITION_MAP_REQUEST. It is answered if the server's map
// is newer.
type PartitionMapRequest struct {
	// CurrentVersion is the version that the client holds, zero for none.
	CurrentVersion uint32 `wire:"currentVersion,optional"`
}

// Kind implements Message.
func (*PartitionMapRequest) Kind() Kind { return KindPartitionMapRequest }

// Correlation is empty: the answer is the same for everybody.
func (*PartitionMapRequest) Correlation() string { return "" }

// PartitionMap is PARTITION_MAP: who owns which partition, and where nodes are.
type PartitionMap struct {
	// Version grows with every change and is at least 1.
	Version        uint32          `wire:"version"`
	PartitionCount uint32          `wire:"partitionCount"`
	Nodes          []PartitionNode `wire:"nodes"`
	// Partitions lists all partitions by ascending id.
	Partitions []PartitionOwner `wire:"partitions"`
	// GeneratedAt is in milliseconds since 1970.
	GeneratedAt int64 `wire:"generatedAt"`
}

// Kind implements Message.
func (*PartitionMap) Kind() Kind { return KindPartitionMap }

// The statuses of a node in a PartitionMap.
const (
	NodeActive    = "ACTIVE"
	NodeJoining   = "JOINING"
	NodeLeaving   = "LEAVING"
	NodeSuspected = "SUSPECTED"
	NodeFailed    = "FAILED"
)

// PartitionNode is one node of a PartitionMap.
type PartitionNode struct {
	NodeID    string        `wire:"nodeId"`
	Endpoints NodeEndpoints `wire:"endpoints"`
	// Status is one of NodeActive to NodeFailed.
	Status string `wire:"status"`
}

// NodeEndpoints says where clients reach a node.
type NodeEndpoints struct {
	// WebSocket is a complete URL that clients dial as it stands.
	WebSocket string `wire:"websocket"`
	HTTP      string `wire:"http,optional"`
}

// PartitionOwner is one partition of a PartitionMap.
type PartitionOwner struct {
	PartitionID   uint32   `wire:"partitionId"`
	OwnerNodeID   string   `wire:"ownerNodeId"`
	BackupNodeIDs []string `wire:"backupNodeIds"`
}

// PartitionMapDelta is PARTITION_MAP_DELTA: the changes from one version of the
// map to the next.
type PartitionMapDelta struct {
	Version         uint32            `wire:"version"`
	PreviousVersion uint32            `wire:"previousVersion"`
	Changes         []PartitionChange `wire:"changes"`
	// Timestamp is in milliseconds since 1970.
	Timestamp int64 `wire:"timestamp"`
}

// Kind implements Message.
func (*PartitionMapDelta) Kind() Kind { return KindPartitionMapDelta }

// PartitionChange is one changed partition of a PartitionMapDelta.
type PartitionChange struct {
	PartitionID   uint32 `wire:"partitionId"`
	PreviousOwner string `wire:"previousOwner"`
	NewOwner      string `wire:"newOwner"`
	// Reason is REBALANCE, FAILOVER, JOIN or LEAVE.
	Reason string `wire:"reason"`
}
