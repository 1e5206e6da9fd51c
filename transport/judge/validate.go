package judge

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// Bounds on names, in bytes. They keep store keys and indexes small; names in use
// are far below.
const (
	maxMapName = 255
	maxKey     = 1024
	maxOpID    = 255
	maxNodeID  = 255
	maxTag     = 512
)

// reservedPrefixes begin the names of the server's own maps, in lower case.
var reservedPrefixes = [...]string{"$sys/", "_service_", "__service_"}

// Refusal is why an operation or a query is refused for good. The zero value means
// that it is not.
type Refusal struct {
	Code protocol.Code
	// Reason is shown to the client.
	Reason string
}

// Refused reports whether r says no.
func (r Refusal) Refused() bool { return r.Code != 0 }

// Map judges the name of a map that a client wants to use.
func Map(name string) Refusal {
	switch {
	case name == "":
		return Refusal{protocol.CodeMalformed, "map name is empty"}
	case len(name) > maxMapName:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("map name is longer than %d bytes", maxMapName)}
	case !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return Refusal{protocol.CodeMalformed, "map name holds a character that is not allowed"}
	case Reserved(name):
		return Refusal{protocol.CodeForbidden, "map is reserved for the server"}
	default:
		return Refusal{}
	}
}

// Reserved reports whether name begins with a reserved prefix, whatever the case of
// its ASCII letters.
func Reserved(name string) bool {
	for _, prefix := range reservedPrefixes {
		if len(name) >= len(prefix) && lowerASCIIEqual(name[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}

func lowerASCIIEqual(s, lower string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// Op judges everything about an operation that can be known before it is
// proposed.
func (l Limits) Op(op *protocol.ClientOp) Refusal {
	switch {
	case op.Err != nil:
		return malformed(op.Err)
	case len(op.ID) > maxOpID:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("operation id is longer than %d bytes", maxOpID)}
	case len(op.Record.Timestamp.NodeID) > maxNodeID || len(op.Timestamp.NodeID) > maxNodeID:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("node id is longer than %d bytes", maxNodeID)}
	}
	if r := Key(op.Key); r.Refused() {
		return r
	}
	if r := Map(op.MapName); r.Refused() {
		return r
	}
	if op.Fence != nil {
		if r := Name("lock", op.Fence.Lock); r.Refused() {
			return r
		}
	}
	return l.record(op)
}

func (l Limits) record(op *protocol.ClientOp) Refusal {
	switch op.EffectiveType() {
	case protocol.OpRemove:
		return Refusal{}
	case protocol.OpPut:
		if op.RecordPresence != protocol.Present {
			return Refusal{protocol.CodeMalformed, "record is missing"}
		}
		return l.value(len(op.Record.Value))
	case protocol.OpORAdd:
		if op.ORRecord == nil {
			return Refusal{protocol.CodeMalformed, "record is missing"}
		}
		return l.ORRecord(op.ORRecord)
	case protocol.OpORRemove:
		return Tag(op.ORTag)
	default:
		return Refusal{protocol.CodeUnknownOp, "operation type is unknown"}
	}
}

func (l Limits) value(size int) Refusal {
	if size > l.MaxValueBytes {
		return Refusal{protocol.CodeTooLarge, fmt.Sprintf("value is larger than %d bytes", l.MaxValueBytes)}
	}
	return Refusal{}
}

// ORRecord judges a record of an observed-remove map.
func (l Limits) ORRecord(rec *protocol.ORRecord) Refusal {
	if r := Tag(rec.Tag); r.Refused() {
		return r
	}
	if len(rec.Timestamp.NodeID) > maxNodeID {
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("node id is longer than %d bytes", maxNodeID)}
	}
	if r := l.value(len(rec.Value)); r.Refused() {
		return r
	}
	if protocol.ValueTextWork(rec.Value) > protocol.MaxValueTextWork {
		return Refusal{protocol.CodeTooLarge, "value has too many elements for an observed-remove map"}
	}
	return Refusal{}
}

// Tag judges the tag of a record of an observed-remove map.
func Tag(tag string) Refusal {
	switch {
	case tag == "":
		return Refusal{protocol.CodeMalformed, "tag is missing"}
	case len(tag) > maxTag:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("tag is longer than %d bytes", maxTag)}
	case !utf8.ValidString(tag):
		return Refusal{protocol.CodeMalformed, "tag is not valid UTF-8"}
	default:
		return Refusal{}
	}
}

// maxName is the length of the longest name of a lock or topic, in bytes.
const maxName = 256

// Name judges the name of a lock or topic; what says which.
func Name(what, name string) Refusal {
	legal := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:/", r)
	}
	switch {
	case name == "":
		return Refusal{protocol.CodeMalformed, what + " name is empty"}
	case len(name) > maxName:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("%s name is longer than %d bytes", what, maxName)}
	case strings.IndexFunc(name, func(r rune) bool { return !legal(r) }) >= 0:
		return Refusal{protocol.CodeMalformed, what + " name holds a character that is not allowed"}
	default:
		return Refusal{}
	}
}

// Key judges a record key.
func Key(key string) Refusal {
	switch {
	case len(key) > maxKey:
		return Refusal{protocol.CodeMalformed, fmt.Sprintf("key is longer than %d bytes", maxKey)}
	case !utf8.ValidString(key):
		return Refusal{protocol.CodeMalformed, "key is not valid UTF-8"}
	default:
		return Refusal{}
	}
}

// NotImplemented begins what clients are told about a feature that is not part of this
// server.
const NotImplemented = "not implemented: "

// DecodeText is the text of a decoding error. It may quote a field name of the client's
// that is not text.
func DecodeText(err error) string { return strings.ToValidUTF8(err.Error(), "?") }

// malformed is the refusal of an operation that could not be decoded.
func malformed(err error) Refusal {
	r := Refusal{protocol.CodeMalformed, DecodeText(err)}
	var decode *protocol.DecodeError
	if errors.As(err, &decode) {
		r.Code = decode.Code()
	}
	return r
}

// effectiveRecord is the record to merge. A deletion needs no lifetime: a tombstone
// is kept until it is collected.
func effectiveRecord(op *protocol.ClientOp) protocol.Record {
	rec := op.EffectiveRecord()
	if rec.IsTombstone() {
		rec.Value, rec.TTLMillis = nil, 0
	}
	return rec
}

// proposal is the operation of a client as the cluster takes it.
func proposal(client string, op *protocol.ClientOp, level protocol.WriteConcern) partitions.Op {
	p := partitions.Op{Map: op.MapName, Key: op.Key, Level: level}
	if op.Fence != nil {
		p.Fence = partitions.Fence{Lock: op.Fence.Lock, Token: op.Fence.Token}
	}
	switch op.EffectiveType() {
	case protocol.OpORAdd:
		p.Add = op.ORRecord
		return p
	case protocol.OpORRemove:
		p.Remove = op.ORTag
		return p
	}
	p.Record = effectiveRecord(op)
	if (p.Record.Timestamp.IsZero() || op.Fence != nil) && op.ID != "" {
		p.Dedup = dedupKey(client, op.ID, &p)
	}
	return p
}

// stampedByOrder reports whether the server stamps p when it is proposed.
func stampedByOrder(p *partitions.Op) bool {
	return p.Add == nil && p.Remove == "" && p.Record.Timestamp.IsZero()
}

// Error implements error, for refusals that come up while a request is answered.
func (r *Refusal) Error() string { return r.Reason }
