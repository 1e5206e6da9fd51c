package logstore

import "github.com/hashicorp/raft"

// entryCache keeps the newest entries of a group, contiguous up to the last one.
// It shares Data and Extensions with the entries that were stored, which raft never
// changes afterwards. The zero value keeps nothing.
type entryCache struct {
	maxEntries, maxBytes int

	ring  []raft.Log // the entry with index i is at i modulo the length
	first uint64     // index of the oldest kept entry
	count int
	bytes int
}

func (c *entryCache) slot(index uint64) *raft.Log {
	return &c.ring[index%uint64(len(c.ring))]
}

// get copies the entry into log.
func (c *entryCache) get(index uint64, log *raft.Log) bool {
	if index < c.first || index >= c.first+uint64(c.count) {
		return false
	}
	*log = *c.slot(index)
	return true
}

// add keeps log as the newest entry. A gap to the one before empties the cache.
func (c *entryCache) add(log *raft.Log) {
	size := entryBytes(log)
	if c.count > 0 && log.Index != c.first+uint64(c.count) {
		c.clear()
	}
	for c.count > 0 && (c.count >= c.maxEntries || c.bytes+size > c.maxBytes) {
		c.dropOldest()
	}
	if c.maxEntries == 0 || size > c.maxBytes {
		return
	}
	if c.count == len(c.ring) {
		c.grow()
	}
	if c.count == 0 {
		c.first = log.Index
	}
	c.count++
	c.bytes += size
	*c.slot(log.Index) = *log
}

// grow doubles the ring, so that quiet groups stay small.
func (c *entryCache) grow() {
	old := *c
	c.ring = make([]raft.Log, min(max(16, 2*len(c.ring)), c.maxEntries))
	for i := range uint64(c.count) {
		*c.slot(c.first + i) = *old.slot(c.first + i)
	}
}

func (c *entryCache) dropOldest() {
	oldest := c.slot(c.first)
	c.bytes -= entryBytes(oldest)
	*oldest = raft.Log{}
	c.first++
	c.count--
}

// dropBefore removes the entries below first.
func (c *entryCache) dropBefore(first uint64) {
	for c.count > 0 && c.first < first {
		c.dropOldest()
	}
}

// dropAfter removes the entries above last.
func (c *entryCache) dropAfter(last uint64) {
	for c.count > 0 && c.first+uint64(c.count)-1 > last {
		newest := c.slot(c.first + uint64(c.count) - 1)
		c.bytes -= entryBytes(newest)
		*newest = raft.Log{}
		c.count--
	}
}

// clear removes everything and gives the memory back.
func (c *entryCache) clear() {
	*c = entryCache{maxEntries: c.maxEntries, maxBytes: c.maxBytes}
}

func entryBytes(log *raft.Log) int { return len(log.Data) + len(log.Extensions) }
