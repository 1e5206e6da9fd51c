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
	case len(op.Key) > maxKey:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("key is longer than %d bytes", maxKey)}
	case !utf8.ValidString(op.Key):
		return refusal{protocol.CodeMalformed, "key is not valid UTF-8"}
	case len(op.Record.Timestamp.NodeID) > maxNodeID || len(op.Timestamp.NodeID) > maxNodeID:
		return refusal{protocol.CodeMalformed, fmt.Sprintf("node id is longer than %d bytes", maxNodeID)}
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
	switch kind := op.EffectiveType(); kind {
	case protocol.OpRemove:
		return refusal{}
	case protocol.OpPut:
		if op.RecordPresence != protocol.Present {
			return refusal{protocol.CodeMalformed, "record is missing"}
		}
		if len(op.Record.Value) > s.cfg.MaxValueBytes {
			return refusal{protocol.CodeTooLarge, fmt.Sprintf("value is larger than %d bytes", s.cfg.MaxValueBytes)}
		}
		return refusal{}
	case protocol.OpORAdd, protocol.OpORRemove:
		return refusal{protocol.CodeNotImplemented, notImplemented + string(kind)}
	default:
		return refusal{protocol.CodeUnknownOp, "operation type is unknown"}
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
	p := partitions.Op{Map: op.MapName, Key: op.Key, Record: effectiveRecord(op), Level: level}
	if p.Record.Timestamp.IsZero() && op.ID != "" {
		p.Dedup = dedupKey(c.auth.client, op.ID, &p)
	}
	return p
}
