package command

import (
	"encoding/binary"
	"math"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/system"
)

// systemVersion is the body version of all system group commands.
const systemVersion = 1

// EncodeMemberPut encodes the proposal to write member document m, computed from
// version base of it (zero: there was none). m.Version is not used.
func EncodeMemberPut(base uint64, m system.Member) Raw {
	body := system.AppendMember(binary.AppendUvarint(nil, base), m)
	return Raw{Kind: KindMemberPut, Version: systemVersion, Body: body}
}

// DecodeMemberPut decodes what EncodeMemberPut wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeMemberPut(c Raw) (base uint64, m system.Member, err error) {
	r, err := openSystem(c)
	if err != nil {
		return 0, system.Member{}, err
	}
	base = r.Uvarint()
	m, err = system.DecodeMember(r.Rest())
	return base, m, closeSystem(c, &r, err)
}

// EncodeTablePut encodes the proposal to write partition table t, computed from
// version base of it (zero: there was none). t.Version is not used.
func EncodeTablePut(base uint32, t system.Table) Raw {
	body := system.AppendTable(binary.AppendUvarint(nil, uint64(base)), t)
	return Raw{Kind: KindTablePut, Version: systemVersion, Body: body}
}

// DecodeTablePut decodes what EncodeTablePut wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeTablePut(c Raw) (base uint32, t system.Table, err error) {
	r, err := openSystem(c)
	if err != nil {
		return 0, system.Table{}, err
	}
	wide := r.Uvarint()
	if wide > math.MaxUint32 {
		r.Fail("table version %d", wide)
	}
	t, err = system.DecodeTable(r.Rest())
	return uint32(wide), t, closeSystem(c, &r, err)
}

// EncodeGenesis encodes the proposal of the cluster's identity.
func EncodeGenesis(g system.Genesis) Raw {
	return Raw{Kind: KindGenesis, Version: systemVersion, Body: system.AppendGenesis(nil, g)}
}

// DecodeGenesis decodes what EncodeGenesis wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeGenesis(c Raw) (system.Genesis, error) {
	r, err := openSystem(c)
	if err != nil {
		return system.Genesis{}, err
	}
	g, err := system.DecodeGenesis(r.Rest())
	return g, closeSystem(c, &r, err)
}

// EncodeDocumentPut encodes the proposal to write document d, computed from version base
// of it (zero: there was none). d.Version is not used.
func EncodeDocumentPut(base uint64, d system.Document) Raw {
	body := system.AppendDocument(binary.AppendUvarint(nil, base), d)
	return Raw{Kind: KindDocumentPut, Version: systemVersion, Body: body}
}

// DecodeDocumentPut decodes what EncodeDocumentPut wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeDocumentPut(c Raw) (base uint64, d system.Document, err error) {
	r, err := openSystem(c)
	if err != nil {
		return 0, system.Document{}, err
	}
	base = r.Uvarint()
	d, err = system.DecodeDocument(r.Rest())
	return base, d, closeSystem(c, &r, err)
}

func openSystem(c Raw) (codec.Reader, error) {
	return codec.NewReader(c.Body), checkVersion(c, systemVersion)
}

// closeSystem reports the first failure of decoding c: in front of the document,
// or in it.
func closeSystem(c Raw, r *codec.Reader, err error) error {
	if r.Err() != nil {
		err = r.Err()
	}
	if err != nil {
		return malformed("decode "+c.Kind.String(), err)
	}
	return nil
}
