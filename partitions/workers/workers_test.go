package workers

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestATaskNeverWaitsForAnother(t *testing.T) {
	p := New(1)
	release := make(chan struct{})
	var running sync.WaitGroup
	for range 10 {
		running.Add(1)
		p.Go(func() {
			running.Done()
			<-release
		})
	}
	running.Wait()
	close(release)
	p.Close()
}

func TestIdleWorkersAreUsedAgainAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(3)
		before := runtime.NumGoroutine()
		for range 100 {
			for range 8 {
				p.Go(func() {})
			}
			synctest.Wait()
		}
		// One that is ending is counted for a little while after it has left the bubble.
		for range 1_000_000 {
			if runtime.NumGoroutine()-before <= 3 {
				break
			}
			runtime.Gosched()
		}
		if n := runtime.NumGoroutine() - before; n > 3 {
			t.Errorf("%d workers are idle, want at most 3", n)
		}
		p.Close()
	})
}

func TestCloseWaitsForTasks(t *testing.T) {
	p := New(2)
	done := false
	started, release := make(chan struct{}), make(chan struct{})
	p.Go(func() {
		close(started)
		<-release
		done = true
	})
	<-started
	go close(release)
	p.Close()
	if !done {
		t.Error("Close returned before the task ended")
	}
}

func BenchmarkGo(b *testing.B) {
	p := New(8)
	defer p.Close()
	var wg sync.WaitGroup
	for b.Loop() {
		wg.Add(1)
		p.Go(wg.Done)
		wg.Wait()
	}
}
