package mux

import (
	"context"
	"fmt"
	"net"
	"time"
)

// tcpTimeout is how long sent bytes may go unacknowledged, and roughly how long an
// idle connection outlives the machine at its other end. A dropped link gives no
// other sign, and the default of the system is many minutes.
const tcpTimeout = 3 * time.Second

// TCP is the Network of the operating system. The zero value is ready to use.
type TCP struct {
	// LocalIP is where outgoing connections come from. Empty lets the system choose.
	LocalIP string
}

// Listen implements Network.
func (TCP) Listen(addr string) (net.Listener, error) {
	// Accepted sockets inherit the options of the listening one.
	lc := net.ListenConfig{Control: setUserTimeout, KeepAliveConfig: keepAlive()}
	return lc.Listen(context.Background(), "tcp", addr)
}

// Dial implements Network.
func (t TCP) Dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Control: setUserTimeout, KeepAliveConfig: keepAlive()}
	if t.LocalIP != "" {
		ip := net.ParseIP(t.LocalIP)
		if ip == nil {
			return nil, fmt.Errorf("local address %q is not an IP address", t.LocalIP)
		}
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	return d.DialContext(ctx, "tcp", addr)
}

func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: tcpTimeout / 3, Interval: tcpTimeout / 3, Count: 2}
}
