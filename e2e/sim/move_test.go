package sim

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSubscribersAreToldWhenTheirNodeLosesAGroup lets two nodes join, to which groups
// move: who follows a map on a node that gave one away must resync.
func TestSubscribersAreToldWhenTheirNodeLosesAGroup(t *testing.T) {
	var w *world
	synctest.Test(t, func(*testing.T) {
		w = newWorld(1, 3, false)
		defer func() {
			for _, m := range w.machines {
				m.kill()
			}
		}()
		for _, m := range w.machines {
			m.start()
		}
		if !w.converge() {
			return
		}
		watchers := w.watchAll()
		if len(watchers) != 3 {
			w.problem("%d of 3 nodes serve subscribers", len(watchers))
		}
		w.add("n4").start()
		w.add("n5").start()
		lost := func() (all []*watcher) {
			for _, s := range watchers {
				if len(s.life.node.Host().Groups()) < 7 {
					all = append(all, s)
				}
			}
			return all
		}
		w.eventually(3*time.Minute, "groups to move", func() error {
			if len(lost()) == 0 {
				return errors.New("all have all")
			}
			return nil
		})
		for _, s := range lost() {
			w.eventually(time.Second, "the subscriber of "+s.life.machine.name+" to be told", func() error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if !s.gap {
					return errors.New("it was not")
				}
				return nil
			})
		}
		for _, s := range watchers {
			s.sub.Close()
		}
	})
	w.report(t)
}
