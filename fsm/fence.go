package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/fsm/command"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/protocol"
)

// fenceFormat is the first byte of every stored fence.
const fenceFormat = 1

// maxFenceName bounds the name of a lock in a fence; proposers refuse longer ones too.
const maxFenceName = 256

// passFence reports whether a write with the fence may change something, and notes its
// token: from now on, writes with smaller tokens of the lock are refused by this group.
func (r *run) passFence(f command.Fence) (bool, error) {
	if f.Lock == "" {
		return true, nil
	}
	if len(f.Lock) > maxFenceName {
		return false, nil
	}
	c, err := r.lookup(storage.SectionFences, []byte(f.Lock))
	if err != nil {
		return false, err
	}
	newest, err := decodeFence(c.value)
	if err != nil || f.Token <= newest {
		return err == nil && f.Token == newest, err
	}
	r.set(c, binary.AppendUvarint([]byte{fenceFormat}, f.Token))
	return true, nil
}

// fencedOff is the result of a write that did not pass.
func (r *run) fencedOff() command.Result {
	return r.refused(protocol.CodeStale, "a newer holder of the lock has written")
}

// decodeFence decodes a stored fence; without one, the token is zero.
func decodeFence(value []byte) (token uint64, err error) {
	if value == nil {
		return 0, nil
	}
	r := codec.NewReader(value)
	if format := r.Byte(); format != fenceFormat {
		r.Fail("format %d", format)
	}
	token = r.Uvarint()
	if err := r.End(); err != nil {
		return 0, fmt.Errorf("decode fence: %w: %w", storage.ErrCorrupt, err)
	}
	return token, nil
}

// loadFence is the row of fences in sections.
func loadFence(_ *resident, _ string, value []byte) error {
	_, err := decodeFence(value)
	return err
}
