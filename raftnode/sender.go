package raftnode

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// sendBurst is how many bytes of a snapshot may leave at once.
const sendBurst = 1 << 20

// sender admits one outgoing snapshot at a time and paces it, so that catching up
// one replica does not starve the others' messages.
type sender struct {
	turn  chan struct{} // has a token while a snapshot is being sent
	limit *rate.Limiter
}

func newSender(bytesPerSecond int) *sender {
	return &sender{
		turn:  make(chan struct{}, 1),
		limit: rate.NewLimiter(rate.Limit(bytesPerSecond), sendBurst),
	}
}

// acquire blocks until no snapshot is being sent, or ctx ends.
func (s *sender) acquire(ctx context.Context) (release func(), err error) {
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// outgoing is a snapshot on its way. For one goroutine.
type outgoing struct {
	io.ReadCloser
	ctx     context.Context
	limit   *rate.Limiter
	release func()
}

// Read implements io.Reader at the limited rate.
func (o *outgoing) Read(b []byte) (int, error) {
	if len(b) > sendBurst {
		b = b[:sendBurst]
	}
	n, err := o.ReadCloser.Read(b)
	if n > 0 {
		if wait := o.limit.WaitN(o.ctx, n); wait != nil {
			return 0, wait
		}
	}
	return n, err
}

// Close implements io.Closer. It must be called once.
func (o *outgoing) Close() error {
	defer o.release()
	return o.ReadCloser.Close()
}
