// Package workers runs short tasks in goroutines that are used again: a goroutine of
// its own for each task spends much of its time on growing its stack.
package workers

import "sync"

// Pool is a set of goroutines that wait for tasks. A task never waits for one of them:
// without an idle worker it gets a new one. All methods are safe for concurrent use.
type Pool struct {
	// tasks hands a task to an idle worker. Unbuffered.
	tasks chan func()
	// spare has a token for every further worker that may become idle.
	spare chan struct{}
	stop  chan struct{}
	once  sync.Once // closes stop
	wg    sync.WaitGroup
}

// New returns a Pool that keeps at most idle workers without work.
func New(idle int) *Pool {
	return &Pool{tasks: make(chan func()), spare: make(chan struct{}, idle), stop: make(chan struct{})}
}

// Go runs task in another goroutine and returns at once. It must not be called after
// Close.
func (p *Pool) Go(task func()) {
	select {
	case p.tasks <- task:
	default:
		p.wg.Go(func() { p.work(task) })
	}
}

func (p *Pool) work(task func()) {
	for {
		task()
		select {
		case p.spare <- struct{}{}:
		default:
			return // enough are idle
		}
		select {
		case task = <-p.tasks:
			<-p.spare
		case <-p.stop:
			return
		}
	}
}

// Close ends the idle workers and waits for the tasks that run. Calling it again only
// waits.
func (p *Pool) Close() {
	p.once.Do(func() { close(p.stop) })
	p.wg.Wait()
}
