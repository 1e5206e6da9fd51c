package protocol

// OpType says what an operation does.
type OpType string

// The operation types, which are also the types of server events.
const (
	OpPut      OpType = "PUT"       // merge a last-write-wins record
	OpRemove   OpType = "REMOVE"    // merge a tombstone
	OpORAdd    OpType = "OR_ADD"    // add a value to an observed-remove map
	OpORRemove OpType = "OR_REMOVE" // remove one tag from an observed-remove map
)

// Known reports whether t is one of the operation types.
func (t OpType) Known() bool {
	switch t {
	case OpPut, OpRemove, OpORAdd, OpORRemove:
		return true
	default:
		return false
	}
}

// Fence guards an operation by a lock: it is refused once a greater token of the
// same lock has written there. It is an extension of this server.
type Fence struct {
	Lock  string
	Token uint64
}

// ClientOp is one write operation of a client.
type ClientOp struct {
	// ID names the operation in its verdict; unique per device only. Empty if the
	// client gave none: there is then nobody to tell.
	ID      string
	MapName string
	Key     string
	// Type is empty if the client gave none, and may be a type that this protocol
	// does not have; see EffectiveType.
	Type OpType
	// Record is the record of a PUT or REMOVE. RecordPresence tells apart a record
	// that is absent, explicitly nil, or present. A zero Record.Timestamp means
	// that it carried none.
	Record         Record
	RecordPresence Presence
	// ORRecord is the record of an OR_ADD, nil if there is none.
	ORRecord *ORRecord
	// ORTag is the tag of an OR_REMOVE.
	ORTag string
	// WriteConcern overrides the batch's; LevelDefault asks for nothing.
	WriteConcern WriteConcern
	// TimeoutMillis overrides the batch's; zero asks for nothing.
	TimeoutMillis int64
	// Timestamp is the client's stamp of the operation; zero if it carried none.
	Timestamp Timestamp
	// Fence is nil unless the operation is guarded by a lock.
	Fence *Fence
	// Err is a *DecodeError if the operation is malformed. Then only ID is
	// meaningful, and empty if it was not readable either.
	Err error
}

// EffectiveType is op.Type, or if the client gave none, the type that the
// operation's shape implies.
func (op *ClientOp) EffectiveType() OpType {
	switch {
	case op.Type != "":
		return op.Type
	case op.RecordPresence == Nil:
		return OpRemove
	case op.ORRecord != nil:
		return OpORAdd
	case op.ORTag != "":
		return OpORRemove
	default:
		return OpPut
	}
}

// EffectiveRecord is the record that a PUT or REMOVE merges: without value for a
// REMOVE, and with the operation's own timestamp if the record carries none. A
// zero timestamp asks the server to stamp it. A PUT needs a record that is not
// Absent; the caller checks that.
func (op *ClientOp) EffectiveRecord() Record {
	rec := op.Record
	if op.EffectiveType() == OpRemove {
		rec.Value = nil
	}
	if rec.Timestamp.IsZero() {
		rec.Timestamp = op.Timestamp
	}
	return rec
}

// ClientOpMessage is CLIENT_OP: a single write. A malformed operation does not
// fail the frame; see ClientOp.Err.
type ClientOpMessage struct {
	Op ClientOp
}

// Kind implements Message.
func (*ClientOpMessage) Kind() Kind { return KindClientOp }

// Correlation is the operation's id.
func (m *ClientOpMessage) Correlation() string { return m.Op.ID }

// OpBatch is OP_BATCH: writes in order, possibly to several maps. A malformed
// operation fails neither the frame nor the others; see ClientOp.Err.
type OpBatch struct {
	Ops []ClientOp
	// WriteConcern and TimeoutMillis apply to operations without their own.
	WriteConcern  WriteConcern
	TimeoutMillis int64
}

// Kind implements Message.
func (*OpBatch) Kind() Kind { return KindOpBatch }

// Correlation is empty: verdicts name the operations.
func (*OpBatch) Correlation() string { return "" }
