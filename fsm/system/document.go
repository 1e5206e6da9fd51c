package system

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/quorate/quorate/fsm/codec"
)

// ErrMalformed is wrapped by every error of decoding a document.
var ErrMalformed = errors.New("malformed cluster document")

// documentFormat is the first byte of every document.
const documentFormat = 1

// The keys under which documents are stored.
const (
	GenesisKey   = "genesis"
	TableKey     = "table"
	DatabaseKey  = "database"
	memberPrefix = "member/"

	documentPrefix = "document/"
)

// DocumentKey is the key under which the document of a name is stored.
func DocumentKey(name string) string { return documentPrefix + name }

// MemberKey is the key under which the member with the server id is stored.
func MemberKey(id string) string { return memberPrefix + id }

// Load returns the state with a stored document added, as it is read back from
// disk. Errors wrap ErrMalformed.
func (s *State) Load(key string, value []byte) (*State, error) {
	next := s.clone()
	switch {
	case key == GenesisKey:
		g, err := DecodeGenesis(value)
		next.Genesis = &g
		return next, err
	case key == TableKey:
		t, err := DecodeTable(value)
		next.Table = t
		return next, err
	case key == DatabaseKey:
		d, err := DecodeDatabase(value)
		next.Database = &d
		return next, err
	case strings.HasPrefix(key, memberPrefix):
		m, err := DecodeMember(value)
		if err == nil && MemberKey(m.ID) != key {
			err = fmt.Errorf("%w: member %q under key %q", ErrMalformed, m.ID, key)
		}
		return s.withMember(m), err
	case strings.HasPrefix(key, documentPrefix):
		d, err := DecodeDocument(value)
		if err == nil && DocumentKey(d.Name) != key {
			err = fmt.Errorf("%w: document %q under key %q", ErrMalformed, d.Name, key)
		}
		return s.withDocument(d), err
	default:
		return s, fmt.Errorf("%w: unknown key %q", ErrMalformed, key)
	}
}

// AppendGenesis appends the encoding of g to dst.
func AppendGenesis(dst []byte, g Genesis) []byte {
	dst = append(dst, documentFormat)
	dst = codec.AppendText(dst, g.ClusterID)
	dst = binary.AppendUvarint(dst, uint64(g.Groups))
	dst = binary.AppendVarint(dst, int64(g.ReplicationFactor))
	dst = codec.AppendText(dst, g.Founder)
	return binary.AppendVarint(dst, g.CreatedMillis)
}

// DecodeGenesis decodes what AppendGenesis wrote. Errors wrap ErrMalformed.
func DecodeGenesis(b []byte) (Genesis, error) {
	r := open(b)
	g := Genesis{
		ClusterID:         r.Text(),
		Groups:            readUint32(&r),
		ReplicationFactor: int(r.Varint()),
		Founder:           r.Text(),
		CreatedMillis:     r.Varint(),
	}
	return g, finish(&r, "genesis")
}

// AppendDatabase appends the encoding of d to dst.
func AppendDatabase(dst []byte, d Database) []byte {
	dst = codec.AppendText(append(dst, documentFormat), d.Instance)
	dst = binary.AppendUvarint(dst, d.Epoch)
	return binary.AppendUvarint(dst, d.Token)
}

// DecodeDatabase decodes what AppendDatabase wrote. Errors wrap ErrMalformed.
func DecodeDatabase(b []byte) (Database, error) {
	r := open(b)
	d := Database{Instance: r.Text(), Epoch: r.Uvarint(), Token: r.Uvarint()}
	return d, finish(&r, "database")
}

// AppendMember appends the encoding of m to dst.
func AppendMember(dst []byte, m Member) []byte {
	dst = append(dst, documentFormat)
	for _, s := range []string{m.ID, m.NodeID, m.PeerAddr, m.ClientURL} {
		dst = codec.AppendText(dst, s)
	}
	dst = append(dst, byte(m.Status))
	dst = binary.AppendVarint(dst, m.SinceMillis)
	return binary.AppendUvarint(dst, m.Version)
}

// DecodeMember decodes what AppendMember wrote. Errors wrap ErrMalformed.
func DecodeMember(b []byte) (Member, error) {
	r := open(b)
	m := Member{
		ID:          r.Text(),
		NodeID:      r.Text(),
		PeerAddr:    r.Text(),
		ClientURL:   r.Text(),
		Status:      Status(r.Byte()),
		SinceMillis: r.Varint(),
		Version:     r.Uvarint(),
	}
	return m, finish(&r, "member")
}

// AppendTable appends the encoding of t to dst.
func AppendTable(dst []byte, t Table) []byte {
	dst = append(dst, documentFormat)
	dst = binary.AppendUvarint(dst, uint64(t.Version))
	dst = binary.AppendUvarint(dst, uint64(len(t.Groups)))
	for _, p := range t.Groups {
		dst = binary.AppendUvarint(dst, uint64(len(p.Voters)))
		for _, v := range p.Voters {
			dst = codec.AppendText(dst, v)
		}
		dst = codec.AppendText(dst, p.Preferred)
		dst = codec.AppendText(dst, p.Leader)
		dst = binary.AppendUvarint(dst, p.LeaderTerm)
	}
	return dst
}

// DecodeTable decodes what AppendTable wrote. Errors wrap ErrMalformed.
func DecodeTable(b []byte) (Table, error) {
	const minPlacement = 4
	r := open(b)
	t := Table{Version: readUint32(&r)}
	for range r.Count(minPlacement) {
		var p Placement
		for range r.Count(1) {
			p.Voters = append(p.Voters, r.Text())
		}
		p.Preferred = r.Text()
		p.Leader = r.Text()
		p.LeaderTerm = r.Uvarint()
		t.Groups = append(t.Groups, p)
	}
	return t, finish(&r, "table")
}

// AppendDocument appends the encoding of d to dst.
func AppendDocument(dst []byte, d Document) []byte {
	dst = append(dst, documentFormat)
	dst = codec.AppendText(dst, d.Name)
	dst = binary.AppendUvarint(dst, d.Version)
	return append(dst, d.Value...)
}

// DecodeDocument decodes what AppendDocument wrote; the value is a copy. Errors wrap
// ErrMalformed.
func DecodeDocument(b []byte) (Document, error) {
	r := open(b)
	d := Document{Name: r.Text(), Version: r.Uvarint()}
	d.Value = slices.Clone(r.Rest())
	return d, finish(&r, "document")
}

// open starts reading a document and checks its format.
func open(b []byte) codec.Reader {
	r := codec.NewReader(b)
	if format := r.Byte(); format != documentFormat {
		r.Fail("format %d", format)
	}
	return r
}

func finish(r *codec.Reader, what string) error {
	if err := r.End(); err != nil {
		return fmt.Errorf("decode %s: %w", what, errors.Join(ErrMalformed, err))
	}
	return nil
}

func readUint32(r *codec.Reader) uint32 {
	v := r.Uvarint()
	if v > math.MaxUint32 {
		r.Fail("%d does not fit 32 bits", v)
	}
	return uint32(v)
}
