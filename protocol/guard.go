package protocol

import "fmt"

// Shape is what Guard learns about a value.
type Shape struct {
	// Size is the number of bytes the value takes.
	Size int
	// Elements counts array elements, map keys and map values at all levels.
	Elements int
	// HasExt reports an extension value, HasOddKey a map key that is not text.
	// Both are rare, never written by clients on purpose, and replaced in record
	// values; see Decode.
	HasExt, HasOddKey bool
}

// inMap marks, in a count of elements to come, that they alternate between keys
// and values: an even rest means that a key is next.
const inMap = 1 << 31

// Guard walks the MsgPack value at the start of b and checks its structure, so
// that decoding it afterwards neither recurses without bound nor allocates for
// elements that are only declared: everything declared is there, nesting is at
// most MaxDepth, elements are at most MaxElements, b is at most MaxFrame long.
// Bytes after the value are ignored. Guard allocates only to report an error,
// which wraps one of ErrFrameSize, ErrTruncated, ErrReserved, ErrDepth and
// ErrElements.
func Guard(b []byte) (Shape, error) { return guardWithin(b, fromClient) }

// GuardAnswer is Guard with the bounds of what servers send, which are those of what they
// store too.
func GuardAnswer(b []byte) (Shape, error) { return guardWithin(b, fromServer) }

// bounds are those of one frame.
type bounds struct{ bytes, elements int }

var (
	fromClient = bounds{bytes: MaxFrame, elements: MaxElements}
	fromServer = bounds{bytes: MaxAnswer, elements: MaxAnswer}
)

// guardWithin is Guard with the given bounds.
func guardWithin(b []byte, limit bounds) (Shape, error) {
	if len(b) > limit.bytes {
		return Shape{}, ErrFrameSize
	}
	var (
		s     Shape
		stack [MaxDepth]uint32 // elements still to come in the enclosing containers
		depth int
		left  = uint32(1)
		at    int
	)
	for {
		isKey := left&(inMap|1) == inMap
		left--
		if n := quickSize(b, at); n != 0 {
			s.HasOddKey = s.HasOddKey || isKey && !isShortText(b[at])
			at += n
		} else {
			f, size, elements, err := measure(b[at:])
			if err != nil {
				return Shape{}, guardError(at, err)
			}
			s.HasOddKey = s.HasOddKey || isKey && f != formText
			s.HasExt = s.HasExt || f == formExt
			if f == formArray || f == formMap {
				if err := s.open(depth, elements, limit.elements); err != nil {
					return Shape{}, guardError(at, err)
				}
				stack[depth] = left
				depth++
				left = uint32(elements)
				if f == formMap {
					left |= inMap
				}
			}
			at += int(size)
		}
		for left&^inMap == 0 {
			if depth == 0 {
				s.Size = at
				return s, nil
			}
			depth--
			left = stack[depth]
		}
	}
}

// open counts the elements of a container found depth containers deep, of at most limit.
func (s *Shape) open(depth int, elements int64, limit int) error {
	s.Elements += int(elements)
	switch {
	case depth == MaxDepth:
		return ErrDepth
	case s.Elements > limit:
		return ErrElements
	default:
		return nil
	}
}

func guardError(at int, err error) error {
	return fmt.Errorf("at byte %d: %w", at, err)
}
