package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// TestBehavesLikeRaftBoltDB runs the same random requests against both stores and
// compares everything that raft can see after each.
func TestBehavesLikeRaftBoltDB(t *testing.T) {
	for range 2 {
		seed := testSeed(t)
		d := &differential{t: t, rng: newRand(seed), dir: t.TempDir()}
		d.cfg = smallConfig(filepath.Join(d.dir, "log"))
		d.open()
		for range 250 {
			d.step()
			d.compare()
			if t.Failed() {
				break
			}
		}
		d.close()
	}
}

type differential struct {
	t    *testing.T
	rng  *rand.Rand
	dir  string
	cfg  Config
	log  *Log
	ours *GroupLog
	bolt *boltdb.BoltStore
	last string // the request that was made last
}

func (d *differential) open() {
	d.t.Helper()
	d.log = mustOpen(d.t, d.cfg, nil)
	d.ours = d.log.Group(2)
	bolt, err := boltdb.New(boltdb.Options{Path: filepath.Join(d.dir, "bolt"), NoSync: true,
		BoltOptions: &bbolt.Options{NoFreelistSync: true}})
	noErr(d.t, err)
	d.bolt = bolt
}

func (d *differential) close() {
	mustClose(d.t, d.log)
	noErr(d.t, d.bolt.Close())
}

// step makes one request of both stores; errors must agree.
func (d *differential) step() {
	first, _ := d.bolt.FirstIndex()
	last, _ := d.bolt.LastIndex()
	switch n := d.rng.IntN(100); {
	case n < 50:
		d.append(last)
	case n < 60:
		d.deleteRange(first, first+d.rng.Uint64N(last-first+1))
	case n < 68:
		d.deleteRange(first+d.rng.Uint64N(last-first+1), last+d.rng.Uint64N(3))
	case n < 70:
		d.deleteRange(first, last)
	case n < 80:
		key, value := d.key(), []byte(fmt.Sprint("value", d.rng.Uint32()))
		d.both("set", d.ours.Set(key, value), d.bolt.Set(key, value))
	case n < 88:
		key, value := d.key(), d.rng.Uint64()
		d.both("set number", d.ours.SetUint64(key, value), d.bolt.SetUint64(key, value))
	case n < 96:
		term := d.rng.Uint64N(100)
		d.both("vote term", d.ours.SetUint64([]byte(keyLastVoteTerm), term), d.bolt.SetUint64([]byte(keyLastVoteTerm), term))
		cand := []byte(fmt.Sprint("node", d.rng.Uint32N(9)))
		d.both("vote candidate", d.ours.Set([]byte(keyLastVoteCand), cand), d.bolt.Set([]byte(keyLastVoteCand), cand))
	case n < 97:
		d.last = "reopen"
		d.close()
		d.open()
	default:
		// Another group must not be seen by this one.
		noErr(d.t, d.log.Group(3).StoreLog(entry(d.log.Group(3).index.last()+1, 1, 100)))
	}
}

func (d *differential) key() []byte { return []byte(fmt.Sprint("key", d.rng.IntN(4))) }

func (d *differential) append(last uint64) {
	next := last + 1
	if last == 0 {
		next = 1 + d.rng.Uint64N(1000) // a gap is allowed in an empty log
	}
	logs := entries(next, next+d.rng.Uint64N(12), d.rng.Uint64N(50), d.rng.IntN(1500))
	for _, log := range logs {
		log.Type = raft.LogType(d.rng.IntN(6))
		log.Extensions = make([]byte, d.rng.IntN(3))
	}
	d.both("append", d.ours.StoreLogs(logs), d.bolt.StoreLogs(logs))
}

func (d *differential) deleteRange(min, max uint64) {
	d.both(fmt.Sprint("delete ", min, " to ", max), d.ours.DeleteRange(min, max), d.bolt.DeleteRange(min, max))
}

func (d *differential) both(what string, ours, bolt error) {
	d.last = what
	if (ours == nil) != (bolt == nil) {
		d.t.Fatalf("%s: %v, raft-boltdb: %v", what, ours, bolt)
	}
}

func (d *differential) compare() {
	d.t.Helper()
	first, err := d.bolt.FirstIndex()
	noErr(d.t, err)
	last, err := d.bolt.LastIndex()
	noErr(d.t, err)
	if err := rangeError(d.ours, first, last); err != nil {
		d.t.Fatalf("after %s: %v", d.last, err)
	}
	for i := first; i <= last && last > 0; i++ {
		var ours, bolt raft.Log
		noErr(d.t, d.ours.GetLog(i, &ours))
		noErr(d.t, d.bolt.GetLog(i, &bolt))
		if !sameEntry(&ours, &bolt) {
			d.t.Fatalf("after %s: entry %d is %+v, want %+v", d.last, i, ours, bolt)
		}
	}
	keys := []string{"key0", "key1", "key2", "key3", "never", keyLastVoteTerm, keyLastVoteCand}
	for _, key := range keys {
		ours, err := d.ours.Get([]byte(key))
		bolt, boltErr := d.bolt.Get([]byte(key))
		if !bytes.Equal(ours, bolt) || errors.Is(err, ErrKeyNotFound) != errors.Is(boltErr, boltdb.ErrKeyNotFound) {
			d.t.Fatalf("after %s: key %s is %q (%v), want %q (%v)", d.last, key, ours, err, bolt, boltErr)
		}
	}
}
