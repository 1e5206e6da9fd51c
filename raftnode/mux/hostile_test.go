package mux

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/raftnode/mux/memnet"
)

// victim starts a node with a handler for method 1 that waits for the end of its
// context if the body begins with 'w', and else returns it.
func victim(t *testing.T, network Network, host string, change func(*Config)) *Mux {
	t.Helper()
	cfg := DefaultConfig()
	cfg.ListenAddr, cfg.NodeID, cfg.Incarnation = host+":0", "victim", "1"
	if change != nil {
		change(&cfg)
	}
	m, err := Open(cfg, Deps{Network: network})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	m.Handle(1, func(ctx context.Context, _ Peer, body []byte) ([]byte, error) {
		if len(body) > 0 && body[0] == 'w' {
			<-ctx.Done()
		}
		return body, nil
	})
	m.Start()
	return m
}

// requireServes checks that an honest tool gets its answer.
func requireServes(t *testing.T, m *Mux, network Network) {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Secret = m.cfg.Secret
	tool, err := Open(cfg, Deps{Network: network})
	require.NoError(t, err)
	defer tool.Close()
	reply, _, err := tool.CallAddr(t.Context(), m.Addr(), 1, []byte("hello"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(reply))
}

func heapBytes() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc + stats.StackInuse
}

// requireGrowth checks that the memory in use has grown by less than 64 MiB.
func requireGrowth(t *testing.T, before uint64) {
	t.Helper()
	after := heapBytes()
	require.Less(t, int64(after)-int64(before), int64(64<<20))
}

func TestRandomBytesDoNoHarm(t *testing.T) {
	for _, secret := range []string{"", "secret"} {
		t.Run("secret "+secret, func(t *testing.T) {
			m := victim(t, TCP{}, "127.0.0.1", func(c *Config) { c.Secret = []byte(secret) })
			rng := rand.New(rand.NewPCG(1, 2))
			before := heapBytes()
			for i := range 300 {
				conn, err := net.Dial("tcp", m.Addr())
				require.NoError(t, err)
				noise := make([]byte, rng.IntN(4000))
				for j := range noise {
					noise[j] = byte(rng.Uint32())
				}
				switch i % 3 {
				case 1:
					noise = append([]byte{tlsHandshake, 3, 1}, noise...)
				case 2:
					noise = append([]byte(magic+"\x01\x01"), noise...)
				}
				_, _ = conn.Write(noise)
				defer conn.Close()
			}
			requireServes(t, m, TCP{})
			requireGrowth(t, before)
		})
	}
}

func TestSlowHandshakesMakeRoomForHonestOnes(t *testing.T) {
	m := victim(t, TCP{}, "127.0.0.1", func(c *Config) {
		c.MaxHandshakes, c.HandshakeTimeout = 10, time.Hour
	})
	before := heapBytes()
	for range 500 {
		conn, err := net.Dial("tcp", m.Addr())
		require.NoError(t, err)
		defer conn.Close()
		_, _ = conn.Write([]byte(magic[:2]))
	}
	requireServes(t, m, TCP{})
	requireGrowth(t, before)
}

func TestHandshakeHasADeadline(t *testing.T) {
	for name, start := range map[string]string{"nothing": "", "half a hello": "QR", "half a TLS record": "\x16\x03\x01\x02"} {
		for _, secret := range []string{"", "secret"} {
			t.Run(name+" "+secret, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					network := memnet.New(1)
					m := victim(t, network.Host("v"), "v", func(c *Config) { c.Secret = []byte(secret) })
					conn, err := network.Host("x").Dial(t.Context(), m.Addr())
					require.NoError(t, err)
					defer conn.Close()
					_, err = conn.Write([]byte(start))
					require.NoError(t, err)
					began := time.Now()
					_, _ = io.Copy(io.Discard, conn)
					require.Equal(t, 5*time.Second, time.Since(began))
				})
			})
		}
	}
}

// intruder speaks the protocol and then breaks it.
func intruder(t *testing.T, network *memnet.Network, m *Mux) net.Conn {
	t.Helper()
	conn, err := network.Host("x").Dial(t.Context(), m.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	h := hello{version: version, kind: kindCalls, nodeID: "x", incarnation: "1"}
	_, err = conn.Write(h.append(nil))
	require.NoError(t, err)
	r, err := readReply(conn)
	require.NoError(t, err)
	require.Zero(t, r.code)
	return conn
}

func TestPeerThatBreaksTheProtocolIsDisconnected(t *testing.T) {
	request := func(h header, body string) []byte {
		h.kind, h.code, h.size = frameRequest, 1, h.size+uint32(len(body))
		return append(h.append(nil), body...)
	}
	for name, wire := range map[string][]byte{
		"noise":             []byte("this is not a frame at all"),
		"too large":         request(header{size: 8<<20 + 1}, ""),
		"same id twice":     append(request(header{id: 1}, "wait"), request(header{id: 1}, "wait")...),
		"reply to nobody":   header{kind: frameReply}.append(nil),
		"pong to nobody":    header{kind: framePong}.append(nil),
		"request, then bad": append(request(header{id: 1}, "wait"), make([]byte, headerSize)...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := memnet.New(1)
				m := victim(t, network.Host("v"), "v", nil)
				conn := intruder(t, network, m)
				_, err := conn.Write(wire)
				require.NoError(t, err)
				began := time.Now()
				_, _ = io.Copy(io.Discard, conn)
				require.Zero(t, time.Since(began), "it is noticed at once")
				requireServes(t, m, network.Host("tool"))
			})
		})
	}
}

func TestPeerThatStopsInAFrameIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		m := victim(t, network.Host("v"), "v", nil)
		before := heapBytes()
		var conns []net.Conn
		for range 100 {
			conn := intruder(t, network, m)
			_, err := conn.Write(append(header{kind: frameRequest, code: 1, size: 8 << 20}.append(nil), 1, 2, 3))
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		synctest.Wait()
		requireGrowth(t, before)
		began := time.Now()
		for _, conn := range conns {
			_, _ = io.Copy(io.Discard, conn)
		}
		require.LessOrEqual(t, time.Since(began), 8*time.Second)
	})
}

// TestPeerThatNeverReadsHoldsUpOnlyItself floods a node with calls, each of which
// has a large reply, and reads none.
func TestPeerThatNeverReadsHoldsUpOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		m := victim(t, network.Host("v"), "v", nil)
		conn := intruder(t, network, m)
		before := heapBytes()
		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			body := make([]byte, 64<<10)
			for id := uint64(1); ; id++ {
				h := header{kind: frameRequest, code: 1, id: id, size: uint32(len(body))}
				if _, err := conn.Write(append(h.append(nil), body...)); err != nil {
					return
				}
			}
		}()
		synctest.Wait()
		requireServes(t, m, network.Host("tool"))
		requireGrowth(t, before)
		<-flooded
	})
}

func TestRunningCallsOfOnePeerAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New(1)
		m := victim(t, network.Host("v"), "v", func(c *Config) { c.MaxCalls = 10 })
		conn := intruder(t, network, m)
		var wire []byte
		for id := range uint64(25) {
			wire = append(header{kind: frameRequest, code: 1, id: id, size: 1}.append(wire), 'w')
		}
		_, err := conn.Write(wire)
		require.NoError(t, err)
		in := newFrameReader(conn, 1000)
		for range 5 {
			h, err := in.next()
			require.NoError(t, err)
			require.Equal(t, frameError, h.kind)
			require.Equal(t, CodeBusy, h.code)
			require.NoError(t, in.skip(h))
		}
	})
}

func TestLearnedAddressesAreBounded(t *testing.T) {
	m := victim(t, memnet.New(1).Host("v"), "v", nil)
	for i := range maxLearned + 100 {
		id := serverID("n", string(rune('a'+i%26))+time.Duration(i).String())
		m.learn(Peer{ID: id, Addr: "h:1"}, true)
	}
	require.Len(t, m.book, maxLearned)
	m.SetPeerAddr("named#1", "h:1")
	_, known := m.PeerAddr("named#1")
	require.True(t, known)
	m.learn(Peer{ID: "named#1", Addr: "h:2"}, true)
	addr, _ := m.PeerAddr("named#1")
	require.Equal(t, "h:2", addr)
	m.learn(Peer{ID: "named#1", Addr: "no address"}, true)
	addr, _ = m.PeerAddr("named#1")
	require.Equal(t, "h:2", addr)
}

func TestWarningsAreRepeatedOnlyWhenForgotten(t *testing.T) {
	var s onceSet
	require.True(t, s.first("a"))
	require.False(t, s.first("a"))
	for i := range 3000 {
		s.first(time.Duration(i).String())
		require.LessOrEqual(t, len(s.seen), 1024)
	}
	require.True(t, s.first("a"))
}
