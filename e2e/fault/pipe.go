package fault

import (
	"net"
	"sync"
	"time"
)

const (
	chunkSize = 16 << 10
	// inFlight bounds the chunks of one direction of a connection that are under
	// way; beyond it the sender is held up, as by a full window.
	inFlight = 256
)

// chunk is bytes that are due at the other end at some time.
type chunk struct {
	data []byte
	due  time.Time
}

// pipe is one proxied connection.
type pipe struct {
	link         Link // of the dialer
	dialer, home *net.TCPConn
	done         chan struct{}
	once         sync.Once
}

func newPipe(link Link, dialer, home *net.TCPConn) *pipe {
	return &pipe{link: link, dialer: dialer, home: home, done: make(chan struct{})}
}

// close ends both connections, with a reset if abrupt. It may be called repeatedly.
func (p *pipe) close(abrupt bool) {
	p.once.Do(func() {
		close(p.done)
		for _, c := range []*net.TCPConn{p.dialer, p.home} {
			if abrupt {
				_ = c.SetLinger(0)
			}
			_ = c.Close()
		}
	})
}

// run moves bytes both ways until one end closes.
func (p *pipe) run(forth, back *state) {
	var wg sync.WaitGroup
	move := func(from, to *net.TCPConn, s *state) {
		queue := make(chan chunk, inFlight)
		wg.Go(func() { p.read(from, s, queue) })
		wg.Go(func() { p.write(to, s, queue) })
	}
	move(p.dialer, p.home, forth)
	move(p.home, p.dialer, back)
	wg.Wait()
	p.close(false)
}

// read takes bytes in and closes queue at the end of the input.
func (p *pipe) read(from *net.TCPConn, s *state, queue chan<- chunk) {
	defer close(queue)
	var last time.Time
	for {
		buf := make([]byte, chunkSize)
		n, err := from.Read(buf)
		if n > 0 {
			c, _ := s.get()
			due := time.Now().Add(c.latency())
			if due.Before(last) {
				due = last
			}
			last = due
			select {
			case queue <- chunk{buf[:n], due}:
			case <-p.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write sends each chunk when it is due and the link lets it pass. A failed write
// ends the connection; the end of the queue is passed on as a half close.
func (p *pipe) write(to *net.TCPConn, s *state, queue <-chan chunk) {
	for c := range queue {
		if !p.wait(time.Until(c.due)) {
			return
		}
		now, ok := s.pass(p.done)
		if !ok {
			return
		}
		if now.BytesPerSecond > 0 && !p.wait(time.Duration(len(c.data))*time.Second/time.Duration(now.BytesPerSecond)) {
			return
		}
		if _, err := to.Write(c.data); err != nil {
			p.close(true)
			return
		}
	}
	// A cut link does not tell the other end that this one has gone.
	if _, ok := s.pass(p.done); ok {
		_ = to.CloseWrite()
	}
}

// wait reports whether d passed before the connection was closed.
func (p *pipe) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.done:
		return false
	}
}
