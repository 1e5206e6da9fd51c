package ws

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

// refusal is why an operation or a query is refused for good. The zero value means
// that it is not.
type refusal struct {
	code   protocol.Code
	reason string
}

func (r refusal) refused() bool { return r.code != 0 }

// checkMap judges the name of a map that a client wants to use.
func checkMap(name string) refusal {
	switch {
	case name == "":
		return refusal{protocol.CodeMalformed, "map name is empty"}
	case len(name) > maxMapName:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("map name is longer than %d bytes", maxMapName)}
	case !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0:
		return refusal{protocol.CodeMalformed, "map name holds a character that is not allowed"}
	case reserved(name):
		return refusal{protocol.CodeForbidden, "map is reserved for the server"}
	default:
		return refusal{}
	}
}

// reserved reports whether name begins with a reserved prefix, whatever the case of
// its ASCII letters.
func reserved(name string) bool {
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

// checkOp judges everything about an operation that can be known before it is
// proposed.
func (s *Server) checkOp(op *protocol.ClientOp) refusal {
	switch {
	case op.Err != nil:
		return malformed(op.Err)
	case len(op.ID) > maxOpID:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("operation id is longer than %d bytes", maxOpID)}
	case len(op.Record.Timestamp.NodeID) > maxNodeID || len(op.Timestamp.NodeID) > maxNodeID:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("node id is longer than %d bytes", maxNodeID)}
	}
	if r := checkKey(op.Key); r.refused() {
		return r
	}
	if r := checkMap(op.MapName); r.refused() {
		return r
	}
	if op.Fence != nil {
		// Without locks no token can be judged, and a guard must never be ignored.
		return refusal{protocol.CodeNotImplemented, notImplemented + "fence"}
	}
	return s.checkRecord(op)
}

func (s *Server) checkRecord(op *protocol.ClientOp) refusal {
	switch op.EffectiveType() {
	case protocol.OpRemove:
		return refusal{}
	case protocol.OpPut:
		if op.RecordPresence != protocol.Present {
			return refusal{protocol.CodeMalformed, "record is missing"}
		}
		return s.checkValue(len(op.Record.Value))
	case protocol.OpORAdd:
		if op.ORRecord == nil {
			return refusal{protocol.CodeMalformed, "record is missing"}
		}
		return s.checkORRecord(op.ORRecord)
	case protocol.OpORRemove:
		return checkTag(op.ORTag)
	default:
		return refusal{protocol.CodeUnknownOp, "operation type is unknown"}
	}
}

func (s *Server) checkValue(size int) refusal {
	if size > s.cfg.MaxValueBytes {
		return refusal{protocol.CodeTooLarge, fmt.Sprintf("value is larger than %d bytes", s.cfg.MaxValueBytes)}
	}
	return refusal{}
}

// checkORRecord judges a record of an observed-remove map.
func (s *Server) checkORRecord(rec *protocol.ORRecord) refusal {
	if r := checkTag(rec.Tag); r.refused() {
		return r
	}
	if len(rec.Timestamp.NodeID) > maxNodeID {
		return refusal{protocol.CodeMalformed, fmt.Sprintf("node id is longer than %d bytes", maxNodeID)}
	}
	return s.checkValue(len(rec.Value))
}

func checkTag(tag string) refusal {
	switch {
	case tag == "":
		return refusal{protocol.CodeMalformed, "tag is missing"}
	case len(tag) > maxTag:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("tag is longer than %d bytes", maxTag)}
	case !utf8.ValidString(tag):
		return refusal{protocol.CodeMalformed, "tag is not valid UTF-8"}
	default:
		return refusal{}
	}
}

// checkKey judges a record key.
func checkKey(key string) refusal {
	switch {
	case len(key) > maxKey:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("key is longer than %d bytes", maxKey)}
	case !utf8.ValidString(key):
		return refusal{protocol.CodeMalformed, "key is not valid UTF-8"}
	default:
		return refusal{}
	}
}

// malformed is the refusal of an operation that could not be decoded.
func malformed(err error) refusal {
	r := refusal{protocol.CodeMalformed, decodeText(err)}
	var decode *protocol.DecodeError
	if errors.As(err, &decode) {
		r.code = decode.Code()
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

// proposal is the operation as the cluster takes it.
func (c *conn) proposal(op *protocol.ClientOp, level protocol.WriteConcern) partitions.Op {
	p := partitions.Op{Map: op.MapName, Key: op.Key, Level: level}
	switch op.EffectiveType() {
	case protocol.OpORAdd:
		p.Add = op.ORRecord
		return p
	case protocol.OpORRemove:
		p.Remove = op.ORTag
		return p
	}
	p.Record = effectiveRecord(op)
	if p.Record.Timestamp.IsZero() && op.ID != "" {
		p.Dedup = dedupKey(c.auth.client, op.ID, &p)
	}
	return p
}

// stampedByOrder reports whether the server stamps p when it is proposed.
func stampedByOrder(p *partitions.Op) bool {
	return p.Add == nil && p.Remove == "" && p.Record.Timestamp.IsZero()
}

// Error implements error, for refusals that come up while a request is answered.
func (r *refusal) Error() string { return r.reason }
