package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/protocol"
)

// row is a record as it is printed.
type row struct {
	Key   string       `json:"key"`
	Value client.Value `json:"value"`
}

func rowsOf(records []client.Record) []row {
	rows := make([]row, len(records))
	for i, r := range records {
		rows[i] = row{r.Key, r.Value}
	}
	return rows
}

// print writes v as one line of JSON.
func (p *process) print(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintf(p.stdout, "%s\n", line)
	return err
}

func runGet(p *process, args []string) int {
	d := p.newDataCommand("get [flags] MAP [KEY]")
	linearizable := d.flags.Bool("linearizable", false, "show everything that was acknowledged to anyone before")
	args, ok, code := d.parse(args, 1, 2)
	if !ok {
		return code
	}
	var opts []client.ReadOption
	if *linearizable {
		opts = append(opts, client.Linearizable())
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		m := c.Map(args[0])
		if len(args) == 2 {
			r, err := m.Get(ctx, args[1], opts...)
			if err != nil {
				return err
			}
			return p.print(r.Value)
		}
		return p.printMap(ctx, m, opts)
	})
}

// printMap prints all records of a map.
func (p *process) printMap(ctx context.Context, m *client.Map, opts []client.ReadOption) error {
	res, err := m.Find(ctx, client.Query{}, opts...)
	if err != nil {
		return err
	}
	for _, r := range rowsOf(res.Records) {
		if err := p.print(r); err != nil {
			return err
		}
	}
	if res.More {
		return errors.New("the map has more records than one answer holds")
	}
	return nil
}

func runPut(p *process, args []string) int {
	d := p.newDataCommand("put [flags] MAP KEY VALUE, or put --remove [flags] MAP KEY")
	remove := d.flags.Bool("remove", false, "remove the record")
	level := d.flags.String("level", "PERSISTED", "what to wait for: MEMORY, APPLIED, REPLICATED or PERSISTED")
	ttl := d.flags.Duration("ttl", 0, "hide the record after this time (default never)")
	stamp := d.flags.Bool("server-stamp", false, "have the server stamp the write when it is ordered")
	fence := d.flags.String("fence", "", "`LOCK=TOKEN` that guards the write; the token is optional below 'quorate lock'")
	args, ok, code := d.parse(args, 2, 3)
	if !ok {
		return code
	}
	if *remove != (len(args) == 2) {
		return p.usageError("usage: quorate " + d.usage)
	}
	opts, err := p.putOptions(*level, *ttl, *stamp, *fence)
	if err != nil {
		return p.usageError("put: " + err.Error())
	}
	var value client.Value
	if !*remove {
		if value, err = client.EncodeJSON([]byte(args[2])); err != nil {
			return p.usageError("put: VALUE is not JSON: " + err.Error())
		}
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		write := func() (client.Ack, error) { return c.Map(args[0]).Put(ctx, args[1], value, opts...) }
		if *remove {
			write = func() (client.Ack, error) { return c.Map(args[0]).Remove(ctx, args[1], opts...) }
		}
		ack, err := write()
		if err != nil {
			return err
		}
		return p.print(map[string]string{"level": ack.Level.String()})
	})
}

func (p *process) putOptions(level string, ttl time.Duration, stamp bool, fence string) ([]client.WriteOption, error) {
	at, err := protocol.ParseWriteConcern(level)
	if err != nil || at < client.Memory {
		return nil, fmt.Errorf("unknown level %q", level)
	}
	opts := []client.WriteOption{client.AtLevel(at), client.WithTTL(ttl)}
	if stamp {
		opts = append(opts, client.ServerStamp())
	}
	if fence != "" {
		name, text, given := strings.Cut(fence, "=")
		if !given {
			if text = p.getenv(lockTokenVariable); text == "" {
				return nil, fmt.Errorf("--fence %s names no token: outside 'quorate lock' it is --fence LOCK=TOKEN", fence)
			}
		}
		token, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("token %q of the fence is not a number", text)
		}
		opts = append(opts, client.Fenced(client.Fence{Lock: name, Token: token}))
	}
	return opts, nil
}

// shownChange is a change of a map as it is printed.
type shownChange struct {
	Type    client.ChangeType `json:"type"`
	Key     string            `json:"key,omitempty"`
	Value   client.Value      `json:"value,omitempty"`
	Records []row             `json:"records,omitzero"`
	More    bool              `json:"more,omitempty"`
}

func runWatch(p *process, args []string) int {
	d := p.newDataCommand("watch [flags] MAP")
	args, ok, code := d.parse(args, 1, 1)
	if !ok {
		return code
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		follow, err := c.Map(args[0]).Follow(ctx, client.Query{})
		if err != nil {
			return err
		}
		for change, err := range follow.All(ctx) {
			if err != nil {
				return p.streamEnd(ctx, err)
			}
			shown := shownChange{Type: change.Type, Key: change.Key, Value: change.Value, More: change.More}
			if change.Type == client.Snapshot {
				shown.Records = rowsOf(change.Records)
			}
			if err := p.print(shown); err != nil {
				return err
			}
		}
		return nil
	})
}

// streamEnd is the error of a stream that ended: none if a signal ended it.
func (p *process) streamEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
