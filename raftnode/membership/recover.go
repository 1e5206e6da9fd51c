package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/mux"
)

// Survivor is the identity of a stopped member that is to go on without the others.
type Survivor struct {
	Identity
	// Addrs are the last known addresses of the other members.
	Addrs map[raftnode.ServerID]string
	// Recovering is what the cluster will be called, empty unless a recovery was begun.
	Recovering string
}

// ReadSurvivor reads the identity in the store of a stopped node, and changes nothing.
// Errors: ErrNoCluster if it is no member, and those of the store.
func ReadSurvivor(store IdentityStore) (Survivor, error) {
	rec, err := loadIdentityRecord(store)
	if err != nil {
		return Survivor{}, err
	}
	if rec.ClusterID == "" {
		return Survivor{}, ErrNoCluster
	}
	s := Survivor{
		Identity:   Identity{NodeID: rec.NodeID, Incarnation: rec.Incarnation, ClusterID: rec.ClusterID},
		Recovering: rec.Recovering,
	}
	_, err = loadDocument(store, peersDocument, &s.Addrs)
	return s, err
}

// BeginRecovery makes durable that the groups of the survivor are being rewritten, and
// returns what its cluster is called from now on: a node that starts before EndRecovery
// refuses with ErrRecovering. A recovery that was begun goes on under the same name.
func BeginRecovery(store IdentityStore) (clusterID string, err error) {
	rec, err := loadIdentityRecord(store)
	if err != nil {
		return "", err
	}
	if rec.ClusterID == "" {
		return "", ErrNoCluster
	}
	if rec.Recovering == "" {
		rec.Recovering = nextLife(rec.ClusterID)
		if err := saveDocument(store, identityDocument, rec); err != nil {
			return "", err
		}
	}
	return rec.Recovering, nil
}

// EndRecovery makes the survivor a member of its new cluster. Other members are not known
// any more.
func EndRecovery(store IdentityStore) error {
	rec, err := loadIdentityRecord(store)
	if err != nil {
		return err
	}
	if rec.Recovering == "" {
		return errors.New("end recovery: none was begun")
	}
	if err := saveDocument(store, peersDocument, peerAddrs{}); err != nil {
		return err
	}
	rec.ClusterID, rec.Recovering = rec.Recovering, ""
	return saveDocument(store, identityDocument, rec)
}

// splitLife splits the id of a cluster into that of its founding and the number of its
// life, which is 1 until a survivor is recovered.
func splitLife(clusterID string) (founding string, life uint64) {
	founding, text, found := strings.Cut(clusterID, ".")
	life, err := strconv.ParseUint(text, 10, 64)
	if !found || err != nil {
		return clusterID, 1
	}
	return founding, life
}

// nextLife is the id of the cluster after a recovery.
func nextLife(clusterID string) string {
	founding, life := splitLife(clusterID)
	return fmt.Sprintf("%s.%d", founding, life+1)
}

// superseded reports whether other is a later life of the cluster.
func superseded(clusterID, other string) bool {
	founding, life := splitLife(clusterID)
	same, later := splitLife(other)
	return founding == same && later > life
}

// ensureCurrent asks the members that it knew, before a replica starts, whether the
// cluster was recovered without this node: with others that were left behind it could
// still form a quorum. Its error is *RefusedError then.
func (a *Agent) ensureCurrent(ctx context.Context, addrs peerAddrs) error {
	targets := slices.Concat(slices.Collect(maps.Values(addrs)), a.cfg.Seeds)
	slices.Sort(targets)
	targets = slices.DeleteFunc(slices.Compact(targets), func(addr string) bool { return addr == "" || addr == a.deps.Mux.Addr() })
	for _, r := range a.hello(ctx, targets) {
		var refused *mux.RefusedError
		if errors.As(r.err, &refused) && superseded(a.record().ClusterID, refused.By.ClusterID) {
			return &RefusedError{Reason: "the cluster was recovered without this node", Err: r.err}
		}
	}
	return ctx.Err()
}
