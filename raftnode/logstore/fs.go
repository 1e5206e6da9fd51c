package logstore

import "io"

// FS is the part of a file system that the log uses. Names are full paths. All
// methods are safe for concurrent use. A name change (Create, Rename, Remove) is
// durable only after SyncDir of its directory.
type FS interface {
	// MkdirAll creates dir and its missing parents, durably.
	MkdirAll(dir string) error
	// Lock takes the directory for this process until the result is closed. A
	// directory that is taken is ErrLocked; Lock does not wait.
	Lock(dir string) (io.Closer, error)
	// List returns the base names of the files in dir, in ascending order.
	List(dir string) ([]string, error)
	// Create opens a new file for reading and writing, replacing one of that name.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// Rename renames a file inside its directory, replacing one of that name. Open
	// Files stay usable.
	Rename(from, to string) error
	// Remove unlinks a file.
	Remove(name string) error
	// SyncDir makes earlier name changes in dir durable.
	SyncDir(dir string) error
}

// File is an open file. ReadAt and WriteAt are safe for concurrent use on ranges
// that do not overlap.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the present length in bytes.
	Size() (int64, error)
	// Truncate cuts or extends (with zeros) the file.
	Truncate(size int64) error
	// Sync blocks until everything written before it is on the medium. After an
	// error the state of the medium is unknown; calling it again proves nothing.
	Sync() error
}
