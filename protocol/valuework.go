package protocol

import "github.com/tinylib/msgp/msgp"

// MaxValueTextWork is the ValueTextWork of all values of one key of an observed-remove map
// at most. A change of the key hashes all of them again, on every replica: about 50 ms.
const MaxValueTextWork = 24 << 20

// ValueTextWork bounds the work of AppendValueText, and of hashing what it appends, by the
// number of bytes of plain text that take about as long. It looks at each byte of raw
// once and allocates nothing. What follows something that cannot be read is not counted.
func ValueTextWork(raw msgp.Raw) (work int) {
	left := int64(1)
	for at := 0; left > 0; left-- {
		f, size, elements, err := measure(raw[at:])
		if err != nil {
			return work
		}
		switch {
		case f == formMap:
			work += int(elements) * entryWork
		case f == formBinary:
			work += int(size) * byteWork
		case f == formScalar:
			work += numberWork
			if raw[at] == 0xca || raw[at] == 0xcb {
				work += floatWork
			}
		case f == formText:
			for _, c := range raw[at : at+int(size)] {
				if c < 0x20 {
					work += controlWork
				}
			}
		}
		work += int(size)
		at += int(size)
		left += elements
	}
	return work
}

// What elements of a value cost beside their bytes, in ValueTextWork.
const (
	entryWork   = 256 // a key or a value of a map: the keys are put in order
	byteWork    = 48  // a byte of a bin: its index is written with it
	numberWork  = 16
	floatWork   = 128 // the shortest digits are looked for
	controlWork = 16  // a control character: it is escaped
)
