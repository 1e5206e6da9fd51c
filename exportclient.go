package quorate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/raftnode/mux"
)

const (
	// openTimeout bounds opening a snapshot, for which a node reads the group's whole
	// state once; readTimeout bounds one read, which is tried readAttempts times.
	openTimeout  = 5 * time.Minute
	readTimeout  = 20 * time.Second
	readAttempts = 3
)

// caller makes one call to a node that serves exports.
type caller func(ctx context.Context, method mux.Method, body []byte) ([]byte, error)

// request makes a call with JSON both ways.
func (call caller) request(ctx context.Context, timeout time.Duration, method mux.Method, request, reply any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := call(ctx, method, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, reply); err != nil {
		return fmt.Errorf("decode reply: %w", err)
	}
	return nil
}

// remoteSnapshot reads the state of a group from another node.
type remoteSnapshot struct {
	openReply
	ctx  context.Context
	call caller
	node string
	// offset is how much was received, rest what of it was not read yet.
	offset int64
	rest   []byte
}

var _ io.ReadCloser = (*remoteSnapshot)(nil)

// openRemote opens the state of a group on a node. ctx bounds the reading too.
func openRemote(ctx context.Context, call caller, req openRequest) (*remoteSnapshot, error) {
	s := &remoteSnapshot{ctx: ctx, call: call, node: req.Node}
	if err := call.request(ctx, openTimeout, methodOpen, req, &s.openReply); err != nil {
		return nil, fmt.Errorf("open snapshot of group %d on %s: %w", req.Group, req.Node, err)
	}
	return s, nil
}

// Read implements io.Reader.
func (s *remoteSnapshot) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if err := s.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *remoteSnapshot) fetch() error {
	if s.offset == s.Size {
		return io.EOF
	}
	body, err := json.Marshal(readRequest{Node: s.node, Export: s.Export, Offset: s.offset})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	for try := 1; ; try++ {
		ctx, cancel := context.WithTimeout(s.ctx, readTimeout)
		s.rest, err = s.call(ctx, methodRead, body)
		cancel()
		var refused *mux.RemoteError
		if err == nil || errors.As(err, &refused) || try == readAttempts || s.ctx.Err() != nil {
			break
		}
	}
	if err == nil && (len(s.rest) == 0 || s.offset+int64(len(s.rest)) > s.Size) {
		err = fmt.Errorf("%d bytes at %d of %d", len(s.rest), s.offset, s.Size)
	}
	if err != nil {
		s.rest = nil
		return fmt.Errorf("read snapshot from %s: %w", s.node, err)
	}
	s.offset += int64(len(s.rest))
	return nil
}

// Close lets the node release the snapshot. A node that does not hear of it does so by
// itself after a while.
func (s *remoteSnapshot) Close() error {
	body, err := json.Marshal(releaseRequest{Node: s.node, Export: s.Export})
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, cancel := context.WithTimeout(s.ctx, readTimeout)
	defer cancel()
	_, err = s.call(ctx, methodRelease, body)
	return err
}
