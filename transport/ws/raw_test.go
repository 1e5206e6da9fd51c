package ws

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// rawClient is a bare socket after an upgrade: it costs the test little memory and
// can send what no WebSocket library would.
type rawClient struct {
	net.Conn
}

func dialRaw(t testing.TB, url string) *rawClient {
	t.Helper()
	host := strings.TrimSuffix(strings.TrimPrefix(url, "ws://"), "/ws")
	c, err := net.DialTimeout("tcp", host, patience)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = c.Write([]byte("GET /ws HTTP/1.1\r\nHost: " + host + "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"))
	require.NoError(t, err)
	r := bufio.NewReaderSize(c, 512)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Zero(t, r.Buffered())
	return &rawClient{Conn: c}
}

// ping sends a PING and reads the start of its answer. The mask is zero.
func (c *rawClient) ping(t testing.TB) {
	t.Helper()
	payload := "\x81\xa4type\xa4PING"
	_, err := c.Write(append([]byte{0x82, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...))
	require.NoError(t, err)
	var head [2]byte
	_, err = c.Read(head[:])
	require.NoError(t, err)
	require.Equal(t, byte(0x82), head[0])
}
