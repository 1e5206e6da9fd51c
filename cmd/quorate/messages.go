package main

import (
	"context"
	"strconv"
	"time"

	"github.com/quorate/quorate/client"
)

func runPublish(p *process, args []string) int {
	d := p.newDataCommand("publish [flags] TOPIC MESSAGE")
	args, ok, code := d.parse(args, 2, 2)
	if !ok {
		return code
	}
	data, err := client.EncodeJSON([]byte(args[1]))
	if err != nil {
		return p.usageError("publish: MESSAGE is not JSON: " + err.Error())
	}
	return d.run(func(ctx context.Context, c *client.Client) error { return c.Publish(ctx, args[0], data) })
}

// shownMessage is a message of a topic as it is printed.
type shownMessage struct {
	Gap       bool         `json:"gap,omitempty"`
	Data      client.Value `json:"data,omitempty"`
	Publisher string       `json:"publisher,omitempty"`
	Time      *time.Time   `json:"time,omitempty"`
}

func runSubscribe(p *process, args []string) int {
	d := p.newDataCommand("subscribe [flags] TOPIC")
	args, ok, code := d.parse(args, 1, 1)
	if !ok {
		return code
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		messages, err := c.Subscribe(ctx, args[0])
		if err != nil {
			return err
		}
		for m, err := range messages.All(ctx) {
			if err != nil {
				return p.streamEnd(ctx, err)
			}
			shown := shownMessage{Gap: m.Gap, Data: m.Data, Publisher: m.Publisher}
			if at := m.Time.UTC(); !m.Gap {
				shown.Time = &at
			}
			if err := p.print(shown); err != nil {
				return err
			}
		}
		return nil
	})
}

func runCounter(p *process, args []string) int {
	d := p.newDataCommand("counter [flags] NAME [add NUMBER]")
	args, ok, code := d.parse(args, 1, 3)
	if !ok {
		return code
	}
	delta := 0.0
	if len(args) > 1 {
		var err error
		if len(args) == 3 {
			delta, err = strconv.ParseFloat(args[2], 64)
		}
		if len(args) == 2 || args[1] != "add" || err != nil {
			return p.usageError("usage: quorate " + d.usage)
		}
	}
	return d.run(func(ctx context.Context, c *client.Client) error {
		// Nothing is added to read it, so that what is shown is not older than any answer.
		total, err := c.Counter(args[0]).Add(ctx, delta)
		if err != nil {
			return err
		}
		return p.print(total)
	})
}
