package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/system"
)

const adoptVersion = 1

// EncodeDatabasePut encodes the proposal of the database that the cluster writes to.
func EncodeDatabasePut(d system.Database) Raw {
	return Raw{Kind: KindDatabasePut, Version: systemVersion, Body: system.AppendDatabase(nil, d)}
}

// DecodeDatabasePut decodes what EncodeDatabasePut wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeDatabasePut(c Raw) (system.Database, error) {
	r, err := openSystem(c)
	if err != nil {
		return system.Database{}, err
	}
	d, err := system.DecodeDatabase(r.Rest())
	return d, closeSystem(c, &r, err)
}

// Adopt tells a group of what a database held before the cluster was founded on it.
type Adopt struct {
	// Token is one that locks of the group must go beyond: an earlier cluster may have
	// given it.
	Token uint64
	// Complete says that the records of the database are in the state.
	Complete bool
}

// EncodeAdopt encodes a.
func EncodeAdopt(a Adopt) Raw {
	body := []byte{0}
	if a.Complete {
		body[0] = 1
	}
	return Raw{Kind: KindAdopt, Version: adoptVersion, Body: binary.AppendUvarint(body, a.Token)}
}

// DecodeAdopt decodes what EncodeAdopt wrote; see DecodePut.
func DecodeAdopt(c Raw) (Adopt, error) {
	if err := checkVersion(c, adoptVersion); err != nil {
		return Adopt{}, err
	}
	r := codec.NewReader(c.Body)
	flag := r.Byte()
	if flag > 1 {
		r.Fail("flag %d", flag)
	}
	a := Adopt{Complete: flag == 1, Token: r.Uvarint()}
	if err := r.End(); err != nil {
		return Adopt{}, malformed("decode adopt", err)
	}
	return a, nil
}
