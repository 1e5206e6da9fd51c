package protocol

import "github.com/tinylib/msgp/msgp"

// fields walks the entries of one map with text keys. Keys that are not text are
// passed over like unknown ones, and so are nil values: an optional field is
// absent or nil, without a difference. Of equal keys the last one counts.
//
//	f := r.fields()
//	for f.next() {
//		switch string(f.name) {
//		case "queryId":
//			m.QueryID = f.required(0).str()
//		default:
//			r.skip()
//		}
//	}
//	f.end("queryId")
type fields struct {
	r    *reader
	name []byte // key of the value to read now
	left int
	seen uint64
	open bool // a value was handed out while r had no fault
	nils bool // hand out nil values too
}

// fields starts on the map that r stands at.
func (r *reader) fields() fields {
	n, rest, err := msgp.ReadMapHeaderBytes(r.b)
	if err != nil {
		r.reject(ErrType)
		return fields{r: r}
	}
	return fields{r: r, left: r.declared(n, rest)}
}

// next goes to the next entry, whose value the caller must read or skip.
func (f *fields) next() bool {
	f.settle()
	for f.left > 0 && len(f.r.b) > 0 {
		f.left--
		name, rest, err := msgp.ReadStringZC(f.r.b)
		if err != nil {
			f.r.skipAll(2)
			continue
		}
		f.r.b = rest
		if !f.nils && f.r.isNil() {
			f.r.b = f.r.b[1:]
			continue
		}
		f.name, f.open = name, f.r.err == nil
		return true
	}
	if f.left > 0 {
		f.r.fault(ErrTruncated)
		f.left = 0
	}
	return false
}

// settle names the field of a fault that reading its value has left.
func (f *fields) settle() {
	if f.open && f.r.err != nil {
		f.r.err = atField(fieldName(f.name), f.r.err)
	}
	f.open = false
}

// required marks field i of the names that end gets as present.
func (f *fields) required(i int) *reader {
	f.seen |= 1 << i
	return f.r
}

// end faults the first of the required fields that did not come.
func (f *fields) end(names ...string) {
	for i, name := range names {
		if f.seen&(1<<i) == 0 && f.r.err == nil {
			f.r.err = atField(name, ErrMissing)
		}
	}
}

// fieldName bounds what a foreign map key adds to an error.
func fieldName(name []byte) string {
	const limit = 64
	if len(name) > limit {
		name = name[:limit]
	}
	return string(name)
}

// declared goes on to rest, where n entries or elements begin, and returns n. More
// than rest can hold are a fault, so that n can be used to size a slice.
func (r *reader) declared(n uint32, rest []byte) int {
	if int64(n) > int64(len(rest)) {
		r.fault(ErrTruncated)
		n, rest = 0, nil
	}
	r.b = rest
	return int(n)
}

// array walks the elements of one array. After a fault it passes over the rest, so
// that a long array of faulty elements costs no memory.
type array struct {
	r    *reader
	left int
	at   int
	open bool
}

// array starts on the array that r stands at.
func (r *reader) array() array {
	n, rest, err := msgp.ReadArrayHeaderBytes(r.b)
	if err != nil {
		r.reject(ErrType)
		return array{r: r}
	}
	return array{r: r, left: r.declared(n, rest), at: -1}
}

// next goes to the next element, which the caller must read or skip.
func (a *array) next() bool {
	if a.open && a.r.err != nil {
		a.r.err = atIndex(a.at, a.r.err)
	}
	if a.r.err != nil {
		a.r.skipAll(a.left)
		a.left = 0
	}
	if a.open = a.left > 0; a.open {
		a.left--
		a.at++
	}
	return a.open
}
