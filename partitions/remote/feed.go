package remote

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/codec"
)

// errEnded: the feed is over.
var errEnded = errors.New("the feed has ended")

// feed is the following of one group at one holder.
type feed struct {
	client     *Client
	group      uint32
	holder, id string

	// mu protects the fields below.
	mu       sync.Mutex
	over     bool
	subjects map[Subject]followed
	// edits numbers the changes of subjects, which may overtake each other on their way.
	edits uint64
	// delivered is the log index of the latest change that was.
	delivered uint64
}

// followed says from which log index on all changes of a subject come, once ready.
type followed struct {
	ready bool
	from  uint64
}

// follow sees to it that the changes of s in group are delivered, and returns a log index
// behind which all that are delivered from now on lie.
func (c *Client) follow(ctx context.Context, group uint32, s Subject) (from uint64, err error) {
	leave, err := c.enter(ctx, group)
	if err != nil {
		return 0, err
	}
	defer leave()
	c.mu.Lock()
	f := c.feeds[group]
	c.mu.Unlock()
	if f != nil {
		if from, ready := f.covers(s); ready {
			return from, nil
		}
		one, cancel := context.WithTimeout(ctx, c.cfg.TryTimeout)
		from, err = f.add(one, s)
		cancel()
		if err == nil {
			return from, nil
		}
		f.end(true)
		if !errors.Is(err, errEnded) {
			c.note(group, f.holder, false)
		}
	}
	err = c.try(ctx, group, c.cfg.TryTimeout, func(ctx context.Context, node string) error {
		f = &feed{client: c, group: group, holder: node, id: rand.Text(), subjects: map[Subject]followed{}}
		from, err = f.add(ctx, s)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("follow: %w", err)
	}
	return from, c.begin(f)
}

// enter waits until nobody else changes what is followed of a group.
func (c *Client) enter(ctx context.Context, group uint32) (leave func(), err error) {
	c.mu.Lock()
	token := c.opening[group]
	if token == nil {
		token = make(chan struct{}, 1)
		c.opening[group] = token
	}
	c.mu.Unlock()
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: group %d: %w", ErrUnanswered, group, ctx.Err())
	}
}

// begin delivers what comes from f from now on.
func (c *Client) begin(f *feed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return fmt.Errorf("%w: group %d: %w", ErrUnanswered, f.group, errEnded)
	}
	c.feeds[f.group] = f
	c.work.Go(f.run)
	return nil
}

// covers reports whether all changes of s are delivered, and from where on: what was
// delivered already comes to nobody who begins to follow now, and the next read may be of
// another holder, which is not that far.
func (f *feed) covers(s Subject) (from uint64, ready bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry := f.subjects[s]
	return max(entry.from, f.delivered), entry.ready && !f.over
}

// deliver gives away what came, in this order: whoever is told of delivered may miss it.
func (f *feed) deliver(changes []fsm.Change) {
	last := changes[len(changes)-1].Index
	f.mu.Lock()
	f.delivered = max(f.delivered, last)
	f.mu.Unlock()
	f.client.deps.Deliver(&fsm.Changes{Group: f.group, Index: last, List: changes})
}

// add asks the holder for the changes of one subject more.
func (f *feed) add(ctx context.Context, s Subject) (from uint64, err error) {
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return 0, errEnded
	}
	f.edits++
	edit := f.edits
	f.subjects[s] = followed{} // it keeps the feed from ending for want of subjects
	f.mu.Unlock()
	reply, err := f.client.deps.Follow(ctx, f.holder, appendSubject(f.request(opAdd, edit), s))
	if err != nil {
		return 0, err
	}
	if err := statusOf(reply); err != nil {
		return 0, err
	}
	answer := codec.NewReader(reply[1:])
	from = answer.Uvarint()
	if err := answer.End(); err != nil {
		return 0, fmt.Errorf("%w: %w", errStrange, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subjects[s] = followed{ready: true, from: from}
	return from, nil
}

// request begins a request about the feed.
func (f *feed) request(op byte, number uint64) []byte {
	b := binary.AppendUvarint([]byte{op}, uint64(f.group))
	return binary.AppendUvarint(codec.AppendText(b, f.id), number)
}

// drop is a subject that nobody wants any more, and the number of that change.
type drop struct {
	edit    uint64
	subject Subject
}

// trim forgets the subjects that nobody wants, and ends the feed if none are left. A
// subject is wanted before it is asked for, so none is forgotten that somebody counts on.
func (f *feed) trim() (drops []drop, alive bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s, entry := range f.subjects {
		if entry.ready && !f.client.deps.Followed(s) {
			delete(f.subjects, s)
			f.edits++
			drops = append(drops, drop{f.edits, s})
		}
	}
	f.over = f.over || len(f.subjects) == 0
	return drops, !f.over
}

// run delivers what comes until nobody wants it, or it ceases to come. Then it tells
// everybody that something is missing.
func (f *feed) run() {
	c := f.client
	for c.ctx.Err() == nil {
		drops, alive := f.trim()
		if !alive {
			break
		}
		changes, err := f.next(drops)
		if err != nil && c.ctx.Err() == nil {
			c.deps.Logger.Debug("changes of a group are not known for a moment", "group", f.group, "holder", f.holder, "err", err)
			c.note(f.group, f.holder, false)
		}
		if err != nil || c.deps.Held(f.group) {
			f.end(true)
			return
		}
		if len(changes) > 0 {
			f.deliver(changes)
		}
	}
	f.end(false)
}

// next waits for the next changes, for as long as a holder that lives lets pass.
func (f *feed) next(drops []drop) ([]fsm.Change, error) {
	c := f.client
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.Heartbeat+c.cfg.TryTimeout)
	defer cancel()
	body := binary.AppendUvarint(f.request(opNext, uint64(c.cfg.Heartbeat.Milliseconds())), uint64(len(drops)))
	for _, d := range drops {
		body = appendSubject(binary.AppendUvarint(body, d.edit), d.subject)
	}
	reply, err := c.deps.Follow(ctx, f.holder, body)
	if err != nil {
		return nil, err
	}
	if err := statusOf(reply); err != nil {
		return nil, err
	}
	answer := codec.NewReader(reply[1:])
	var list []fsm.Change
	for answer.Err() == nil && answer.Len() > 0 {
		list = append(list, takeChange(&answer))
	}
	if err := answer.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", errStrange, err)
	}
	return list, nil
}

// end ends the feed, once; lost says that there may be changes which it did not bring. A
// new one can begin before everybody hears of that.
func (f *feed) end(lost bool) {
	f.mu.Lock()
	first := !f.over
	f.over = true
	f.mu.Unlock()
	c := f.client
	c.mu.Lock()
	if c.feeds[f.group] == f {
		delete(c.feeds, f.group)
	}
	c.mu.Unlock()
	if lost && first {
		c.deps.Deliver(&fsm.Changes{Group: f.group, Reset: true})
	}
}
