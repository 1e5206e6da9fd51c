package membership

import (
	"errors"
	"testing"
	"time"
)

// TestMembersThatWereLeftBehindAreRefusedTogether recovers one of three nodes: the two
// others would be a quorum of the old cluster when they come back at the same time.
func TestMembersThatWereLeftBehindAreRefusedTogether(t *testing.T) {
	three(t, 31, func(t *testing.T, c *cluster) {
		survivor := c.nodes[0]
		for _, n := range c.nodes {
			n.kill()
		}
		old, err := ReadSurvivor(survivor.store)
		c.must(err)
		if len(old.Addrs) != 2 || old.Recovering != "" {
			t.Errorf("%+v", old)
		}
		id, err := BeginRecovery(survivor.store)
		c.must(err)
		if _, err := LoadIdentity(survivor.store, survivor.name); !errors.Is(err, ErrRecovering) {
			t.Errorf("identity between two clusters: %v", err)
		}
		again, err := BeginRecovery(survivor.store)
		c.must(err)
		c.must(EndRecovery(survivor.store))
		if err := EndRecovery(survivor.store); err == nil {
			t.Error("ended twice")
		}
		now, err := LoadIdentity(survivor.store, survivor.name)
		c.must(err)
		if id != again || now.ClusterID != id || !superseded(old.ClusterID, id) || now.Incarnation != old.Incarnation {
			t.Errorf("%s became %s, %s, %+v", old.ClusterID, id, again, now)
		}
		survivor.start()
		for _, n := range c.nodes[1:] {
			n.start()
		}
		for _, n := range c.nodes[1:] {
			asError[*RefusedError](t, n.wait(5*time.Second))
		}
	})
}

func TestLivesOfAClusterAreOrdered(t *testing.T) {
	for _, tc := range []struct {
		id, other string
		want      bool
	}{
		{"c", "c.2", true}, {"c.2", "c.3", true}, {"c.9", "c.10", true}, {"c.2", "c", false}, {"c", "c", false},
		{"c.2", "c.2", false}, {"c", "d.2", false}, {"c", "", false}, {"c", "c.x", false},
	} {
		if got := superseded(tc.id, tc.other); got != tc.want {
			t.Errorf("%q superseded by %q: %v", tc.id, tc.other, got)
		}
	}
	if nextLife("c") != "c.2" || nextLife("c.2") != "c.3" {
		t.Errorf("%s, %s", nextLife("c"), nextLife("c.2"))
	}
}
