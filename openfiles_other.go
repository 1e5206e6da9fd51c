//go:build !unix

package quorate

// openFiles is how many files and sockets the process may have open, 0 if that is not bounded
// or not known.
func openFiles() int { return 0 }
