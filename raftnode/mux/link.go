package mux

import (
	"bufio"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	readBufferBytes = 32 << 10
	// writeBytes bounds one Write, so that progress shows on a slow line.
	writeBytes = 64 << 10
)

// link moves frames over one call connection; client and server are its two uses.
// Its owner runs writeLoop and watch, and reads from in.
type link struct {
	conn *peerConn
	in   frameReader
	out  *outbox

	pingInterval, peerTimeout time.Duration

	progress atomic.Uint64 // counts signs that the other end is alive
	failing  sync.Once
	err      error         // why the link ended; set before down is closed
	down     chan struct{} // closed by fail
}

func newLink(conn *peerConn, cfg *Config) *link {
	l := &link{
		conn: conn, out: newOutbox(), down: make(chan struct{}),
		pingInterval: cfg.PingInterval, peerTimeout: cfg.PeerTimeout,
	}
	l.in = frameReader{r: bufio.NewReaderSize(counted{l}, readBufferBytes), maxBody: cfg.MaxMessage}
	return l
}

// counted reads from the connection and counts it as a sign of life.
type counted struct{ l *link }

// Read implements io.Reader.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.l.conn.Read(b)
	if n > 0 {
		c.l.progress.Add(1)
	}
	return n, err
}

// fail ends the link. The first reason is kept.
func (l *link) fail(err error) {
	l.failing.Do(func() {
		l.err = err
		close(l.down) // first: whoever finds the outbox closed must see the link down
		l.out.close()
		l.conn.abort()
	})
}

// isDown reports whether the link has ended.
func (l *link) isDown() bool {
	select {
	case <-l.down:
		return true
	default:
		return false
	}
}

// writeLoop writes what is put into out until the link ends.
func (l *link) writeLoop() {
	for {
		select {
		case <-l.out.wake:
		case <-l.down:
			return
		}
		// Let callers that are ready to run add their frames to this write.
		runtime.Gosched()
		b := l.out.take()
		if err := l.write(b); err != nil {
			l.fail(err)
			return
		}
		l.out.done(b)
	}
}

// write gives each step the whole PeerTimeout: a slow line may take long, a dead
// one may not.
func (l *link) write(b []byte) error {
	for len(b) > 0 {
		step := b[:min(len(b), writeBytes)]
		if err := l.conn.SetWriteDeadline(time.Now().Add(l.peerTimeout)); err != nil {
			return err
		}
		if _, err := l.conn.Write(step); err != nil {
			return err
		}
		if len(step) == writeBytes {
			// A long body holds up pings and replies. That it moves is a sign of life;
			// that a short frame found room in a buffer is none.
			l.progress.Add(1)
		}
		b = b[len(step):]
	}
	return nil
}

// watch ends the link when there is no sign of life for peerTimeout, and sends the pings
// that keep the other end from doing so, if any are to be sent. It counts ticks
// instead of reading the clock: after a pause of this process the peer gets its
// time anew.
func (l *link) watch(pings bool) {
	ticker := time.NewTicker(l.pingInterval)
	defer ticker.Stop()
	limit := int(l.peerTimeout / l.pingInterval)
	seen, quiet := l.progress.Load(), 0
	for {
		select {
		case <-ticker.C:
		case <-l.down:
			return
		}
		if now := l.progress.Load(); now != seen {
			seen, quiet = now, 0
		} else if quiet++; quiet > limit {
			l.fail(errSilent)
			return
		}
		if pings {
			// With the queue full there is traffic enough; a closed one ends the loop.
			_, _ = l.out.tryPut(header{kind: framePing}, nil)
		}
	}
}
