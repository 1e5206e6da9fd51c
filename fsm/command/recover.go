package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
)

const recoverVersion = 1

// RaiseTokens leaves out the next tokens of a group's locks.
type RaiseTokens struct {
	// By is how many.
	By uint64
}

// EncodeRaiseTokens encodes m as a command of its own memory.
func EncodeRaiseTokens(m RaiseTokens) Raw {
	return Raw{Kind: KindRaiseTokens, Version: recoverVersion, Body: binary.AppendUvarint(nil, m.By)}
}

// DecodeRaiseTokens decodes what EncodeRaiseTokens wrote. Errors wrap ErrMalformed or
// ErrFormat.
func DecodeRaiseTokens(c Raw) (RaiseTokens, error) {
	if err := checkVersion(c, recoverVersion); err != nil {
		return RaiseTokens{}, err
	}
	r := codec.NewReader(c.Body)
	m := RaiseTokens{By: r.Uvarint()}
	if err := r.End(); err != nil {
		return RaiseTokens{}, malformed("decode raising of tokens", err)
	}
	return m, nil
}

// Recover makes the survivor of a lost quorum the only member of the cluster.
type Recover struct {
	// ClusterID is what the cluster is called from now on: what was said in the name of
	// the old one does not count any more.
	ClusterID string
	// Survivor is the member that is left, by its server id.
	Survivor string
	// SinceMillis is when that was decided.
	SinceMillis int64
}

// EncodeRecover encodes m as a command of its own memory.
func EncodeRecover(m Recover) Raw {
	b := codec.AppendText(codec.AppendText(nil, m.ClusterID), m.Survivor)
	return Raw{Kind: KindRecover, Version: recoverVersion, Body: binary.AppendVarint(b, m.SinceMillis)}
}

// DecodeRecover decodes what EncodeRecover wrote. Errors wrap ErrMalformed or ErrFormat.
func DecodeRecover(c Raw) (Recover, error) {
	if err := checkVersion(c, recoverVersion); err != nil {
		return Recover{}, err
	}
	r := codec.NewReader(c.Body)
	m := Recover{ClusterID: r.Text(), Survivor: r.Text(), SinceMillis: r.Varint()}
	if err := r.End(); err != nil {
		return Recover{}, malformed("decode recovery", err)
	}
	return m, nil
}
