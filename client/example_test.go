package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/quorate/quorate/client"
)

var (
	ctx = context.Background()
	c   *client.Client
)

func ExampleOpen() {
	c, err := client.Open(ctx, client.Config{
		Seeds: []string{"n1.example.org:8080", "n2.example.org:8080", "n3.example.org:8080"},
		TokenSource: func(context.Context) (string, error) {
			return "a token signed with JWT_SECRET", nil
		},
		OnStatus: func(s client.Status) { log.Println("connected:", s.Connected, s.URL, s.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

func ExampleMap_Put() {
	type todo struct {
		Title string `json:"title"`
		Done  bool   `json:"done"`
	}
	todos := c.Map("todos")
	ack, err := todos.Put(ctx, "t1", todo{Title: "write it down"})
	var refusal *client.RefusedError
	switch {
	case err == nil:
		fmt.Println("stored at", ack.Level)
	case errors.As(err, &refusal):
		fmt.Println("never stored:", refusal.Reason)
	case errors.Is(err, client.ErrUnknown):
		record, err := todos.Get(ctx, "t1", client.Linearizable())
		fmt.Println("it may have been stored:", record.Value, err)
	}
}

func ExampleMap_Get() {
	record, err := c.Map("todos").Get(ctx, "t1")
	if errors.Is(err, client.ErrNotFound) {
		return
	}
	var todo struct{ Title string }
	if err := record.Value.Decode(&todo); err != nil {
		log.Fatal(err)
	}
}

func ExampleMap_Follow() {
	follow, err := c.Map("todos").Follow(ctx, client.Query{})
	if err != nil {
		log.Fatal(err)
	}
	defer follow.Close()
	rows := map[string]client.Value{}
	for change, err := range follow.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch change.Type {
		case client.Snapshot: // the first one, and whenever something may have been missed
			clear(rows)
			for _, r := range change.Records {
				rows[r.Key] = r.Value
			}
		case client.Leave:
			delete(rows, change.Key)
		default:
			rows[change.Key] = change.Value
		}
	}
}

func ExampleClient_Lock() {
	l, err := c.Lock(ctx, "jobs/nightly", client.WithLease(20*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if err := l.Release(ctx); err != nil {
			log.Print(err)
		}
	}()
	work, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.Lost():
			cancel()
		case <-work.Done():
		}
	}()
	// Once a later holder has written, this is refused, whatever this process believes.
	_, err = c.Map("reports").Put(work, "nightly", "done", client.Fenced(l.Fence()))
	fmt.Println(err)
}

func ExampleCounter_Add() {
	ticket, err := c.Counter("tickets").Add(ctx, 1) // no two callers get the same number
	fmt.Println(ticket, err)
}

func ExampleClient_Subscribe() {
	messages, err := c.Subscribe(ctx, "ride/42")
	if err != nil {
		log.Fatal(err)
	}
	defer messages.Close()
	for m, err := range messages.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		if m.Gap {
			fmt.Println("messages may be missing here")
			continue
		}
		fmt.Println(m.Publisher, m.Data)
	}
}

func ExampleSet_Add() {
	labels := c.Set("labels")
	tag, _, err := labels.Add(ctx, "t1", "urgent")
	if err != nil {
		log.Fatal(err)
	}
	elements, err := labels.Get(ctx, "t1")
	fmt.Println(elements, err)
	_, err = labels.RemoveTag(ctx, "t1", tag)
	fmt.Println(err)
}
