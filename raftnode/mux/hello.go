package mux

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The first bytes in each direction of a connection. DESIGN.md has the layout.
const (
	magic      = "QRAT"
	version    = 1
	prefixSize = 8
	maxName    = 255  // ids and addresses
	maxText    = 512  // why a connection was refused
	maxHello   = 2048 // what follows the prefix
)

// kind says what a connection carries.
type kind uint8

const (
	kindCalls  kind = 1 // requests from the dialer, replies to it
	kindStream kind = 2 // the byte stream of one Raft group
)

// hello is what the dialer says first.
type hello struct {
	version     uint8
	kind        kind
	clusterID   string // empty: belongs to no cluster yet
	nodeID      string // empty: a tool
	incarnation string
	advertise   string
	target      string // the server id that is meant, empty: whoever is there
	group       uint32 // for kindStream
}

// peer returns the dialer as its hello describes it.
func (h *hello) peer() Peer {
	return Peer{
		ID: serverID(h.nodeID, h.incarnation), NodeID: h.nodeID,
		ClusterID: h.clusterID, Addr: h.advertise,
	}
}

// reply is the answer to a hello: a welcome when code is 0, else a refusal.
type reply struct {
	version     uint8
	code        RefusalCode
	clusterID   string
	nodeID      string
	incarnation string
	advertise   string
	window      uint16 // how many calls may be in progress
	text        string
}

// peer returns the node that answered.
func (r *reply) peer() Peer {
	return Peer{
		ID: serverID(r.nodeID, r.incarnation), NodeID: r.nodeID,
		ClusterID: r.clusterID, Addr: r.advertise,
	}
}

func (h *hello) append(b []byte) []byte {
	b, at := appendPrefix(b, h.version, uint8(h.kind))
	for _, s := range []string{h.clusterID, h.nodeID, h.incarnation, h.advertise, h.target} {
		b = appendName(b, s)
	}
	b = binary.BigEndian.AppendUint32(b, h.group)
	return closePrefix(b, at)
}

func (r *reply) append(b []byte) []byte {
	b, at := appendPrefix(b, r.version, uint8(r.code))
	for _, s := range []string{r.clusterID, r.nodeID, r.incarnation, r.advertise} {
		b = appendName(b, s)
	}
	b = binary.BigEndian.AppendUint16(b, r.window)
	b = append(b, r.text[:min(len(r.text), maxText)]...)
	return closePrefix(b, at)
}

// decodeHello decodes what follows the prefix. Bytes after the known fields are for
// later versions.
func decodeHello(version uint8, k kind, body []byte) (hello, error) {
	h := hello{version: version, kind: k}
	if k != kindCalls && k != kindStream {
		return h, fmt.Errorf("%w: connection kind %d", errMalformed, k)
	}
	for _, field := range []*string{&h.clusterID, &h.nodeID, &h.incarnation, &h.advertise, &h.target} {
		var err error
		if *field, body, err = cutName(body); err != nil {
			return h, err
		}
	}
	if len(body) < 4 {
		return h, fmt.Errorf("%w: hello without group", errMalformed)
	}
	h.group = binary.BigEndian.Uint32(body)
	return h, nil
}

func readReply(r io.Reader) (reply, error) {
	p, err := readPrefix(r, nil)
	if err != nil {
		return reply{}, err
	}
	a := reply{version: p.version, code: RefusalCode(p.what)}
	body, err := p.readBody(r)
	if err != nil {
		return a, err
	}
	for _, field := range []*string{&a.clusterID, &a.nodeID, &a.incarnation, &a.advertise} {
		if *field, body, err = cutName(body); err != nil {
			return a, err
		}
	}
	if len(body) < 2 {
		return a, fmt.Errorf("%w: reply without window", errMalformed)
	}
	a.window = binary.BigEndian.Uint16(body)
	a.text = string(body[2:min(len(body), 2+maxText)])
	if a.code == 0 && (a.version != version || a.window == 0) {
		return a, fmt.Errorf("%w: welcome of version %d with window %d", errMalformed, a.version, a.window)
	}
	return a, nil
}

// prefix begins a hello or a reply. Its layout is the same in every version.
type prefix struct {
	version uint8
	what    uint8 // kind of a hello, code of a reply
	size    uint16
}

// readPrefix reads a prefix of which the bytes in start were already read.
func readPrefix(r io.Reader, start []byte) (prefix, error) {
	var b [prefixSize]byte
	n := copy(b[:], start)
	if _, err := io.ReadFull(r, b[n:]); err != nil {
		return prefix{}, err
	}
	if string(b[:len(magic)]) != magic {
		return prefix{}, fmt.Errorf("%w: not a Quorate peer", errMalformed)
	}
	return prefix{version: b[4], what: b[5], size: binary.BigEndian.Uint16(b[6:])}, nil
}

func (p prefix) readBody(r io.Reader) ([]byte, error) {
	if p.size > maxHello {
		return nil, fmt.Errorf("%w: greeting of %d bytes", errMalformed, p.size)
	}
	body := make([]byte, p.size)
	_, err := io.ReadFull(r, body)
	return body, err
}

// appendPrefix appends a prefix whose size closePrefix fills in.
func appendPrefix(b []byte, version, what uint8) (_ []byte, at int) {
	at = len(b)
	b = append(b, magic...)
	return append(b, version, what, 0, 0), at
}

func closePrefix(b []byte, at int) []byte {
	binary.BigEndian.PutUint16(b[at+6:], uint16(len(b)-at-prefixSize))
	return b
}

// appendName appends a string, cut to maxName bytes.
func appendName(b []byte, s string) []byte {
	s = s[:min(len(s), maxName)]
	return append(append(b, uint8(len(s))), s...)
}

func cutName(b []byte) (string, []byte, error) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return "", nil, fmt.Errorf("%w: greeting ends early", errMalformed)
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], nil
}
