//go:build unix

package logstore

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

const killDirVariable = "LOGSTORE_TEST_CHILD_DIR"

// TestMainOfKilledProcess is the child of the test below: it appends to three
// groups until it is killed, and prints each index after it was acknowledged.
func TestMainOfKilledProcess(t *testing.T) {
	dir := os.Getenv(killDirVariable)
	if dir == "" {
		t.Skip("only as a child process")
	}
	l := mustOpen(t, smallConfig(dir), nil)
	out := make(chan string)
	for id := range uint32(3) {
		g := l.Group(id)
		last, err := g.LastIndex()
		noErr(t, err)
		go func() {
			for i := last + 1; ; i++ {
				if err := g.StoreLog(entry(i, 1, int(i*37%3000))); err != nil {
					panic(err)
				}
				out <- fmt.Sprintln("acked", id, i)
				if i%40 == 0 {
					if err := g.DeleteRange(0, i-20); err != nil {
						panic(err)
					}
				}
			}
		}()
	}
	for line := range out {
		_, _ = os.Stdout.WriteString(line)
	}
}

func TestKilledProcessKeepsAckedWrites(t *testing.T) {
	seed := testSeed(t)
	rng := newRand(seed)
	dir := t.TempDir() + "/log"
	acked := map[uint32]uint64{}
	for range 6 {
		runAndKill(t, dir, 1+rng.IntN(300), acked)
		l := mustOpen(t, smallConfig(dir), nil)
		for id, want := range acked {
			first, err := l.Group(id).FirstIndex()
			noErr(t, err)
			last, err := l.Group(id).LastIndex()
			noErr(t, err)
			// One entry may be on its way to the disk, one on its way to the output.
			if last < want || last > want+2 {
				t.Fatalf("group %d ends at %d, acknowledged %d", id, last, want)
			}
			checkRange(t, l.Group(id), first, last)
			acked[id] = last
		}
		mustClose(t, l)
	}
}

// runAndKill runs a child until it has acknowledged n entries and kills it.
func runAndKill(t *testing.T, dir string, n int, acked map[uint32]uint64) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestMainOfKilledProcess$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), killDirVariable+"="+dir)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	noErr(t, err)
	noErr(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for count := 0; lines.Scan(); count++ {
		if count == n {
			noErr(t, cmd.Process.Kill())
		}
		// The last line may be cut by the kill.
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "acked" {
			id, err := strconv.ParseUint(f[1], 10, 32)
			noErr(t, err)
			index, err := strconv.ParseUint(f[2], 10, 64)
			noErr(t, err)
			acked[uint32(id)] = max(acked[uint32(id)], index)
		}
	}
	_ = cmd.Wait()
}
