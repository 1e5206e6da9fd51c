package harness

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// Ports are below the range that the system takes for outgoing connections, so that
// a node finds its own again after a restart.
const (
	firstPort = 20000
	portCount = 12000
)

var nextPort atomic.Uint32

// backHost and frontHost are loopback addresses that only this process uses: nodes
// listen on the first, proxies on the second.
func backHost() string { return host(1) }

func frontHost() string { return host(2) }

func host(last int) string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 1+pid>>8&0x7f, pid&0xff, last)
}

// freePort returns a port that is free on the hosts and was not returned before.
func freePort(t TB, hosts ...string) int {
	t.Helper()
	for range portCount {
		port := firstPort + int(nextPort.Add(1)%portCount)
		if free(port, hosts) {
			return port
		}
	}
	t.Fatalf("no free port")
	return 0
}

func free(port int, hosts []string) bool {
	for _, h := range hosts {
		l, err := net.Listen("tcp4", fmt.Sprintf("%s:%d", h, port))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
