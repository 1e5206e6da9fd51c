package mux

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func newFrameReader(r io.Reader, maxBody int) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, readBufferBytes), maxBody: maxBody}
}

func TestFrameBytesDoNotChange(t *testing.T) {
	h := header{size: 3, kind: frameRequest, code: 0x1234, id: 0x0102030405060708, timeoutMillis: 3000}
	require.Equal(t, "00000003"+"01"+"00"+"1234"+"0102030405060708"+"00000bb8", hex.EncodeToString(h.append(nil)))
}

func TestFramesSurviveTheWire(t *testing.T) {
	bodies := []string{"", "x", strings.Repeat("long", 50_000)}
	var wire []byte
	for i, body := range bodies {
		h := header{size: uint32(len(body)), kind: frameReply, code: 7, id: uint64(i), timeoutMillis: 9}
		wire = append(h.append(wire), body...)
	}
	in := newFrameReader(bytes.NewReader(wire), 1<<20)
	for i, body := range bodies {
		h, err := in.next()
		require.NoError(t, err)
		require.Equal(t, header{size: uint32(len(body)), kind: frameReply, code: 7, id: uint64(i), timeoutMillis: 9}, h)
		if i == 1 {
			require.NoError(t, in.skip(h))
			continue
		}
		got, err := in.body(h)
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	}
	_, err := in.next()
	require.Equal(t, io.EOF, err)
}

func TestMalformedFramesFail(t *testing.T) {
	reserved := header{kind: framePing}.append(nil)
	reserved[5] = 1
	for name, b := range map[string][]byte{
		"too large":    header{size: 101, kind: frameRequest}.append(nil),
		"largest size": header{size: 1<<32 - 1, kind: frameRequest}.append(nil),
		"kind 0":       make([]byte, headerSize),
		"kind 7":       header{kind: framePong + 1}.append(nil),
		"reserved":     reserved,
	} {
		_, err := newFrameReader(bytes.NewReader(b), 100).next()
		require.ErrorIs(t, err, errMalformed, name)
	}
}

func TestLyingSizeAllocatesLittle(t *testing.T) {
	b := append(header{size: 8 << 20, kind: frameRequest}.append(nil), "short"...)
	in := newFrameReader(bytes.NewReader(b), 8<<20)
	h, err := in.next()
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = in.body(h)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func FuzzFrameReader(f *testing.F) {
	f.Add(append(header{size: 2, kind: frameRequest, id: 1}.append(nil), "ab"...))
	f.Add(append(header{size: 9, kind: frameReply}.append(nil), "short"...))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := newFrameReader(bytes.NewReader(wire), 1000)
		var again []byte
		for {
			h, err := in.next()
			if err != nil {
				break
			}
			body, err := in.body(h)
			if err != nil {
				break
			}
			again = append(h.append(again), body...)
		}
		require.True(t, bytes.HasPrefix(wire, again))
	})
}

func TestOutboxKeepsOrderAndJoinsFrames(t *testing.T) {
	o := newOutbox()
	var want []byte
	for i := range 10 {
		h := header{kind: frameRequest, id: uint64(i)}
		require.NoError(t, o.put(context.Background(), h, []byte("body")))
		h.size = 4
		want = append(h.append(want), "body"...)
	}
	require.Equal(t, want, o.take())
	require.Empty(t, o.take())
}

func TestOutboxBlocksWhenFullAndNeverRefusesWhenEmpty(t *testing.T) {
	o := newOutbox()
	huge := make([]byte, queueBytes+1)
	require.NoError(t, o.put(context.Background(), header{kind: frameReply}, huge))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, o.put(ctx, header{kind: frameReply}, nil), context.Canceled)

	added := make(chan error, 1)
	go func() { added <- o.put(context.Background(), header{kind: frameReply, id: 2}, nil) }()
	require.Len(t, o.take(), headerSize+len(huge))
	require.NoError(t, <-added)
	require.Len(t, o.take(), headerSize)

	require.NoError(t, o.put(context.Background(), header{kind: frameReply}, huge))
	go func() { added <- o.put(context.Background(), header{kind: frameReply}, nil) }()
	o.close()
	require.ErrorIs(t, <-added, errLinkClosed)
	require.ErrorIs(t, o.put(context.Background(), header{kind: frameReply}, nil), errLinkClosed)
}
