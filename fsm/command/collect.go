package command

import (
	"encoding/binary"

	"github.com/quorate/quorate/fsm/codec"
)

const collectVersion = 1

// Collect drops tombstones of a group. The entry's stamp closes the time before it: no
// tombstone that comes later in the log is of an earlier time.
type Collect struct {
	// ThroughMillis says that with this command all tombstones up to that time are
	// gone. Zero says nothing.
	ThroughMillis int64
	// Graves are the keys of the items that list the tombstones.
	Graves []string
}

// EncodeCollect encodes c as a command of its own memory.
func EncodeCollect(c Collect) Raw {
	b := binary.AppendVarint(nil, c.ThroughMillis)
	b = binary.AppendUvarint(b, uint64(len(c.Graves)))
	for _, key := range c.Graves {
		b = codec.AppendText(b, key)
	}
	return Raw{Kind: KindCollect, Version: collectVersion, Body: b}
}

// DecodeCollect decodes what EncodeCollect wrote; see DecodePut.
func DecodeCollect(c Raw) (Collect, error) {
	if err := checkVersion(c, collectVersion); err != nil {
		return Collect{}, err
	}
	r := codec.NewReader(c.Body)
	m := Collect{ThroughMillis: r.Varint()}
	if n := r.Count(1); n > 0 {
		m.Graves = make([]string, n)
	}
	for i := range m.Graves {
		m.Graves[i] = r.TextView()
	}
	if err := r.End(); err != nil {
		return Collect{}, malformed("decode collect", err)
	}
	return m, nil
}
