package ws

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/quorate/quorate/partitions/notice"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/transport/policy"
)

// counterFeeds shows the counters that connections follow to all of them. A counter is
// read and encoded once for a change, however many follow it; changes that come together
// are shown together. The zero value is ready.
type counterFeeds struct {
	// mu protects feeds and the sets in them.
	mu    sync.Mutex
	feeds map[string]*counterFeed
}

// feedRetry is when a change of a counter is shown again that could not be read.
const feedRetry = time.Second

// counterFeed is one counter. It exists while a connection follows it.
type counterFeed struct {
	name  string
	watch *notice.Watcher
	// conns are who follows it, each with the state that it was answered with, nil if it was
	// shown what the feed has shown last.
	conns map[*conn]*protocol.CounterState
	over  chan struct{}
}

// reserveCounter keeps a place for a counter among those that c follows. It returns false if c
// follows as many as it may.
func (s *Server) reserveCounter(c *conn, name string) bool {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, already := c.counters[name]; already {
		return true
	}
	if c.ctx.Err() != nil || len(c.counters) >= s.cfg.MaxCounters {
		return false
	}
	if c.counters == nil {
		c.counters = map[string]struct{}{}
	}
	c.counters[name] = struct{}{}
	return true
}

// returnCounter gives back a reserved place, unless c follows the counter.
func (s *Server) returnCounter(c *conn, name string) {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	if feed := f.feeds[name]; feed != nil {
		if _, follows := feed.conns[c]; follows {
			return
		}
	}
	delete(c.counters, name)
}

// follow shows the changes of a counter from now on to c, which has a place for it. answered
// is the state that c was answered with, if it was: what changed since is shown, too.
func (s *Server) follow(c *conn, name string, answered *protocol.CounterState) {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, reserved := c.counters[name]; !reserved {
		return // the connection has ended meanwhile
	}
	feed := f.feeds[name]
	if feed == nil {
		feed = &counterFeed{name: name, watch: c.backend.WatchCounter(name), conns: map[*conn]*protocol.CounterState{}, over: make(chan struct{})}
		if f.feeds == nil {
			f.feeds = map[string]*counterFeed{}
		}
		f.feeds[name] = feed
		s.background.Go(func() { s.feedCounter(c.backend, feed) })
	}
	if answered != nil {
		feed.conns[c] = answered
		feed.watch.Wake()
	} else if _, follows := feed.conns[c]; !follows {
		feed.conns[c] = nil
	}
}

// unfollow has c follow a counter no more.
func (s *Server) unfollow(c *conn, name string) {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, reserved := c.counters[name]; reserved {
		f.leave(c, name)
		delete(c.counters, name)
	}
}

// unfollowAll ends all that c follows.
func (s *Server) unfollowAll(c *conn) {
	f := &s.counters
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range c.counters {
		f.leave(c, name)
	}
	c.counters = nil
}

// leave takes c out of the feed of a counter, if it is in it, and ends the feed with the last
// one; mu is held.
func (f *counterFeeds) leave(c *conn, name string) {
	feed := f.feeds[name]
	if feed == nil {
		return // the place was only reserved
	}
	if delete(feed.conns, c); len(feed.conns) == 0 {
		feed.watch.Close()
		close(feed.over)
		delete(f.feeds, name)
	}
}

// feedCounter shows each change until nobody follows any more.
func (s *Server) feedCounter(b Backend, feed *counterFeed) {
	var shown protocol.CounterState
	for {
		select {
		case <-feed.watch.C:
		case <-feed.over:
			return
		case <-s.base.Done():
			return
		}
		ctx, cancel := context.WithTimeout(s.base, s.cfg.OperationTimeout)
		state, err := b.Counter(ctx, s.reader, feed.name)
		cancel()
		if err != nil {
			s.log.Debug("counter could not be shown", "counter", feed.name, "err", err)
			select {
			case <-time.After(feedRetry):
				feed.watch.Wake()
			case <-feed.over:
			case <-s.base.Done():
			}
			continue
		}
		s.showAll(feed, state, !reflect.DeepEqual(state, shown))
		shown = state
	}
}

// showAll shows the state of a counter to who has not seen it; news says that it is another
// than the feed has shown last.
func (s *Server) showAll(feed *counterFeed, state protocol.CounterState, news bool) {
	s.counters.mu.Lock()
	conns := make([]*conn, 0, len(feed.conns))
	for c, answered := range feed.conns {
		behind := news
		if answered != nil {
			behind, feed.conns[c] = !reflect.DeepEqual(state, *answered), nil
		}
		if behind && c.may(policy.Read, policy.Counter, feed.name) {
			conns = append(conns, c)
		}
	}
	s.counters.mu.Unlock()
	if len(conns) == 0 {
		return
	}
	frame, err := protocol.Append(nil, &protocol.CounterUpdate{Name: feed.name, State: state})
	if err != nil {
		s.log.Error("encode counter", "err", err)
		return
	}
	for _, c := range conns {
		c.push(protocol.KindCounterUpdate, frame)
	}
}
