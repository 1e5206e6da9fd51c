package ws

import (
	"hash/maphash"
	"sync"

	"github.com/quorate/quorate/protocol"
)

const (
	// pushBytes is about how large the removed tags of one push may become. A client repeats
	// all that it has of a map with each key, and a push beyond protocol.MaxFrame ends its
	// connection, again and again.
	pushBytes = protocol.MaxFrame / 2
	// unknownListKeys is how many keys a frame of a leaf has while the client's list of
	// removed tags is not known.
	unknownListKeys = 4
	// tagOverhead is what a tag takes beside its text.
	tagOverhead = 3
)

// tagLists is what is known of the lists of removed tags that the client of a connection
// keeps, by observed-remove map. The zero value knows nothing. It is safe for concurrent
// use. There are as many as the client may sync maps.
type tagLists struct {
	// mu protects what follows.
	mu     sync.Mutex
	byName map[string]*tagList
}

// tagList is that of one map.
type tagList struct {
	// pushed is the size of the list that the client pushed last, 0 if it pushed none; sent
	// that of the tags that it was sent.
	pushed, sent int
	// taken is how many of its tags the cluster took, the first ones of the list: the list
	// grows at its end. sum is their hash.
	taken int
	sum   uint64
}

// tagSeed is that of the hashes of lists.
var tagSeed = maphash.MakeSeed()

// of is the list of a map, nil if the client does not sync the map. mu must be held.
func (l *tagLists) of(mapName string) *tagList { return l.byName[mapName] }

// begin makes room for the list of a map.
func (l *tagLists) begin(mapName string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName == nil {
		l.byName = map[string]*tagList{}
	}
	if l.byName[mapName] == nil {
		l.byName[mapName] = &tagList{}
	}
}

// frame counts the removed tags of a leaf as sent, and returns how many keys with records a
// frame of it may have: those that the client then pushes.
func (l *tagLists) frame(mapName string, entries []protocol.OREntry) (keys int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.of(mapName)
	if list == nil {
		return unknownListKeys
	}
	for i := range entries {
		list.sent += tagBytes(entries[i].Tombstones)
	}
	keys = max(1, pushBytes/max(1, list.pushed+list.sent))
	if list.pushed == 0 {
		keys = min(keys, unknownListKeys)
	}
	return keys
}

// untaken notes the list of a push, and returns its tags that the cluster has not taken.
func (l *tagLists) untaken(mapName string, tags []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.of(mapName)
	if list == nil {
		return tags
	}
	// A push without tags says that the list is short, too.
	list.pushed = max(1, tagBytes(tags))
	if len(tags) < list.taken || sumOf(tags[:list.taken]) != list.sum {
		list.taken, list.sum = 0, sumOf(nil)
	}
	return tags[list.taken:]
}

// took notes that the cluster took all tags of a list.
func (l *tagLists) took(mapName string, tags []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.of(mapName); list != nil && len(tags) >= list.taken {
		list.taken, list.sum = len(tags), sumOf(tags)
	}
}

func tagBytes(tags []string) (bytes int) {
	for _, tag := range tags {
		bytes += len(tag) + tagOverhead
	}
	return bytes
}

// sumOf is the hash of a list.
func sumOf(tags []string) uint64 {
	var h maphash.Hash
	h.SetSeed(tagSeed)
	for _, tag := range tags {
		_, _ = h.WriteString(tag) // never fails
		_ = h.WriteByte(0xff)     // never fails, and no tag has this byte
	}
	return h.Sum64()
}

// leafFrames cuts a portion of a leaf into runs of entries with at most keys that have
// records, one run at least.
func leafFrames(entries []protocol.OREntry, keys int) (frames [][]protocol.OREntry) {
	start, live := 0, 0
	for i := range entries {
		if len(entries[i].Records) == 0 {
			continue
		}
		if live++; live > keys {
			frames, start, live = append(frames, entries[start:i]), i, 1
		}
	}
	return append(frames, entries[start:])
}
