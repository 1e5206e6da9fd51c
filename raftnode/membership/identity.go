package membership

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership/genesis"
)

// IdentityStore keeps small node-level documents. storage.Store implements it.
type IdentityStore interface {
	// Meta returns the document name, nil if it was never written.
	Meta(name string) ([]byte, error)
	// SetMeta writes the document name and returns when it is durable.
	SetMeta(name string, value []byte) error
	// Durable reports whether documents survive the end of the process.
	Durable() bool
}

// Identity is who a node is, in this life of its data.
type Identity struct {
	// NodeID is the operator's name for the node.
	NodeID string
	// Incarnation is random, minted with an empty store: a node that lost its data
	// is a new server and can never vote as the old one.
	Incarnation string
	// ClusterID is the cluster that the node belongs to, empty while to none.
	ClusterID string
}

// ID is the Raft server id of this identity.
func (i Identity) ID() raftnode.ServerID {
	return raftnode.ServerID(i.NodeID + "#" + i.Incarnation)
}

// The documents in the store. Their names are on disk: never reused.
const (
	identityDocument = "membership/identity"
	acceptorDocument = "membership/genesis"
	peersDocument    = "membership/peers"
)

const identityFormat = 1

// identityRecord is the stored form of an identity.
type identityRecord struct {
	Format      int    `json:"format"`
	NodeID      string `json:"nodeId"`
	Incarnation string `json:"incarnation"`
	ClusterID   string `json:"clusterId,omitempty"`
	// Addr is the address at which the node was a member last.
	Addr string `json:"addr,omitempty"`
	// Founding is the id of the cluster that this node was chosen to found, from
	// before its first group is created until all of them are.
	Founding string `json:"founding,omitempty"`
	// Groups is the number of data groups of that cluster, set with Founding.
	Groups uint32 `json:"groups,omitempty"`
	// Recovering is what the cluster will be called, from before the first group of a
	// survivor is rewritten until all of them are: see BeginRecovery.
	Recovering string `json:"recovering,omitempty"`
}

// LoadIdentity returns the identity in store. On an empty store it mints one and
// makes it durable first. Errors: *StoreOwnerError if the store belongs to a node
// with another id, ErrRecovering if its groups were rewritten in part, and those of
// the store.
func LoadIdentity(store IdentityStore, nodeID string) (Identity, error) {
	rec, err := loadIdentityRecord(store)
	if err != nil {
		return Identity{}, err
	}
	if rec.NodeID == "" {
		rec = identityRecord{Format: identityFormat, NodeID: nodeID, Incarnation: randomHex(8)}
		if err := saveDocument(store, identityDocument, rec); err != nil {
			return Identity{}, err
		}
	}
	if rec.NodeID != nodeID {
		return Identity{}, &StoreOwnerError{Owner: rec.NodeID, NodeID: nodeID}
	}
	if rec.Recovering != "" {
		return Identity{}, ErrRecovering
	}
	return Identity{NodeID: rec.NodeID, Incarnation: rec.Incarnation, ClusterID: rec.ClusterID}, nil
}

func loadIdentityRecord(store IdentityStore) (identityRecord, error) {
	var rec identityRecord
	found, err := loadDocument(store, identityDocument, &rec)
	if err == nil && found && (rec.Format != identityFormat || rec.NodeID == "" || rec.Incarnation == "") {
		err = fmt.Errorf("identity has format %d, this program reads format %d", rec.Format, identityFormat)
	}
	return rec, err
}

// loadAcceptor returns the promises that the node gave before its last start.
func loadAcceptor(store IdentityStore) (genesis.Acceptor, error) {
	var a genesis.Acceptor
	_, err := loadDocument(store, acceptorDocument, &a)
	return a, err
}

// peerAddrs are the last known addresses of the other members, so that a node
// finds them again without seeds.
type peerAddrs map[raftnode.ServerID]string

func loadDocument(store IdentityStore, name string, into any) (found bool, err error) {
	raw, err := store.Meta(name)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if raw == nil {
		return false, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, fmt.Errorf("decode %s: %w", name, err)
	}
	return true, nil
}

func saveDocument(store IdentityStore, name string, doc any) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := store.SetMeta(name, raw); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// randomHex returns n random bytes in hexadecimal.
func randomHex(n int) string {
	b := make([]byte, n)
	// Read never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}
