package quorate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/backup"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/raftnode"
	"github.com/quorate/quorate/raftnode/membership"
)

// ErrNotEmpty is returned by Restore when it was asked to write where a node has data.
var ErrNotEmpty = errors.New("the place to restore to is not empty")

// Restored says what Restore made.
type Restored struct {
	// ClusterID is the id of the new cluster, ServerID that of its founder.
	ClusterID, ServerID string
	// Backup is what was restored.
	Backup *backup.Summary
}

// Restore makes cfg's store, which must not exist, that of the founder of a new cluster
// with the contents of the backup in src: a node that is started on it founds the cluster,
// and others join it as any. src is read twice. The store appears at once and whole when
// everything was checked; after an error, as after a crash, there is none. Errors:
// ErrNotEmpty, backup.ErrDamaged, backup.ErrFormat, *FieldError, those of src and of the disk.
func Restore(cfg *ServerConfig, src io.ReadSeeker, logger hclog.Logger) (*Restored, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	if err := cfg.checkRestore(); err != nil {
		return nil, err
	}
	summary, err := backup.Verify(src)
	if err != nil {
		return nil, err
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read backup again: %w", err)
	}
	path := cfg.Storage.Path + ".restore"
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove what an earlier restore left: %w", err)
	}
	restored, err := fillStore(path, cfg.NodeID, src, summary, logger)
	if err == nil {
		err = cfg.adopt(path)
	}
	if rerr := os.Remove(path); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return nil, err
	}
	return restored, nil
}

// checkRestore refuses settings that say who and where the node is and cannot be used;
// others do not matter here.
func (c *ServerConfig) checkRestore() error {
	v := &validation{}
	c.validateNode(v)
	c.validateStorage(v)
	if c.Storage.Backend == BackendNull {
		v.problems = append(v.problems, &FieldError{Field: "Storage.Backend", Reason: "keeps nothing, so that nothing can be restored to it"})
	}
	if err := errors.Join(v.problems...); err != nil {
		return err
	}
	return c.checkEmpty()
}

// checkEmpty refuses to restore over the data of a node.
func (c *ServerConfig) checkEmpty() error {
	if _, err := os.Lstat(c.Storage.Path); err == nil {
		return fmt.Errorf("%w: %s exists", ErrNotEmpty, c.Storage.Path)
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	left, err := os.ReadDir(c.raftDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: %s has files", ErrNotEmpty, c.raftDir())
	}
	return nil
}

// fillStore makes a store at path with what src contains.
func fillStore(path, nodeID string, src io.Reader, summary *backup.Summary, logger hclog.Logger) (*Restored, error) {
	store, err := bolt.Open(bolt.Config{Path: path}, bolt.Deps{Logger: logger})
	if err != nil {
		return nil, err
	}
	restored, err := fill(store, nodeID, src, summary)
	return restored, errors.Join(err, store.Close())
}

func fill(store storage.Store, nodeID string, src io.Reader, summary *backup.Summary) (*Restored, error) {
	identity, cluster, err := membership.Refound(store, nodeID, summary.Groups)
	if err != nil {
		return nil, err
	}
	configuration := raftnode.FoundingConfiguration(identity.ID())
	err = backup.Extract(src, func(part backup.Part, snapshot io.Reader) error {
		_, err := fsm.Transplant(store, part.Group, snapshot, configuration)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &Restored{ClusterID: cluster, ServerID: string(identity.ID()), Backup: summary}, nil
}

// adopt makes the file at path the store, unless there is one by now.
func (c *ServerConfig) adopt(path string) error {
	if err := c.checkEmpty(); err != nil {
		return err
	}
	// Unlike a renaming, a link replaces nothing.
	if err := os.Link(path, c.Storage.Path); err != nil {
		return fmt.Errorf("put the restored store in its place: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
