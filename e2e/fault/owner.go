package fault

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
)

// errNoOwner: none of the known processes has the connection.
var errNoOwner = errors.New("connection belongs to no known process")

// ownerOf names the process that holds the TCP connection with the given ends, as
// that process sees them.
func ownerOf(local, remote *net.TCPAddr, pids map[string]int) (string, error) {
	inode, err := socketInode(local, remote)
	if err != nil {
		return "", err
	}
	want := "socket:[" + inode + "]"
	for name, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has just ended
		}
		for _, fd := range fds {
			if target, err := os.Readlink(dir + "/" + fd.Name()); err == nil && target == want {
				return name, nil
			}
		}
	}
	return "", errNoOwner
}

// socketInode finds a connection in the kernel's table, see proc_net_tcp(5).
func socketInode(local, remote *net.TCPAddr) (string, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", fmt.Errorf("read the table of connections: %w", err)
	}
	defer f.Close()
	l, r := kernelAddr(local), kernelAddr(remote)
	wanted := []byte(l + " " + r)
	for s := bufio.NewScanner(f); s.Scan(); {
		// The table of a busy machine is long, and this runs for every connection.
		if !bytes.Contains(s.Bytes(), wanted) {
			continue
		}
		// Number, local, remote, state, queues, timer, retransmits, user, timeout, inode.
		field := strings.Fields(s.Text())
		if len(field) > 9 && field[1] == l && field[2] == r {
			return field[9], nil
		}
	}
	return "", errNoOwner
}

// kernelAddr is an IPv4 address and port as the kernel prints them.
func kernelAddr(a *net.TCPAddr) string {
	ip := make([]byte, 4)
	binary.NativeEndian.PutUint32(ip, binary.BigEndian.Uint32(a.IP.To4()))
	return strings.ToUpper(hex.EncodeToString(ip)) + fmt.Sprintf(":%04X", a.Port)
}
