package protocol

import "fmt"

// kindInfo is one row of the kind table.
type kindInfo struct {
	name      string
	direction Direction
	layout    layout
	alloc     func() Message
}

// kinds is the kind table: one row for each Kind.
var kinds = [kindCount]kindInfo{
	KindAuthRequired: {"AUTH_REQUIRED", ServerToClient, flat, alloc[AuthRequired]},
	KindAuth:         {"AUTH", ClientToServer, flat, alloc[Auth]},
	KindAuthAck:      {"AUTH_ACK", ServerToClient, flat, alloc[AuthAck]},
	KindAuthFail:     {"AUTH_FAIL", ServerToClient, flat, alloc[AuthFail]},
	KindDeviceHello:  {"DEVICE_HELLO", ClientToServer, flat, alloc[DeviceHello]},
	KindDeviceAck:    {"DEVICE_ACK", ServerToClient, flat, alloc[DeviceAck]},

	KindClientOp:             {"CLIENT_OP", ClientToServer, payload, alloc[ClientOpMessage]},
	KindOpBatch:              {"OP_BATCH", ClientToServer, payload, alloc[OpBatch]},
	KindBatch:                {"BATCH", BothWays, flat, alloc[Batch]},
	KindOpAck:                {"OP_ACK", ServerToClient, payload, alloc[OpAck]},
	KindOpRejected:           {"OP_REJECTED", ServerToClient, payload, alloc[OpRejected]},
	KindSyncInit:             {"SYNC_INIT", ClientToServer, flat, alloc[SyncInit]},
	KindSyncRespRoot:         {"SYNC_RESP_ROOT", ServerToClient, payload, alloc[SyncRespRoot]},
	KindSyncRespBuckets:      {"SYNC_RESP_BUCKETS", ServerToClient, payload, alloc[SyncRespBuckets]},
	KindSyncRespLeaf:         {"SYNC_RESP_LEAF", ServerToClient, payload, alloc[SyncRespLeaf]},
	KindMerkleReqBucket:      {"MERKLE_REQ_BUCKET", ClientToServer, payload, alloc[MerkleReqBucket]},
	KindORMapSyncInit:        {"ORMAP_SYNC_INIT", ClientToServer, flat, alloc[ORMapSyncInit]},
	KindORMapSyncRespRoot:    {"ORMAP_SYNC_RESP_ROOT", ServerToClient, payload, alloc[ORMapSyncRespRoot]},
	KindORMapSyncRespBuckets: {"ORMAP_SYNC_RESP_BUCKETS", ServerToClient, payload, alloc[ORMapSyncRespBuckets]},
	KindORMapMerkleReqBucket: {"ORMAP_MERKLE_REQ_BUCKET", ClientToServer, payload, alloc[ORMapMerkleReqBucket]},
	KindORMapSyncRespLeaf:    {"ORMAP_SYNC_RESP_LEAF", ServerToClient, payload, alloc[ORMapSyncRespLeaf]},
	KindORMapDiffRequest:     {"ORMAP_DIFF_REQUEST", ClientToServer, payload, alloc[ORMapDiffRequest]},
	KindORMapDiffResponse:    {"ORMAP_DIFF_RESPONSE", ServerToClient, payload, alloc[ORMapDiffResponse]},
	KindORMapPushDiff:        {"ORMAP_PUSH_DIFF", BothWays, payload, alloc[ORMapPushDiff]},
	KindClientApplyAck:       {"CLIENT_APPLY_ACK", ClientToServer, flat, alloc[ClientApplyAck]},

	KindQuerySub:               {"QUERY_SUB", ClientToServer, payload, alloc[QuerySub]},
	KindQueryUnsub:             {"QUERY_UNSUB", ClientToServer, payload, alloc[QueryUnsub]},
	KindQueryResp:              {"QUERY_RESP", ServerToClient, payload, alloc[QueryResp]},
	KindQueryUpdate:            {"QUERY_UPDATE", ServerToClient, payload, alloc[QueryUpdate]},
	KindQuerySyncInit:          {"QUERY_SYNC_INIT", ClientToServer, payload, alloc[QuerySyncInit]},
	KindSQLQuery:               {"SQL_QUERY", ClientToServer, payload, alloc[SQLQuery]},
	KindSQLQueryResp:           {"SQL_QUERY_RESP", ServerToClient, payload, alloc[SQLQueryResp]},
	KindHybridQuerySubscribe:   {"HYBRID_QUERY_SUBSCRIBE", ClientToServer, payload, alloc[HybridQuerySubscribe]},
	KindHybridQueryUnsubscribe: {"HYBRID_QUERY_UNSUBSCRIBE", ClientToServer, payload, alloc[HybridQueryUnsubscribe]},

	KindSearch:             {"SEARCH", ClientToServer, payload, alloc[Search]},
	KindSearchResp:         {"SEARCH_RESP", ServerToClient, payload, alloc[SearchResp]},
	KindSearchSub:          {"SEARCH_SUB", ClientToServer, payload, alloc[SearchSub]},
	KindSearchUpdate:       {"SEARCH_UPDATE", ServerToClient, payload, alloc[SearchUpdate]},
	KindSearchUnsub:        {"SEARCH_UNSUB", ClientToServer, payload, alloc[SearchUnsub]},
	KindVectorSearch:       {"VECTOR_SEARCH", ClientToServer, payload, alloc[VectorSearch]},
	KindVectorSearchResp:   {"VECTOR_SEARCH_RESP", ServerToClient, payload, alloc[VectorSearchResp]},
	KindHybridSearch:       {"HYBRID_SEARCH", ClientToServer, payload, alloc[HybridSearch]},
	KindHybridSearchResp:   {"HYBRID_SEARCH_RESP", ServerToClient, payload, alloc[HybridSearchResp]},
	KindHybridSearchSub:    {"HYBRID_SEARCH_SUB", ClientToServer, payload, alloc[HybridSearchSub]},
	KindHybridSearchUpdate: {"HYBRID_SEARCH_UPDATE", ServerToClient, payload, alloc[HybridSearchUpdate]},
	KindHybridSearchUnsub:  {"HYBRID_SEARCH_UNSUB", ClientToServer, payload, alloc[HybridSearchUnsub]},

	KindTopicSub:                   {"TOPIC_SUB", ClientToServer, payload, alloc[TopicSub]},
	KindTopicUnsub:                 {"TOPIC_UNSUB", ClientToServer, payload, alloc[TopicUnsub]},
	KindTopicPub:                   {"TOPIC_PUB", ClientToServer, payload, alloc[TopicPub]},
	KindTopicMessage:               {"TOPIC_MESSAGE", ServerToClient, payload, alloc[TopicMessage]},
	KindLockRequest:                {"LOCK_REQUEST", ClientToServer, payload, alloc[LockRequest]},
	KindLockRelease:                {"LOCK_RELEASE", ClientToServer, payload, alloc[LockRelease]},
	KindLockGranted:                {"LOCK_GRANTED", ServerToClient, payload, alloc[LockGranted]},
	KindLockReleased:               {"LOCK_RELEASED", ServerToClient, payload, alloc[LockReleased]},
	KindCounterRequest:             {"COUNTER_REQUEST", ClientToServer, payload, alloc[CounterRequest]},
	KindCounterSync:                {"COUNTER_SYNC", ClientToServer, payload, alloc[CounterSync]},
	KindCounterResponse:            {"COUNTER_RESPONSE", ServerToClient, payload, alloc[CounterResponse]},
	KindCounterUpdate:              {"COUNTER_UPDATE", ServerToClient, payload, alloc[CounterUpdate]},
	KindPing:                       {"PING", ClientToServer, flat, alloc[Ping]},
	KindPong:                       {"PONG", ServerToClient, flat, alloc[Pong]},
	KindEntryProcess:               {"ENTRY_PROCESS", ClientToServer, flat, alloc[EntryProcess]},
	KindEntryProcessBatch:          {"ENTRY_PROCESS_BATCH", ClientToServer, flat, alloc[EntryProcessBatch]},
	KindEntryProcessResponse:       {"ENTRY_PROCESS_RESPONSE", ServerToClient, flat, alloc[EntryProcessResponse]},
	KindEntryProcessBatchResponse:  {"ENTRY_PROCESS_BATCH_RESPONSE", ServerToClient, flat, alloc[EntryProcessBatchResponse]},
	KindJournalSubscribe:           {"JOURNAL_SUBSCRIBE", ClientToServer, flat, alloc[JournalSubscribe]},
	KindJournalUnsubscribe:         {"JOURNAL_UNSUBSCRIBE", ClientToServer, flat, alloc[JournalUnsubscribe]},
	KindJournalEvent:               {"JOURNAL_EVENT", ServerToClient, event, alloc[JournalEvent]},
	KindJournalRead:                {"JOURNAL_READ", ClientToServer, flat, alloc[JournalRead]},
	KindJournalReadResponse:        {"JOURNAL_READ_RESPONSE", ServerToClient, flat, alloc[JournalReadResponse]},
	KindRegisterResolver:           {"REGISTER_RESOLVER", ClientToServer, flat, alloc[RegisterResolver]},
	KindRegisterResolverResponse:   {"REGISTER_RESOLVER_RESPONSE", ServerToClient, flat, alloc[RegisterResolverResponse]},
	KindUnregisterResolver:         {"UNREGISTER_RESOLVER", ClientToServer, flat, alloc[UnregisterResolver]},
	KindUnregisterResolverResponse: {"UNREGISTER_RESOLVER_RESPONSE", ServerToClient, flat, alloc[UnregisterResolverResponse]},
	KindMergeRejected:              {"MERGE_REJECTED", ServerToClient, flat, alloc[MergeRejected]},
	KindListResolvers:              {"LIST_RESOLVERS", ClientToServer, flat, alloc[ListResolvers]},
	KindListResolversResponse:      {"LIST_RESOLVERS_RESPONSE", ServerToClient, flat, alloc[ListResolversResponse]},

	KindPartitionMapRequest:      {"PARTITION_MAP_REQUEST", ClientToServer, payload, alloc[PartitionMapRequest]},
	KindPartitionMap:             {"PARTITION_MAP", ServerToClient, payload, alloc[PartitionMap]},
	KindPartitionMapDelta:        {"PARTITION_MAP_DELTA", ServerToClient, payload, alloc[PartitionMapDelta]},
	KindClusterSubRegister:       {"CLUSTER_SUB_REGISTER", NodeToNode, payload, alloc[ClusterSubRegister]},
	KindClusterSubAck:            {"CLUSTER_SUB_ACK", NodeToNode, payload, alloc[ClusterSubAck]},
	KindClusterSubUpdate:         {"CLUSTER_SUB_UPDATE", NodeToNode, payload, alloc[ClusterSubUpdate]},
	KindClusterSubUnregister:     {"CLUSTER_SUB_UNREGISTER", NodeToNode, payload, alloc[ClusterSubUnregister]},
	KindClusterSearchReq:         {"CLUSTER_SEARCH_REQ", NodeToNode, payload, alloc[ClusterSearchReq]},
	KindClusterSearchResp:        {"CLUSTER_SEARCH_RESP", NodeToNode, payload, alloc[ClusterSearchResp]},
	KindClusterSearchSubscribe:   {"CLUSTER_SEARCH_SUBSCRIBE", NodeToNode, payload, alloc[ClusterSearchSubscribe]},
	KindClusterSearchUnsubscribe: {"CLUSTER_SEARCH_UNSUBSCRIBE", NodeToNode, payload, alloc[ClusterSearchUnsubscribe]},
	KindClusterSearchUpdate:      {"CLUSTER_SEARCH_UPDATE", NodeToNode, payload, alloc[ClusterSearchUpdate]},

	KindServerEvent:       {"SERVER_EVENT", ServerToClient, payload, alloc[ServerEvent]},
	KindServerBatchEvent:  {"SERVER_BATCH_EVENT", ServerToClient, payload, alloc[ServerBatchEvent]},
	KindGCPrune:           {"GC_PRUNE", ServerToClient, payload, alloc[GCPrune]},
	KindError:             {"ERROR", ServerToClient, payload, alloc[ErrorMessage]},
	KindSyncResetRequired: {"SYNC_RESET_REQUIRED", ServerToClient, payload, alloc[SyncResetRequired]},
}

// alloc returns a new, empty message.
func alloc[T any, P interface {
	*T
	Message
}]() Message {
	return P(new(T))
}

// kindsByName finds a kind by its wire name.
var kindsByName = func() map[string]Kind {
	m := make(map[string]Kind, kindCount)
	for k := KindInvalid + 1; k < kindCount; k++ {
		m[kinds[k].name] = k
	}
	return m
}()

// Kinds lists all kinds.
func Kinds() []Kind {
	list := make([]Kind, 0, kindCount-1)
	for k := KindInvalid + 1; k < kindCount; k++ {
		list = append(list, k)
	}
	return list
}

// ParseKind finds the kind with the given wire name; ok is false if there is none.
func ParseKind(name string) (k Kind, ok bool) {
	k, ok = kindsByName[name]
	return k, ok
}

// String is the wire name of k.
func (k Kind) String() string {
	if k.valid() {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Direction says who sends messages of kind k; zero if k is no kind.
func (k Kind) Direction() Direction {
	if k.valid() {
		return kinds[k].direction
	}
	return 0
}

func (k Kind) valid() bool { return k > KindInvalid && k < kindCount }
