package quorate

import "testing"

func TestClientsLeaveFilesToTheNode(t *testing.T) {
	for files, want := range map[int]int{0: 0, 200: 150, 1024: 768, 1 << 20: 1<<20 - 1024} {
		if got := clientSockets(files); got != want {
			t.Errorf("%d sockets for clients of %d files, want %d", got, files, want)
		}
	}
	cfg := DefaultServerConfig()
	transport := cfg.transportConfig()
	want := clientSockets(openFiles())
	if got, shown := transport.MaxSockets, transport.Admin.Fixed.MaxSockets; got != want || shown != want {
		t.Errorf("the listener takes %d sockets and says %d, want %d", got, shown, want)
	}
}
