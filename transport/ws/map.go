package ws

import (
	"sync"

	"github.com/quorate/quorate/partitions"
	"github.com/quorate/quorate/protocol"
)

// mapCache is the PARTITION_MAP frame of the newest partition map. All connections
// share the frame.
type mapCache struct {
	// mu protects the fields below.
	mu      sync.Mutex
	version uint32
	frame   []byte
}

// mapFrame is the PARTITION_MAP frame of the present map with its version, nil
// while there is no map.
func (s *Server) mapFrame(b Backend) ([]byte, uint32) {
	info := b.PartitionMap()
	if info == nil {
		return nil, 0
	}
	m := &s.partitionMap
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.frame != nil && m.version == info.Version {
		return m.frame, m.version
	}
	frame, err := protocol.Append(nil, partitionMap(info, s.deps.Now()))
	if err != nil {
		s.log.Error("encode partition map", "err", err)
		return nil, 0
	}
	m.version, m.frame = info.Version, frame
	return frame, info.Version
}

func partitionMap(info *partitions.MapInfo, now int64) *protocol.PartitionMap {
	m := &protocol.PartitionMap{
		Version:        info.Version,
		PartitionCount: protocol.PartitionCount,
		Nodes:          make([]protocol.PartitionNode, 0, len(info.Nodes)),
		Partitions:     make([]protocol.PartitionOwner, 0, protocol.PartitionCount),
		GeneratedAt:    now,
	}
	for _, n := range info.Nodes {
		m.Nodes = append(m.Nodes, protocol.PartitionNode{
			NodeID: n.NodeID, Endpoints: protocol.NodeEndpoints{WebSocket: n.WebSocket}, Status: n.Status,
		})
	}
	for p := range uint32(protocol.PartitionCount) {
		m.Partitions = append(m.Partitions, protocol.PartitionOwner{
			PartitionID: p, OwnerNodeID: info.Owner[p], BackupNodeIDs: info.Backups[p],
		})
	}
	return m
}

// pushMaps sends the partition map to every client after each change, until the
// Server closes. Changes that come faster than the map can be sent count as one.
func (s *Server) pushMaps(b Backend, changed <-chan struct{}) {
	_, pushed := s.mapFrame(b)
	for {
		select {
		case <-s.base.Done():
			return
		case <-changed:
		}
		frame, version := s.mapFrame(b)
		if frame == nil || version == pushed {
			continue
		}
		pushed = version
		for _, c := range s.all() {
			if c.live.Load() {
				c.push(protocol.KindPartitionMap, frame)
			}
		}
	}
}
