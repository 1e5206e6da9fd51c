package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/chaos/check"
)

// through has a client repeat step over the Go client of the project, which keeps its
// connections and repeats its requests by itself, until busy ends. Its operations are
// judged like all others.
func (l *load) through(busy context.Context, step func(ctx context.Context, c *caller, api *client.Client)) {
	c := l.caller(nil)
	l.round.busy.Go(func() {
		for busy.Err() == nil {
			api, err := client.Open(busy, client.Config{
				Seeds: c.seeds(), ClientID: c.name, OperationTimeout: insistTime, OnStatus: c.lines.changed,
			})
			if err != nil {
				c.rest(busy, time.Second)
				continue
			}
			for range 200 {
				step(busy, c, api)
				c.rest(busy, l.round.run.cfg.Pause)
			}
			_ = api.Close() // what it had begun is decided already
		}
	})
}

// seeds are all nodes, in some order.
func (c *caller) seeds() []string {
	var urls []string
	for _, n := range c.load.round.cluster.Nodes() {
		urls = append(urls, n.URL())
	}
	c.rng.Shuffle(len(urls), func(i, j int) { urls[i], urls[j] = urls[j], urls[i] })
	return urls
}

// finish notes an operation that ended with err. Only one that was begun is worth a note.
func (c *caller) finish(op check.Op, err error) check.Op {
	switch {
	case err == nil:
		op.Outcome = check.OK
	case errors.Is(err, client.ErrRefused):
		op.Outcome, op.Refused = check.Failed, true
	case errors.Is(err, client.ErrUnavailable), errors.Is(err, client.ErrClosed):
		op.Outcome = check.Failed
	default:
		op.Outcome = check.Unknown
	}
	op.Node = check.AnyNode
	return c.end(op)
}

// fetch is a linearizable read of a whole map.
func (c *caller) fetch(ctx context.Context, api *client.Client, mapName string) {
	op := c.begin(check.Read, "", "")
	result, err := api.Map(mapName).Find(ctx, client.Query{}, client.Linearizable())
	if err != nil || result.More {
		return
	}
	op.Rows = make(map[string]string, len(result.Records))
	for _, r := range result.Records {
		op.Rows[r.Key] = text(r.Value)
	}
	c.finish(op, nil)
}

// text is the text that a value holds.
func text(v client.Value) (s string) {
	if v.Decode(&s) != nil {
		return "not a text: " + v.String()
	}
	return s
}

// put writes a text, ordered by the server.
func (c *caller) put(ctx context.Context, api *client.Client, mapName string, op check.Op, opts ...client.WriteOption) {
	opts = append(opts, client.ServerStamp())
	var err error
	if op.Value == "" {
		_, err = api.Map(mapName).Remove(ctx, op.Key, opts...)
	} else {
		_, err = api.Map(mapName).Put(ctx, op.Key, op.Value, opts...)
	}
	c.finish(op, err)
}
