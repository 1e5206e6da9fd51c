package partitions

import (
	"context"
	"encoding/base64"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/protocol"
)

// progress is how far a client has been told of a map: for each group, the log index up
// to which it has everything. While a round is under way, one group is partly told:
// those before it have the index of this round, those behind it that of the one before.
type progress struct {
	indexes []uint64
	// group is the one that is partly told, 0 for none; it is told through the buckets
	// below bucket, and the keys of that below from, as they were at index mark.
	group  uint32
	bucket uint16
	mark   uint64
	from   string
}

// progressFormat begins the text form of a progress.
const progressFormat = "d2"

// text is the form of p in which clients hold it: in the node id of a timestamp, which
// they do not look into. cluster keeps it from being taken for that of other data.
func (p *progress) text(cluster string) string {
	b := []byte(progressFormat)
	field := func(v uint64) { b = strconv.AppendUint(append(b, '.'), v, 36) }
	field(clusterMark(cluster))
	for _, index := range p.indexes {
		field(index)
	}
	field(uint64(p.group))
	field(uint64(p.bucket))
	field(p.mark)
	return string(append(b, '.')) + base64.RawURLEncoding.EncodeToString([]byte(p.from))
}

// parseProgress reads what text wrote; anything else is the progress of a client that
// has nothing.
func parseProgress(text, cluster string, groups uint32) progress {
	none := progress{indexes: make([]uint64, groups)}
	fields := strings.Split(text, ".")
	if len(fields) != int(groups)+6 || fields[0] != progressFormat {
		return none
	}
	from, err := base64.RawURLEncoding.DecodeString(fields[len(fields)-1])
	if err != nil {
		return none
	}
	values := make([]uint64, len(fields)-2)
	for i, field := range fields[1 : len(fields)-1] {
		v, err := strconv.ParseUint(field, 36, 64)
		if err != nil {
			return none
		}
		values[i] = v
	}
	p := progress{indexes: values[1 : groups+1], group: uint32(values[groups+1]), bucket: uint16(values[groups+2]), mark: values[groups+3], from: string(from)}
	if values[0] != clusterMark(cluster) || p.group > groups {
		return none
	}
	return p
}

// clusterMark tells clusters apart.
func clusterMark(cluster string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(cluster)) // never fails
	return uint64(h.Sum32())
}

// Delta returns the records of a map that were stored since a client was told last, by
// what the stamp that it then got says; tombstones included. It ends at about maxBytes and
// says more then: the returned stamp goes on from there. Records that are
// stored meanwhile may come twice. Otherwise as Tree.
func (r *Router) Delta(ctx context.Context, s *Session, mapName string, since protocol.Timestamp, maxBytes int,
) (records []protocol.KeyedRecord, next protocol.Timestamp, more bool, err error) {
	groups := r.groups()
	if groups == 0 {
		return nil, next, false, errNoCluster
	}
	cluster := r.ClusterID()
	p := parseProgress(since.NodeID, cluster, groups)
	waiting, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	for _, group := range p.order(groups) {
		r.catchUp(waiting, group, &p.indexes[group-1])
		err = r.readGroup(ctx, s, group, func(group uint32, reader Reader) error {
			more, err = p.round(group, reader, mapName, &records, &maxBytes)
			return err
		})
		if err != nil {
			return nil, next, false, err
		}
		if more {
			break
		}
	}
	next = r.deps.Clock.Now()
	next.NodeID = p.text(cluster)
	return records, next, more, nil
}

// catchUpTime is how long replicas that are behind what another node told a client may
// take to get there.
const catchUpTime = time.Second

// catchUp waits until the replica of group is at index. An index that it does not reach
// before ctx ends is no group's of this cluster: the client gets everything.
func (r *Router) catchUp(ctx context.Context, group uint32, index *uint64) {
	if *index == 0 {
		return
	}
	_, held := r.deps.Groups.Replica(group)
	if held && r.deps.Groups.WaitApplied(ctx, group, *index) != nil {
		*index = 0
	}
	if held {
		return
	}
	if _, err := r.remote.NewReader(ctx, group, *index, new(sync.Mutex)).Horizon(); err != nil {
		*index = 0
	}
}

// order is that in which the groups are told: first what is left of a round that is under
// way, then all, because those told before may have changed.
func (p *progress) order(groups uint32) (list []uint32) {
	if p.group > 0 {
		for group := p.group; group <= groups; group++ {
			list = append(list, group)
		}
	}
	for group := uint32(1); group <= groups; group++ {
		list = append(list, group)
	}
	return list
}

// round tells one group from where p stands, and moves p. more says that it was not
// told to the end.
func (p *progress) round(group uint32, reader Reader, mapName string, records *[]protocol.KeyedRecord, maxBytes *int) (more bool, err error) {
	since := p.indexes[group-1]
	buckets, index, err := reader.ChangedBuckets(mapName, since)
	if err != nil {
		return false, err
	}
	if p.group != group {
		p.group, p.bucket, p.mark, p.from = group, 0, index, ""
	}
	at, _ := slices.BinarySearch(buckets, p.bucket)
	buckets = buckets[at:]
	if len(buckets) > 0 && buckets[0] > p.bucket {
		p.bucket, p.from = buckets[0], ""
	}
	if *maxBytes <= 0 && len(buckets) > 0 {
		return true, nil
	}
	err = reader.Records(mapName, buckets, p.from, since, func(bucket uint16, key string, rec protocol.Record) bool {
		*maxBytes -= RecordSize(key, &rec)
		*records = append(*records, protocol.KeyedRecord{Key: key, Record: rec.Clone()})
		p.bucket, p.from = bucket, key+"\x00"
		return *maxBytes > 0
	})
	if err != nil || *maxBytes <= 0 && len(buckets) > 0 {
		return err == nil, err
	}
	p.indexes[group-1] = p.mark
	p.group, p.bucket, p.mark, p.from = 0, 0, 0, ""
	return false, nil
}

// recordBytes is what a record takes in an answer beside its key and value.
const recordBytes = 96

// RecordSize is about how many bytes a record takes in a delta.
func RecordSize(key string, rec *protocol.Record) int { return recordBytes + len(key) + len(rec.Value) }
