package main

import (
	"runtime"
	"runtime/debug"
)

// gcPercent trades memory for time: a node keeps most of its heap for long, and
// collecting at every doubling took a tenth of its time under load.
const gcPercent = 400

// tuneRuntime sets what the Go runtime cannot know, unless the environment says
// otherwise. It gives small machines more threads than cores: a goroutine in fsync
// keeps its P, so with as many Ps as cores a busy disk stops everything else. With a
// memoryLimit in bytes above 0, garbage is collected more often as the heap comes
// near it.
func (p *process) tuneRuntime(memoryLimit int64) {
	if p.getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(8, 2*runtime.NumCPU()))
	}
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if p.getenv("GOMEMLIMIT") == "" && memoryLimit > 0 {
		debug.SetMemoryLimit(memoryLimit)
	}
}
