package protocol

// Kind identifies a type of message. The numbers are local to one process: on the
// wire a kind is its name.
type Kind uint8

// The kinds of the contract, and the further ones that clients in the field use.
// KindInvalid, the zero value, is no kind.
const (
	KindInvalid Kind = iota

	// Auth.
	KindAuthRequired
	KindAuth
	KindAuthAck
	KindAuthFail
	KindDeviceHello
	KindDeviceAck

	// Sync.
	KindClientOp
	KindOpBatch
	KindBatch
	KindOpAck
	KindOpRejected
	KindSyncInit
	KindSyncRespRoot
	KindSyncRespBuckets
	KindSyncRespLeaf
	KindMerkleReqBucket
	KindORMapSyncInit
	KindORMapSyncRespRoot
	KindORMapSyncRespBuckets
	KindORMapMerkleReqBucket
	KindORMapSyncRespLeaf
	KindORMapDiffRequest
	KindORMapDiffResponse
	KindORMapPushDiff
	KindClientApplyAck

	// Query.
	KindQuerySub
	KindQueryUnsub
	KindQueryResp
	KindQueryUpdate
	KindQuerySyncInit
	KindSQLQuery
	KindSQLQueryResp
	KindHybridQuerySubscribe
	KindHybridQueryUnsubscribe

	// Search.
	KindSearch
	KindSearchResp
	KindSearchSub
	KindSearchUpdate
	KindSearchUnsub
	KindVectorSearch
	KindVectorSearchResp
	KindHybridSearch
	KindHybridSearchResp
	KindHybridSearchSub
	KindHybridSearchUpdate
	KindHybridSearchUnsub

	// Messaging.
	KindTopicSub
	KindTopicUnsub
	KindTopicPub
	KindTopicMessage
	KindLockRequest
	KindLockRelease
	KindLockGranted
	KindLockReleased
	KindCounterRequest
	KindCounterSync
	KindCounterResponse
	KindCounterUpdate
	KindPing
	KindPong
	KindEntryProcess
	KindEntryProcessBatch
	KindEntryProcessResponse
	KindEntryProcessBatchResponse
	KindJournalSubscribe
	KindJournalUnsubscribe
	KindJournalEvent
	KindJournalRead
	KindJournalReadResponse
	KindRegisterResolver
	KindRegisterResolverResponse
	KindUnregisterResolver
	KindUnregisterResolverResponse
	KindMergeRejected
	KindListResolvers
	KindListResolversResponse

	// Cluster.
	KindPartitionMapRequest
	KindPartitionMap
	KindPartitionMapDelta
	KindClusterSubRegister
	KindClusterSubAck
	KindClusterSubUpdate
	KindClusterSubUnregister
	KindClusterSearchReq
	KindClusterSearchResp
	KindClusterSearchSubscribe
	KindClusterSearchUnsubscribe
	KindClusterSearchUpdate

	// Events.
	KindServerEvent
	KindServerBatchEvent
	KindGCPrune
	KindError
	KindSyncResetRequired

	kindCount
)
