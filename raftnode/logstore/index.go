package logstore

// location says where the record of an entry lies. A nil seg means that the entry
// is known to exist, by a checkpoint, but was not found yet (recovery only).
type location struct {
	seg    *segment
	offset uint32
	size   uint32
	term   uint64
}

// hold counts the record as live in its segment; release takes it back.
func (l location) hold() {
	if l.seg != nil {
		l.seg.live.Add(int64(l.size))
	}
}

func (l location) release() {
	if l.seg != nil {
		l.seg.live.Add(-int64(l.size))
	}
}

// entryIndex is the contiguous range of entries of a group with their locations.
// The zero value is empty.
type entryIndex struct {
	first uint64 // 0 when empty
	locs  []location
	head  int // locs[head] is the location of first
}

func (x *entryIndex) len() int { return len(x.locs) - x.head }

// last is the highest index, 0 when empty.
func (x *entryIndex) last() uint64 {
	if x.first == 0 {
		return 0
	}
	return x.first + uint64(x.len()) - 1
}

func (x *entryIndex) contains(index uint64) bool {
	return x.first != 0 && index >= x.first && index <= x.last()
}

// at returns the location of index, nil if there is no such entry. The pointer is
// valid until the next change.
func (x *entryIndex) at(index uint64) *location {
	if !x.contains(index) {
		return nil
	}
	return &x.locs[x.head+int(index-x.first)]
}

// add appends the entry index, which must follow the last unless x is empty.
func (x *entryIndex) add(index uint64, loc location) {
	if x.first == 0 {
		x.first = index
	}
	x.locs = append(x.locs, loc)
	loc.hold()
}

// move points an existing entry to its copy.
func (x *entryIndex) move(index uint64, loc location) {
	old := x.at(index)
	old.release()
	loc.hold()
	*old = loc
}

// dropBefore removes all entries below first.
func (x *entryIndex) dropBefore(first uint64) {
	if first > x.last() {
		x.clear()
		return
	}
	n := int(first - x.first)
	for _, loc := range x.locs[x.head : x.head+n] {
		loc.release()
	}
	x.head += n
	x.first = first
	// Moving down only when most of the slice is dead keeps the cost of dropping
	// constant per entry.
	if x.head > 1024 && x.head > len(x.locs)/2 {
		live := make([]location, x.len(), x.len()+x.len()/4)
		copy(live, x.locs[x.head:])
		x.head, x.locs = 0, live
	}
}

// dropAfter removes all entries above last, which must be one of x.
func (x *entryIndex) dropAfter(last uint64) {
	keep := x.head + int(last-x.first) + 1
	for _, loc := range x.locs[keep:] {
		loc.release()
	}
	x.locs = x.locs[:keep]
}

// clear removes everything.
func (x *entryIndex) clear() {
	for _, loc := range x.locs[x.head:] {
		loc.release()
	}
	*x = entryIndex{}
}
