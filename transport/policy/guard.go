package policy

import (
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// DocumentName is the name of the replicated document that holds the policies. Once it
// exists, what no policy allows is denied.
const DocumentName = "policies"

// Guard holds the policies in force on this node. It is safe for concurrent use.
type Guard struct {
	log     hclog.Logger
	present atomic.Pointer[versioned]
}

type versioned struct {
	version uint64
	set     *Set
}

// NewGuard returns a Guard that allows everything.
func NewGuard(logger hclog.Logger) *Guard {
	g := &Guard{log: logger.Named("policy")}
	g.present.Store(&versioned{set: &Set{}})
	return g
}

// Update puts a version of the document of policies in force, unless that or a later one
// is. One that cannot be read denies everything.
func (g *Guard) Update(value []byte, version uint64) {
	for {
		old := g.present.Load()
		if version <= old.version {
			return
		}
		next := &versioned{version: version, set: denyAll}
		list, err := Decode(value)
		if err == nil {
			var set *Set
			if set, err = Compile(list, true); err == nil {
				next.set = set
			}
		}
		if !g.present.CompareAndSwap(old, next) {
			continue
		}
		if err != nil {
			g.log.Error("policies cannot be read, everything is denied", "version", version, "err", err)
		} else {
			g.log.Info("policies in force", "version", version, "policies", len(list))
		}
		return
	}
}

// Set is the policies in force, Version the version of their document.
func (g *Guard) Set() *Set { return g.present.Load().set }

// Version is the version of the document in force, zero if there was never one.
func (g *Guard) Version() uint64 { return g.present.Load().version }

// Access is one caller as policies see him.
type Access struct {
	Guard  *Guard
	Caller Caller
}

// Scope decides an action on a resource before any row of it is known.
func (a Access) Scope(action Action, r Resource) Decision {
	return a.Guard.Set().Scope(a.Caller, action, r)
}

// ScopeOf decides an action on one row of a map of which nothing but the key is known, such
// as one that was removed.
func (a Access) ScopeOf(action Action, mapName, key string) Decision {
	return a.Guard.Set().ScopeOf(a.Caller, action, Resource{Kind: Map, Name: mapName}, key)
}

// Allow decides an action on one row of a map. For reads, stored is the row; incoming is
// not looked at.
func (a Access) Allow(action Action, mapName, key string, stored, incoming []byte) bool {
	return a.Judge(action, Resource{Kind: Map, Name: mapName}, Row{Key: key, Stored: stored, Incoming: incoming})
}

// Judge is Allow for any resource.
func (a Access) Judge(action Action, r Resource, row Row) bool {
	if action == Read {
		row.Incoming = row.Stored
	}
	return a.Guard.Set().Judge(a.Caller, action, r, row) == Allowed
}
