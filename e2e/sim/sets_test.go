package sim

import (
	"fmt"
	"sync"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

const (
	// setMap is an observed-remove map, of setKeys keys.
	setMap, setKeys = "sets", 20
)

// fate is what clients know of one tag.
type fate struct {
	key string
	// added and removed are acknowledged, dropping was asked for.
	added, dropping, removed bool
}

// ledger is the fates of all tags. It is safe for concurrent use.
type ledger struct {
	mu   sync.Mutex
	tags map[string]*fate
}

// change notes something about a tag.
func (l *ledger) change(tag string, fn func(*fate)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tags == nil {
		l.tags = map[string]*fate{}
	}
	if l.tags[tag] == nil {
		l.tags[tag] = &fate{}
	}
	fn(l.tags[tag])
}

// writeSet adds a value of its own, or removes one that it knows to be there. One
// removal in four names another key: a tag belongs to the map.
func (c *client) writeSet() {
	key := fmt.Sprintf("k%d", c.rng.IntN(setKeys))
	if len(c.tags) > 0 && c.rng.IntN(3) == 0 {
		i := c.rng.IntN(len(c.tags))
		tag := c.tags[i]
		c.tags = append(c.tags[:i], c.tags[i+1:]...)
		c.w.sets.change(tag, func(f *fate) {
			f.dropping = true
			if c.rng.IntN(4) > 0 {
				key = f.key
			}
		})
		if verdicts, err := c.send([]partitions.Op{{Map: setMap, Key: key, Remove: tag}}); err == nil && !verdicts[0].Refused() {
			c.w.sets.change(tag, func(f *fate) { f.removed = true })
		}
		return
	}
	c.next++
	stamp := protocol.Timestamp{Millis: int64(c.next), NodeID: c.name}
	tag := stamp.String()
	c.w.sets.change(tag, func(f *fate) { f.key = key })
	add := &protocol.ORRecord{Tag: tag, Value: encode(tag), Timestamp: stamp}
	if verdicts, err := c.send([]partitions.Op{{Map: setMap, Key: key, Add: add}}); err == nil && !verdicts[0].Refused() {
		c.tags = append(c.tags, tag)
		c.w.sets.change(tag, func(f *fate) { f.added = true })
	}
}

type setReader interface {
	Set(mapName, key, tag string) (part protocol.OREntry, more bool, err error)
}

// checkSets compares what every replica of every group holds with the fates.
func (w *world) checkSets() {
	w.sets.mu.Lock()
	defer w.sets.mu.Unlock()
	held := map[string]int{} // replicas that have the tag
	replicas := 0
	for _, l := range w.running() {
		for _, g := range l.node.Host().Groups() {
			if g.ID() == 1 {
				replicas++
			}
			for i := range setKeys {
				entry, _, err := g.Machine().(setReader).Set(setMap, fmt.Sprintf("k%d", i), "")
				if err != nil {
					w.problem("read a set of group %d: %v", g.ID(), err)
				}
				for _, rec := range entry.Records {
					held[rec.Tag]++
					if f := w.sets.tags[rec.Tag]; f == nil || f.key != entry.Key {
						w.problem("nobody added %s under %s", rec.Tag, entry.Key)
					}
				}
			}
		}
	}
	for tag, f := range w.sets.tags {
		switch n := held[tag]; {
		case f.removed && n > 0:
			w.problem("%s was removed and is on %d replicas", tag, n)
		case f.added && !f.dropping && n != replicas:
			w.problem("%s was added and is on %d of %d replicas", tag, n, replicas)
		case n != 0 && n != replicas:
			w.problem("%s is on %d of %d replicas", tag, n, replicas)
		}
	}
}
