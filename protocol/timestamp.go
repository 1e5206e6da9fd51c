package protocol

import (
	"fmt"
	"strconv"
	"strings"
)

// Timestamp is a hybrid logical clock value: wall-clock milliseconds since 1970,
// a counter that orders events within one millisecond, and the id of the node
// that issued it. The zero value is smaller than every issued timestamp.
type Timestamp struct {
	Millis  int64
	Counter int64
	NodeID  string
}

// IsZero reports whether t is the zero Timestamp, which no clock issues.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// String is the text form of t, "millis:counter:nodeId" in plain decimal, as it
// enters hashes and OR-map tags.
func (t Timestamp) String() string {
	b := make([]byte, 0, 48)
	return string(t.AppendText(b))
}

// AppendText appends the text form of t to b and returns the extended slice.
func (t Timestamp) AppendText(b []byte) []byte {
	b = strconv.AppendInt(b, t.Millis, 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, t.Counter, 10)
	b = append(b, ':')
	return append(b, t.NodeID...)
}

// ParseTimestamp reads the text form. It wants exactly three parts, the first two
// plain decimal from 0 to MaxSafeInteger; anything else is an error wrapping
// ErrValue. The node id may be empty.
func ParseTimestamp(text string) (Timestamp, error) {
	first, rest, _ := strings.Cut(text, ":")
	second, nodeID, ok := strings.Cut(rest, ":")
	millis, errMillis := parseWhole(first)
	counter, errCounter := parseWhole(second)
	if !ok || strings.Contains(nodeID, ":") || errMillis != nil || errCounter != nil {
		return Timestamp{}, fmt.Errorf("parse timestamp: %w", ErrValue)
	}
	return Timestamp{Millis: millis, Counter: counter, NodeID: nodeID}, nil
}

func parseWhole(s string) (int64, error) {
	v, err := strconv.ParseUint(s, 10, 53)
	return int64(v), err
}

// Compare orders t and u by Millis, then Counter, then CompareNodeIDs, and
// returns -1, 0 or 1. It is the order that decides every last-write-wins merge.
func (t Timestamp) Compare(u Timestamp) int {
	switch {
	case t.Millis != u.Millis:
		return sign(t.Millis < u.Millis)
	case t.Counter != u.Counter:
		return sign(t.Counter < u.Counter)
	default:
		return CompareNodeIDs(t.NodeID, u.NodeID)
	}
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}
