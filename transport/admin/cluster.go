package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/httperr"
)

// NodeInfo is what a node says of itself without asking others.
type NodeInfo struct {
	NodeID  string
	Version string
	// Role is that of its replica of the system group.
	Role string
	// ClusterSize counts the members.
	ClusterSize      int
	Connections      int
	UptimeSeconds    int64
	TotalOperations  int64
	ProtocolVersion  int
	Ready            bool
	Accepting        bool
	NotAcceptingText string
}

// Node is one node of the cluster as operators see it. Pointers are nil where the node
// itself has to say it and did not answer.
type Node struct {
	NodeID string `json:"nodeId"`
	// Address is where clients reach it.
	Address string `json:"address"`
	// Status is healthy, suspect or dead; State is the member's own word for it.
	Status string `json:"status"`
	State  string `json:"state"`
	// PartitionCount counts the partitions that the node owns: whose group it leads.
	PartitionCount int     `json:"partitionCount"`
	Connections    *int    `json:"connections,omitempty"`
	Memory         *uint64 `json:"memory,omitempty"`
	Uptime         *int64  `json:"uptime,omitempty"`
	Version        string  `json:"version,omitempty"`
	// LastContactMs is how long ago the answering node heard of this one.
	LastContactMs int64 `json:"lastContactMs"`
	// Role, Term, CommitIndex, AppliedIndex and LagEntries are those of its replica of the
	// system group.
	Role         string  `json:"role,omitempty"`
	Term         uint64  `json:"term,omitempty"`
	CommitIndex  uint64  `json:"commitIndex,omitempty"`
	AppliedIndex uint64  `json:"appliedIndex,omitempty"`
	LagEntries   *uint64 `json:"lagEntries,omitempty"`
	Groups       []Group `json:"groups"`
	Local        bool    `json:"local"`
}

// Group is a node's replica of a Raft group.
type Group struct {
	ID           uint32   `json:"id"`
	Role         string   `json:"role"`
	Term         uint64   `json:"term"`
	Leader       string   `json:"leader,omitempty"`
	CommitIndex  uint64   `json:"commitIndex"`
	AppliedIndex uint64   `json:"appliedIndex"`
	FlushedIndex uint64   `json:"flushedIndex"`
	LagEntries   uint64   `json:"lagEntries"`
	Voters       []string `json:"voters"`
	// LastContactMs is how long ago a follower heard from its leader, -1 for never.
	LastContactMs int64 `json:"lastContactMs"`
}

type statusBody struct {
	Configured      bool   `json:"configured"`
	Version         string `json:"version"`
	Mode            string `json:"mode"`
	Connections     int    `json:"connections"`
	UptimeSeconds   int64  `json:"uptimeSeconds"`
	TotalOperations int64  `json:"totalOperations"`
	NodeID          string `json:"nodeId"`
	Role            string `json:"role"`
	ClusterSize     int    `json:"clusterSize"`
	ProtocolVersion int    `json:"protocolVersion"`
	Ready           bool   `json:"ready"`
	NoAuth          bool   `json:"noAuth"`
}

type clusterBody struct {
	Nodes           []Node      `json:"nodes"`
	Partitions      []partition `json:"partitions"`
	TotalPartitions int         `json:"totalPartitions"`
	// IsRebalancing: a group has no live leader, or is not yet where the table places it.
	IsRebalancing bool `json:"isRebalancing"`
	// AcceptsWrites tells whether the answering node would take a write now.
	AcceptsWrites bool   `json:"acceptsWrites"`
	Reason        string `json:"reason,omitempty"`
}

type partition struct {
	ID            int      `json:"id"`
	OwnerNodeID   string   `json:"ownerNodeId"`
	BackupNodeIDs []string `json:"backupNodeIds"`
}

func (h *Handler) status(w http.ResponseWriter, _ *http.Request) {
	n := h.deps.Cluster.Node()
	writeJSON(w, http.StatusOK, statusBody{
		Configured: true, Version: n.Version, Mode: "normal", Connections: n.Connections, UptimeSeconds: n.UptimeSeconds,
		TotalOperations: n.TotalOperations, NodeID: n.NodeID, Role: n.Role, ClusterSize: n.ClusterSize, ProtocolVersion: n.ProtocolVersion,
		Ready: n.Ready, NoAuth: h.deps.Clients == nil,
	})
}

func (h *Handler) cluster(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.GatherTimeout)
	defer cancel()
	body := clusterBody{Nodes: h.deps.Cluster.Nodes(ctx), Partitions: []partition{}}
	if body.Nodes == nil {
		body.Nodes = []Node{}
	}
	self := h.deps.Cluster.Node()
	body.AcceptsWrites, body.Reason = self.Accepting, self.NotAcceptingText
	var info *partitions.MapInfo
	if b := h.deps.Backend(); b != nil {
		info = b.PartitionMap()
	}
	if info == nil {
		writeJSON(w, http.StatusOK, body)
		return
	}
	body.TotalPartitions = protocol.PartitionCount
	owned := map[string]int{}
	for p := range info.Owner {
		owned[info.Owner[p]]++
		body.IsRebalancing = body.IsRebalancing || info.Owner[p] == ""
		body.Partitions = append(body.Partitions, partition{ID: p, OwnerNodeID: info.Owner[p], BackupNodeIDs: info.Backups[p]})
	}
	for i := range body.Nodes {
		n := &body.Nodes[i]
		n.PartitionCount = owned[n.NodeID]
		body.IsRebalancing = body.IsRebalancing || n.State == "joining" || n.State == "leaving"
	}
	writeJSON(w, http.StatusOK, body)
}

func (h *Handler) drainNode(w http.ResponseWriter, r *http.Request) {
	h.changeNode(w, r, "drain", h.deps.Cluster.Drain)
}

func (h *Handler) removeNode(w http.ResponseWriter, r *http.Request) {
	h.changeNode(w, r, "removal", h.deps.Cluster.Remove)
}

func (h *Handler) changeNode(w http.ResponseWriter, r *http.Request, what string, change func(context.Context, string) error) {
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	id := r.PathValue("id")
	if err := change(ctx, id); err != nil {
		h.failed(w, r, err)
		return
	}
	h.audit.Warn(what+" of a node begun", "node", shown(id), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	w.WriteHeader(http.StatusAccepted)
}

func (h *Handler) transfer(w http.ResponseWriter, r *http.Request) {
	group, err := strconv.ParseUint(r.PathValue("group"), 10, 32)
	if err != nil {
		httperr.WriteField(w, http.StatusBadRequest, "a group is a number", "group")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.ChangeTimeout)
	defer cancel()
	done, err := h.deps.Cluster.Transfer(ctx, uint32(group), r.URL.Query().Get("node"))
	if err != nil {
		h.failed(w, r, err)
		return
	}
	h.audit.Warn("leadership of a group moved", "group", done.Group, "from", shown(done.From), "to", shown(done.To), "user", caller(r), "addr", r.RemoteAddr, "request_id", requestID(w))
	writeJSON(w, http.StatusOK, done)
}

type mapsBody struct {
	Maps []mapBody `json:"maps"`
	// After continues the list behind its last map; empty at the end.
	After string `json:"after,omitempty"`
}

type mapBody struct {
	Name       string `json:"name"`
	EntryCount int    `json:"entryCount"`
	// Type is lww, or, or both.
	Type           string         `json:"type"`
	TombstoneCount int            `json:"tombstoneCount"`
	Bytes          int            `json:"bytes"`
	Partitions     []mapPartition `json:"partitions"`
	// Incomplete: the answering node does not hold all groups, and counts what it holds.
	Incomplete bool `json:"incomplete,omitempty"`
}

type mapPartition struct {
	ID          int    `json:"id"`
	OwnerNodeID string `json:"ownerNodeId"`
	EntryCount  int    `json:"entryCount"`
}

// countLife is how long counts are shown again, because counting reads the whole map.
const countLife = 2 * time.Second

// countCache holds the latest counts. One map is counted at a time.
type countCache struct {
	mu     sync.Mutex
	counts map[string]counted
}

type counted struct {
	at   time.Time
	stat *partitions.MapStat
}

// get counts a map, unless that was just done.
func (c *countCache) get(ctx context.Context, b Backend, name string) (*partitions.MapStat, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for old, known := range c.counts {
		if now.Sub(known.at) > countLife {
			delete(c.counts, old)
		}
	}
	if known, ok := c.counts[name]; ok {
		return known.stat, nil
	}
	stat, err := b.Inventory(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.counts == nil {
		c.counts = map[string]counted{}
	}
	c.counts[name] = counted{at: time.Now(), stat: stat}
	return stat, nil
}

// Bounds of the list of maps.
const (
	mapsDefault = 100
	mapsMost    = 1000
)

func (h *Handler) maps(w http.ResponseWriter, r *http.Request) {
	b, ok := h.backend(w)
	if !ok {
		return
	}
	limit := mapsDefault
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mapsMost {
			httperr.WriteField(w, http.StatusBadRequest, "limit must be a whole number from 1 to "+strconv.Itoa(mapsMost), "limit")
			return
		}
	}
	names := slices.DeleteFunc(b.MapNames(), reserved)
	after := r.URL.Query().Get("after")
	i, found := slices.BinarySearch(names, after)
	if found {
		i++
	}
	names = names[i:]
	body := mapsBody{Maps: []mapBody{}}
	if len(names) > limit {
		names = names[:limit]
		body.After = names[limit-1]
	}
	info := b.PartitionMap()
	for _, name := range names {
		stat, err := h.counts.get(r.Context(), b, name)
		if err != nil {
			h.failed(w, r, err)
			return
		}
		body.Maps = append(body.Maps, describeMap(stat, info))
	}
	writeJSON(w, http.StatusOK, body)
}

func describeMap(s *partitions.MapStat, info *partitions.MapInfo) mapBody {
	m := mapBody{
		Name: s.Name, EntryCount: s.Entries, TombstoneCount: s.Tombstones, Bytes: s.Bytes, Type: "lww",
		Partitions: []mapPartition{}, Incomplete: s.Incomplete,
	}
	switch {
	case s.Records && s.Sets:
		m.Type = "both"
	case s.Sets:
		m.Type = "or"
	}
	for p, n := range s.Partitions {
		if n == 0 {
			continue
		}
		owner := ""
		if info != nil {
			owner = info.Owner[p]
		}
		m.Partitions = append(m.Partitions, mapPartition{ID: p, OwnerNodeID: owner, EntryCount: n})
	}
	return m
}
