package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/quorate/quorate/client"
	"github.com/quorate/quorate/e2e/harness"
)

const (
	// ceilingMB is the RAM ceiling of the node, beyondMB the values that are written to it.
	ceilingMB = 16
	beyondMB  = 10 * ceilingMB
	// besideMB is what a node takes beside the ceiling: two journals of 32 MiB, buffers of
	// the log and of connections, and garbage that is not collected yet.
	besideMB = 128

	ceilingValue   = 16 << 10
	ceilingKeys    = beyondMB << 20 / ceilingValue
	ceilingWriters = 64
)

// TestTheCeilingHoldsInBytes writes ten times the RAM ceiling to one node, in random order
// and with random reads in between, and holds that its anonymous resident memory never
// grows by more than the ceiling with a quarter of it and what a node takes beside.
func TestTheCeilingHoldsInBytes(t *testing.T) {
	cfg := config()
	cfg.Env = []string{fmt.Sprintf("SERVICE_MAX_RAM_MB=%d", ceilingMB)}
	n := harness.Start(t, cfg, 1).Nodes()[0]
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	m := open(t, client.Config{}, n).Map("large")
	before := n.AnonymousBytes()
	order := rand.New(rand.NewPCG(uint64(*seed), 0)).Perm(ceilingKeys)
	group, ctx := errgroup.WithContext(ctx)
	for w := range ceilingWriters {
		group.Go(func() error { return writeAndRead(ctx, m, order, w) })
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	most, writing := before, true
	for writing {
		select {
		case err := <-ended:
			require.NoError(t, err)
			writing = false
		case <-look.C:
		}
		most = max(most, n.AnonymousBytes())
	}
	grown := float64(most-before) / (1 << 20)
	t.Logf("grew by %.0f MiB from %d MiB while %d MiB were written", grown, before>>20, beyondMB)
	require.Less(t, grown, 1.25*ceilingMB+besideMB)
}

// writeAndRead writes the share of one writer, and reads one of its records after each.
func writeAndRead(ctx context.Context, m *client.Map, order []int, writer int) error {
	rnd := rand.New(rand.NewPCG(uint64(*seed), uint64(writer)+1))
	for i := writer; i < len(order); i += ceilingWriters {
		if _, err := m.Put(ctx, fmt.Sprint(order[i]), valueOf(order[i])); err != nil {
			return err
		}
		earlier := writer + ceilingWriters*rnd.IntN(i/ceilingWriters+1)
		if err := readBack(ctx, m, order[earlier]); err != nil {
			return err
		}
	}
	return nil
}

// valueOf is the value of a key, which tells whose it is.
func valueOf(key int) string {
	text := fmt.Sprintf("value of %d;", key)
	return strings.Repeat(text, ceilingValue/len(text))
}

func readBack(ctx context.Context, m *client.Map, key int) error {
	rec, err := m.Get(ctx, fmt.Sprint(key))
	if err != nil {
		return err
	}
	var value string
	if err := rec.Value.Decode(&value); err != nil {
		return err
	}
	if value != valueOf(key) {
		return fmt.Errorf("%d reads as %.40q", key, value)
	}
	return nil
}
