package raftnode

import (
	"testing"
	"time"
)

func TestTimeInWhichTheProcessWasStoppedIsNoHang(t *testing.T) {
	start := time.Now()
	hang := hangTime{interval: 100 * time.Millisecond, last: start}
	at := func(ms int64) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	for _, step := range []struct {
		at, byClock, want int64
	}{
		{100, 0, 0},
		{200, 30, 30},         // began between two looks
		{300, 130, 130},       // hangs
		{50_300, 50_130, 330}, // stopped for 50 s
		{50_400, 50_230, 430},
		{50_500, 0, 0}, // the write came through
		{50_600, 90, 90},
	} {
		if got := hang.observe(at(step.at), time.Duration(step.byClock)*time.Millisecond); got != time.Duration(step.want)*time.Millisecond {
			t.Errorf("at %d ms with %d ms by the clock: %s, want %d ms", step.at, step.byClock, got, step.want)
		}
	}
}
