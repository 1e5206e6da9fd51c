package membership

import "errors"

// errNotEmpty is returned by Refound for a store that a node has used.
var errNotEmpty = errors.New("the store belongs to a node already")

// Refound makes the node of an empty store the founder of a new cluster of groups data
// groups, whose states the caller puts there: the Agent of the store founds the cluster
// when it runs, whatever its seeds, and goes on with those states. clusterID is the id of
// the cluster.
func Refound(store IdentityStore, nodeID string, groups uint32) (identity Identity, clusterID string, err error) {
	rec, err := loadIdentityRecord(store)
	if err != nil {
		return Identity{}, "", err
	}
	if rec.NodeID != "" {
		return Identity{}, "", errNotEmpty
	}
	rec = identityRecord{
		Format: identityFormat, NodeID: nodeID, Incarnation: randomHex(8), Founding: randomHex(16), Groups: groups,
	}
	if err := saveDocument(store, identityDocument, rec); err != nil {
		return Identity{}, "", err
	}
	return Identity{NodeID: rec.NodeID, Incarnation: rec.Incarnation}, rec.Founding, nil
}
