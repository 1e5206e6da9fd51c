package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors of one holder. The next one may do better.
var (
	errAbsent  = errors.New("does not hold the group")
	errBehind  = errors.New("has not got that far")
	errStrange = errors.New("answered with what is no answer")
)

// Client asks other nodes. It is safe for concurrent use.
type Client struct {
	cfg  Config
	deps Deps

	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	// mu protects the fields below.
	mu     sync.Mutex
	closed bool
	// served is the holder of each group that answered last, failed when one failed.
	served map[uint32]string
	failed map[heldBy]time.Time
	// feeds has one for each group that is followed, opening a token while one is changed.
	feeds   map[uint32]*feed
	opening map[uint32]chan struct{}
}

// heldBy is a group at one of its holders.
type heldBy struct {
	group uint32
	node  string
}

// NewClient returns a Client. The caller closes it.
func NewClient(cfg Config, deps Deps) *Client {
	c := &Client{
		cfg: cfg, deps: deps, served: map[uint32]string{}, failed: map[heldBy]time.Time{},
		feeds: map[uint32]*feed{}, opening: map[uint32]chan struct{}{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends the following and waits for it. Reads end with their contexts.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.work.Wait()
}

// order is the holders of group in the order in which they are asked: those that failed a
// short time ago at the end, the one that answered last at the beginning.
func (c *Client) order(group uint32) []string {
	list := slices.Clone(c.deps.Holders(group))
	c.mu.Lock()
	defer c.mu.Unlock()
	rank := func(node string) int {
		failed, ever := c.failed[heldBy{group, node}]
		switch {
		case ever && time.Since(failed) < c.cfg.Forgive:
			return 2
		case c.served[group] == node:
			return 0
		default:
			return 1
		}
	}
	slices.SortStableFunc(list, func(a, b string) int { return rank(a) - rank(b) })
	return list[:min(len(list), c.cfg.Tries)]
}

// note remembers how a holder did.
func (c *Client) note(group uint32, node string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ok {
		c.served[group] = node
		delete(c.failed, heldBy{group, node})
		return
	}
	for place, when := range c.failed { // of nodes that are gone, too
		if time.Since(when) >= c.cfg.Forgive {
			delete(c.failed, place)
		}
	}
	c.failed[heldBy{group, node}] = time.Now()
}

// try calls ask with one holder of group after the other, each for some time, until one
// answers. Errors: ErrUnanswered with what every one of them did, or the end of ctx.
func (c *Client) try(ctx context.Context, group uint32, timeout time.Duration, ask func(ctx context.Context, node string) error) error {
	var faults []string
	for _, node := range c.order(group) {
		one, cancel := context.WithTimeout(ctx, timeout)
		err := ask(one, node)
		cancel()
		if err == nil {
			c.note(group, node, true)
			return nil
		}
		faults = append(faults, fmt.Sprintf("%s: %v", node, err))
		if !errors.Is(ctx.Err(), context.Canceled) {
			c.note(group, node, false)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: group %d: %w (%s)", ErrUnanswered, group, ctx.Err(), strings.Join(faults, "; "))
		}
	}
	if len(faults) == 0 {
		return fmt.Errorf("%w: group %d: no holder is known", ErrUnanswered, group)
	}
	return fmt.Errorf("%w: group %d: %s", ErrUnanswered, group, strings.Join(faults, "; "))
}

// statusOf is the error that the first byte of a reply stands for, nil for replyDone.
func statusOf(reply []byte) error {
	switch {
	case len(reply) == 0:
		return errStrange
	case reply[0] == replyDone:
		return nil
	case reply[0] == replyAbsent:
		return errAbsent
	case reply[0] == replyBehind:
		return errBehind
	default:
		return errStrange
	}
}
