package command

import (
	"crypto/sha256"

	"github.com/quorate/quorate/fsm/codec"
	"github.com/quorate/quorate/protocol"
)

// CodeChanged is the result of a write whose Guard did not hold: nothing changed, and the
// write may be judged again. It is between the nodes of a cluster; clients never see it.
const CodeChanged protocol.Code = 412

// guardBytes is the size of a digest: no two values can be found that have one digest.
const guardBytes = 16

// Guard makes a write depend on the value that it takes the place of, because permission for
// the write was given for that value. A write that changes nothing needs none. The zero value
// is no guard.
type Guard struct {
	// On tells that there is a guard; Digest is that of the value.
	On     bool
	Digest [guardBytes]byte
}

// GuardOf is the guard of a write that was judged with value stored; an empty one is none,
// or a tombstone.
func GuardOf(value []byte) Guard {
	sum := sha256.Sum256(value)
	return Guard{On: true, Digest: [guardBytes]byte(sum[:guardBytes])}
}

// Holds reports whether a write may take the place of value.
func (g Guard) Holds(value []byte) bool { return !g.On || g == GuardOf(value) }

// appendGuard appends a guard, nothing if there is none: the flags tell.
func appendGuard(dst []byte, g Guard) []byte {
	if !g.On {
		return dst
	}
	return append(dst, g.Digest[:]...)
}

// takeGuard takes what appendGuard appended.
func takeGuard(r *codec.Reader) Guard {
	g := Guard{On: true}
	for i := range g.Digest {
		g.Digest[i] = r.Byte()
	}
	return g
}
