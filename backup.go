package quorate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm/backup"
	"github.com/quorate/quorate/raftnode/mux"
)

// outlineTimeout bounds asking what there is to save.
const outlineTimeout = 10 * time.Second

// Backup writes a backup of the cluster of the node at addr to dst, while the cluster
// serves. Every group is saved as it was at one log index, not before anything that was
// acknowledged when Backup was called; groups are saved one after the other. secret is the
// cluster's, empty for a cluster without one. On an error what was written is no backup.
func Backup(ctx context.Context, addr, secret string, dst io.Writer) (*backup.Summary, error) {
	cfg := mux.DefaultConfig()
	cfg.Secret = []byte(secret)
	m, err := mux.Open(cfg, mux.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	call := func(ctx context.Context, method mux.Method, body []byte) ([]byte, error) {
		reply, _, err := m.CallAddr(ctx, addr, method, body)
		return reply, err
	}
	return writeBackup(ctx, call, dst)
}

func writeBackup(ctx context.Context, call caller, dst io.Writer) (*backup.Summary, error) {
	var o outline
	if err := call.request(ctx, outlineTimeout, methodOutline, struct{}{}, &o); err != nil {
		return nil, fmt.Errorf("ask what there is to save: %w", err)
	}
	if len(o.Holders) < 2 {
		return nil, errors.New("the cluster has no groups yet")
	}
	s := &backup.Summary{Header: backup.Header{
		ClusterID: o.ClusterID, NodeID: o.NodeID, Version: o.Version,
		CreatedMillis: unixMillis(), Groups: uint32(len(o.Holders) - 1),
	}}
	counted := &countingWriter{dst: dst}
	w, err := backup.NewWriter(counted, s.Header)
	if err != nil {
		return nil, err
	}
	for group, holders := range o.Holders {
		part, err := saveGroup(ctx, call, w, uint32(group), holders)
		if err != nil {
			return nil, fmt.Errorf("save group %d: %w", group, err)
		}
		s.Parts = append(s.Parts, part)
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	s.Size = counted.bytes
	return s, nil
}

// saveGroup saves a group from the first of its holders that gives it away.
func saveGroup(ctx context.Context, call caller, w *backup.Writer, group uint32, holders []string) (backup.PartSummary, error) {
	var errs []error
	for _, node := range holders {
		src, err := openRemote(ctx, call, openRequest{Group: group, Node: node})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		part := backup.Part{Group: group, Index: src.Index, Term: src.Term, Node: node}
		// A release that does not arrive costs the node a minute of an open view.
		defer func() { _ = src.Close() }()
		return backup.PartSummary{Part: part, Bytes: src.Size}, w.WriteGroup(part, src)
	}
	return backup.PartSummary{}, errors.Join(errs...)
}

// countingWriter counts what is written.
type countingWriter struct {
	dst   io.Writer
	bytes int64
}

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.dst.Write(p)
	w.bytes += int64(n)
	return n, err
}
