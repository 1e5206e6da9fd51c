package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/harness"
)

// open connects a client to nodes, with a token if the cluster has a secret.
func open(t *testing.T, cfg client.Config, nodes ...*harness.Node) *client.Client {
	t.Helper()
	for _, n := range nodes {
		cfg.Seeds = append(cfg.Seeds, n.URL())
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Open(ctx, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func signed(t *testing.T, subject string) string {
	t.Helper()
	token, err := harness.Token(secret, subject)
	require.NoError(t, err)
	return token
}

// TestGoClientAgainstOneNode goes through what the client offers.
func TestGoClientAgainstOneNode(t *testing.T) {
	cfg := config()
	cfg.Secret = secret
	n := harness.Start(t, cfg, 1).Nodes()[0]
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	c := open(t, client.Config{Token: signed(t, "ada")}, n)
	other := open(t, client.Config{TokenSource: func(context.Context) (string, error) { return harness.Token(secret, "bob") }}, n)

	_, err := client.Open(ctx, client.Config{Seeds: []string{n.URL()}, Token: "forged"})
	require.ErrorIs(t, err, client.ErrRefused)
	_, err = client.Open(ctx, client.Config{Seeds: []string{n.URL()}})
	require.ErrorIs(t, err, client.ErrRefused, "a token is wanted")

	t.Run("maps", func(t *testing.T) { useMaps(ctx, t, c, other) })
	t.Run("sets", func(t *testing.T) { useSets(ctx, t, c, other) })
	t.Run("counters", func(t *testing.T) { useCounters(ctx, t, c, other) })
	t.Run("locks", func(t *testing.T) { useLocks(ctx, t, c, other) })
	t.Run("topics", func(t *testing.T) { useTopics(ctx, t, c, other) })
}

func useMaps(ctx context.Context, t *testing.T, c, other *client.Client) {
	type todo struct {
		Title string `json:"title"`
		Done  bool   `json:"done"`
	}
	m := c.Map("todos")
	_, err := m.Get(ctx, "a")
	require.ErrorIs(t, err, client.ErrNotFound)
	follow, err := other.Map("todos").Follow(ctx, client.Query{})
	require.NoError(t, err)
	defer follow.Close()
	first, err := follow.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, client.Snapshot, first.Type)
	require.Empty(t, first.Records)

	ack, err := m.Put(ctx, "a", todo{Title: "write"})
	require.NoError(t, err)
	require.Equal(t, client.Persisted, ack.Level)
	require.False(t, ack.Timestamp.IsZero())
	for _, level := range []client.Level{client.Memory, client.Applied, client.Replicated} {
		ack, err = m.Put(ctx, "a", todo{Title: "write", Done: true}, client.AtLevel(level))
		require.NoError(t, err)
		require.GreaterOrEqual(t, ack.Level, level)
	}
	_, err = m.Put(ctx, "b", 7, client.ServerStamp(), client.WithTTL(time.Hour))
	require.NoError(t, err)
	record, err := other.Map("todos").Get(ctx, "a", client.Linearizable())
	require.NoError(t, err)
	var got todo
	require.NoError(t, record.Value.Decode(&got))
	require.Equal(t, todo{Title: "write", Done: true}, got)
	all, err := m.Find(ctx, client.Query{})
	require.NoError(t, err)
	require.Len(t, all.Records, 2)
	_, err = m.Remove(ctx, "a")
	require.NoError(t, err)
	_, err = m.Get(ctx, "a")
	require.ErrorIs(t, err, client.ErrNotFound)

	_, err = c.Map("$sys/x").Put(ctx, "a", 1)
	var refusal *client.RefusedError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, 403, refusal.Code)
	_, err = c.Map("$sys/x").Find(ctx, client.Query{})
	require.ErrorIs(t, err, client.ErrRefused)

	rows, left := map[string]string{}, false
	for change, err := range follow.All(ctx) { // in order for each key, not between them
		require.NoError(t, err)
		if change.Type == client.Leave {
			left = true
		} else {
			rows[change.Key] = change.Value.String()
		}
		if left && rows["b"] != "" {
			break
		}
	}
	require.JSONEq(t, `{"title":"write","done":true}`, rows["a"])
	require.Equal(t, "7", rows["b"])
}

func useSets(ctx context.Context, t *testing.T, c, other *client.Client) {
	labels := c.Set("labels")
	tag, _, err := labels.Add(ctx, "t1", "red")
	require.NoError(t, err)
	_, _, err = other.Set("labels").Add(ctx, "t1", "red")
	require.NoError(t, err)
	_, _, err = labels.Add(ctx, "t1", "blue")
	require.NoError(t, err)
	elements, err := labels.Get(ctx, "t1")
	require.NoError(t, err)
	require.Len(t, elements, 3)
	_, err = labels.RemoveTag(ctx, "t1", tag)
	require.NoError(t, err)
	removed, err := labels.Remove(ctx, "t1", "red")
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	elements, err = labels.Get(ctx, "t1")
	require.NoError(t, err)
	require.Len(t, elements, 1)
	require.Equal(t, `"blue"`, elements[0].Value.String())
	elements, err = labels.Get(ctx, "no such key")
	require.NoError(t, err)
	require.Empty(t, elements)
}

func useCounters(ctx context.Context, t *testing.T, c, other *client.Client) {
	watch, err := other.Counter("likes").Watch(ctx)
	require.NoError(t, err)
	defer watch.Close()
	for i := range 5 {
		total, err := c.Counter("likes").Add(ctx, 2)
		require.NoError(t, err)
		require.InDelta(t, 2*(i+1), total, 0)
	}
	total, err := other.Counter("likes").Add(ctx, -1)
	require.NoError(t, err)
	require.InDelta(t, 9, total, 0)
	total, err = c.Counter("likes").Add(ctx, 0)
	require.NoError(t, err)
	require.InDelta(t, 9, total, 0)
	for total, err := range watch.All(ctx) {
		require.NoError(t, err)
		if total == 9 {
			break
		}
	}
	total, err = other.Counter("likes").Value(ctx)
	require.NoError(t, err)
	require.InDelta(t, 9, total, 0)
}

func useLocks(ctx context.Context, t *testing.T, c, other *client.Client) {
	first, err := c.Lock(ctx, "jobs")
	require.NoError(t, err)
	require.True(t, first.Held())
	_, err = other.TryLock(ctx, "jobs")
	require.ErrorIs(t, err, client.ErrNotGranted)
	_, err = c.TryLock(ctx, "jobs")
	require.ErrorIs(t, err, client.ErrNotGranted, "callers of one client exclude each other")
	_, err = c.Lock(ctx, "not a name")
	require.ErrorIs(t, err, client.ErrRefused)

	type grant struct {
		lock *client.Lock
		err  error
	}
	next := make(chan grant, 1)
	go func() {
		l, err := other.Lock(ctx, "jobs")
		next <- grant{l, err}
	}()
	_, err = c.Map("guarded").Put(ctx, "k", 1, client.Fenced(first.Fence()))
	require.NoError(t, err)
	require.NoError(t, first.Release(ctx))
	require.ErrorIs(t, first.Release(ctx), client.ErrLockLost)
	second := <-next
	require.NoError(t, second.err)
	require.Greater(t, second.lock.Token(), first.Token())
	_, err = other.Map("guarded").Put(ctx, "k", 2, client.Fenced(second.lock.Fence()))
	require.NoError(t, err)
	_, err = c.Map("guarded").Put(ctx, "k", 3, client.Fenced(first.Fence()))
	require.ErrorIs(t, err, client.ErrRefused)

	// A request that is given up does not keep the lock from others, nor take it.
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = c.Lock(brief, "jobs")
	require.ErrorIs(t, err, client.ErrNotGranted)
	require.NoError(t, second.lock.Release(ctx))
	third, err := c.Lock(ctx, "jobs")
	require.NoError(t, err)
	require.NoError(t, third.Release(ctx))
}

func useTopics(ctx context.Context, t *testing.T, c, other *client.Client) {
	require.ErrorIs(t, c.Publish(ctx, "not a topic", 1), client.ErrRefused)
	_, err := c.Subscribe(ctx, "not a topic")
	require.ErrorIs(t, err, client.ErrRefused)
	messages, err := other.Subscribe(ctx, "ride/42")
	require.NoError(t, err)
	defer messages.Close()
	for i := range 50 {
		require.NoError(t, c.Publish(ctx, "ride/42", i))
	}
	for i := range 50 {
		m, err := messages.Next(ctx)
		require.NoError(t, err)
		require.False(t, m.Gap)
		require.Equal(t, "ada", m.Publisher)
		var got int
		require.NoError(t, m.Data.Decode(&got))
		require.Equal(t, i, got)
	}
}

// TestGoClientWhileNodesComeAndGo has clients of all nodes write, count, lock and follow while
// one node is killed and one drained, and holds that what they were told is true.
func TestGoClientWhileNodesComeAndGo(t *testing.T) {
	c := harness.Start(t, config(), 3)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &work{t: t, written: map[string]string{}, unclear: map[string]bool{}}
	follower := open(t, client.Config{}, c.Nodes()...)
	follow, err := follower.Map("work").Follow(ctx, client.Query{})
	require.NoError(t, err)
	guarded, err := follower.Map("guarded").Follow(ctx, client.Query{})
	require.NoError(t, err)
	var workers sync.WaitGroup
	for i := range 3 {
		user := open(t, client.Config{}, c.Nodes()...)
		workers.Go(func() { w.put(ctx, user, i) })
		workers.Go(func() { w.count(ctx, user) })
		workers.Go(func() { w.guard(ctx, user) })
	}
	progress := func(what string) {
		from := w.steps()
		harness.Eventually(t, 2*patience, what, func() error {
			if got := w.steps() - from; got < 300 {
				return fmt.Errorf("%d steps", got)
			}
			return nil
		})
	}
	progress("work before the faults")
	c.Node("n1").Kill()
	progress("work without n1")
	c.Node("n1").Start()
	c.AwaitReady()
	code, _ := c.Node("n2").Stop()
	require.Zero(t, code)
	progress("work without n2")
	c.Node("n2").Start()
	c.AwaitReady()
	progress("work after the faults")
	stop()
	workers.Wait()
	w.check(t, c, follower, follow)
	requireAscending(t, guarded)
}

// work is what clients did and were told.
type work struct {
	t *testing.T

	// mu protects the fields below.
	mu   sync.Mutex
	done int
	// written is what keys hold, and unclear are those with a write that nobody knows of.
	written map[string]string
	unclear map[string]bool
	// added is what was acknowledged, and unsure what may have been added beside it.
	added, unsure float64
}

func (w *work) steps() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done
}

// told notes what became of a step; false means that the test is over.
func (w *work) told(ctx context.Context, err error, note func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done++
	if err == nil {
		note()
	} else if ctx.Err() == nil && !errors.Is(err, client.ErrUnknown) && !errors.Is(err, client.ErrUnavailable) {
		w.t.Errorf("told %v", err)
	}
	return ctx.Err() == nil
}

func (w *work) put(ctx context.Context, c *client.Client, who int) {
	for i := 0; ; i++ {
		key, value := fmt.Sprint(who, "/", i%50), fmt.Sprint(i)
		var opts []client.WriteOption
		if i%2 == 0 { // and so always for the same keys
			opts = append(opts, client.ServerStamp())
		}
		_, err := c.Map("work").Put(ctx, key, value, opts...)
		if err != nil { // it may still come
			w.mu.Lock()
			w.unclear[key] = true
			w.mu.Unlock()
		}
		if !w.told(ctx, err, func() { w.written[key] = value }) {
			return
		}
	}
}

func (w *work) count(ctx context.Context, c *client.Client) {
	last := 0.0
	for {
		total, err := c.Counter("work").Add(ctx, 1)
		if err == nil && total <= last {
			w.t.Errorf("the total is %v after it was %v", total, last)
		}
		if err == nil {
			last = total
		}
		if err != nil {
			w.mu.Lock()
			w.unsure++
			w.mu.Unlock()
		}
		if !w.told(ctx, err, func() { w.added++ }) {
			return
		}
	}
}

// guard writes its token while it holds a lock. It may lose the lock at any time.
func (w *work) guard(ctx context.Context, c *client.Client) {
	for {
		l, err := c.Lock(ctx, "guarded")
		if err != nil {
			if ctx.Err() == nil {
				w.t.Errorf("told %v", err)
			}
			return
		}
		_, err = c.Map("guarded").Put(ctx, "token", l.Token(), client.Fenced(l.Fence()), client.ServerStamp())
		if err != nil && errors.Is(err, client.ErrClosed) {
			w.t.Errorf("the holder of token %d is told %v", l.Token(), err)
		}
		err = l.Release(ctx)
		if errors.Is(err, client.ErrLockLost) {
			err = nil
		}
		if !w.told(ctx, err, func() {}) {
			return
		}
	}
}

func (w *work) check(t *testing.T, c *harness.Cluster, user *client.Client, follow *client.Follow) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	t.Logf("%d steps, %v additions, %v unsure", w.done, w.added, w.unsure)
	total, err := user.Counter("work").Add(ctx, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, total, w.added, "an acknowledged addition is missing")
	require.LessOrEqual(t, total, w.added+w.unsure, "an addition counts twice")
	for key, value := range w.written {
		if w.unclear[key] {
			continue
		}
		record, err := user.Map("work").Get(ctx, key, client.Linearizable())
		require.NoError(t, err)
		require.Equal(t, strconv.Quote(value), record.Value.String(), "key %s", key)
	}
	// The follower ends up with what is there.
	c.AwaitEqual()
	last, err := user.Map("work").Find(ctx, client.Query{}, client.Linearizable())
	require.NoError(t, err)
	want, rows := map[string]string{}, map[string]string{}
	for _, r := range last.Records {
		want[r.Key] = r.Value.String()
	}
	for change, err := range follow.All(ctx) {
		require.NoError(t, err, "rows %v, want %v", rows, want)
		switch change.Type {
		case client.Snapshot:
			clear(rows)
			for _, r := range change.Records {
				rows[r.Key] = r.Value.String()
			}
		case client.Leave:
			delete(rows, change.Key)
		default:
			rows[change.Key] = change.Value.String()
		}
		if maps.Equal(rows, want) {
			return
		}
	}
}

// requireAscending holds that no holder of the lock wrote after a later one.
func requireAscending(t *testing.T, follow *client.Follow) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	greatest := uint64(0)
	for seen := 0; ; seen++ {
		brief, done := context.WithTimeout(ctx, time.Second)
		change, err := follow.Next(brief)
		done()
		if errors.Is(err, context.DeadlineExceeded) && seen > 0 {
			return // all that is there was read
		}
		require.NoError(t, err)
		values := []client.Value{change.Value}
		if change.Type == client.Snapshot {
			values = nil
			for _, r := range change.Records {
				values = append(values, r.Value)
			}
		}
		for _, v := range values {
			var token uint64
			require.NoError(t, v.Decode(&token))
			require.GreaterOrEqual(t, token, greatest)
			greatest = token
		}
	}
}
