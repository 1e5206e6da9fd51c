package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/protocol"
	"github.com/quorate/quorate/protocol/merkle"
)

// errSync is wrapped when a sync did not give what it should.
var errSync = errors.New("sync is incomplete")

// walk syncs a client whose copy has the buckets own, as clients in the field do: it
// asks for all that differs at once and takes the answers as they come. take is called
// for each record and reports whether the client lacked it.
func walk(ctx context.Context, url string, own *merkle.Leaves, take func(*protocol.KeyedRecord) bool) (w Walk, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := dial(ctx, &Options{ValueBytes: 1}, 0, url)
	if err != nil {
		return w, err
	}
	defer c.close()
	c.conn.SetReadLimit(protocol.MaxAnswer)
	requests := make(chan string, merkle.Buckets+273)
	go c.request(ctx, requests)
	defer close(requests)
	started := time.Now()
	if err := c.send(ctx, &protocol.SyncInit{MapName: syncMap}); err != nil {
		return w, err
	}
	var frame bytes.Buffer // no answer is needed when the next one comes
	open := 1
	w.Requests = 1
	for ask := func(path string) { open++; w.Requests++; requests <- path }; open > 0; open-- {
		frame.Reset()
		if err := c.readInto(ctx, &frame); err != nil {
			return w, err
		}
		w.Received += frame.Len()
		m, err := protocol.DecodeAnswer(frame.Bytes())
		if err != nil {
			return w, err
		}
		switch m := m.(type) {
		case *protocol.SyncRespRoot:
			if m.RootHash != own.Root() {
				ask("")
			}
		case *protocol.SyncRespBuckets:
			mine := own.Children(m.Path, false)
			for digit, hash := range m.Buckets {
				if mine[digit] != hash {
					ask(m.Path + digit)
				}
			}
		case *protocol.SyncRespLeaf:
			for i := range m.Records {
				if take(&m.Records[i]) {
					w.Found++
				}
			}
		default:
			open++ // not an answer
		}
	}
	w.Seconds = time.Since(started).Seconds()
	return w, nil
}

// readInto reads a frame.
func (c *client) readInto(ctx context.Context, frame *bytes.Buffer) error {
	_, r, err := c.conn.Reader(ctx)
	if err == nil {
		_, err = frame.ReadFrom(r)
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	return nil
}

// request sends the requests for paths until there are no more.
func (c *client) request(ctx context.Context, paths <-chan string) {
	for path := range paths {
		frame, err := protocol.Append(nil, &protocol.MerkleReqBucket{MapName: syncMap, Path: path})
		if err == nil {
			err = c.conn.Write(ctx, websocket.MessageBinary, frame)
		}
		if err != nil {
			return // the reader notices
		}
	}
}

// readStore reads and decodes all records of the stopped node at path, of which there
// must be n, as its state machines read them for a sync, and returns how many a second.
func readStore(path string, n int) (perSecond float64, err error) {
	store, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Logger: hclog.NewNullLogger()})
	if err != nil {
		return 0, err
	}
	defer store.Close()
	flusher, err := writebehind.New(writebehind.DefaultConfig(), writebehind.Deps{Logger: hclog.NewNullLogger(), Store: store})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	found := 0
	for group := uint32(1); group <= floorGroups; group++ {
		m, err := fsm.Open(fsm.DefaultConfig(group), fsm.Deps{Logger: hclog.NewNullLogger(), Store: store, Flusher: flusher})
		if err != nil {
			return 0, err
		}
		defer m.Close()
		started := time.Now()
		for bucket := range uint16(merkle.Buckets) {
			var records []protocol.KeyedRecord
			err := m.LeafRecords(fsm.Leaf{Map: syncMap, Bucket: bucket}, 0, func(key string, rec protocol.Record) bool {
				records = append(records, protocol.KeyedRecord{Key: key, Record: rec.Clone()})
				return true
			})
			if err != nil {
				return 0, err
			}
			found += len(records)
		}
		took += time.Since(started)
	}
	if found != n {
		return 0, fmt.Errorf("%w: the store has %d records, not %d", errSync, found, n)
	}
	return float64(found) / took.Seconds(), nil
}

// peakMegabytes is the most memory that a process has of its own until ctx ends.
func peakMegabytes(ctx context.Context, pid int) (peak float64) {
	for {
		peak = max(peak, ownMegabytes(pid))
		select {
		case <-ctx.Done():
			return peak
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ownMegabytes reads RssAnon of a process, zero if it cannot.
func ownMegabytes(pid int) float64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			kilobytes, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kilobytes / 1024
		}
	}
	return 0
}
