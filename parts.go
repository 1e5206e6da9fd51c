package quorate

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/transport"
	"github.com/quorate/quorate/transport/auth"
)

// openStore opens the backend that the configuration names, and with it makes the
// directory of the log.
func (c *ServerConfig) openStore(logger hclog.Logger) (storage.Store, error) {
	if c.Storage.Backend == BackendNull {
		return memory.New(memory.Config{}), nil
	}
	store, err := bolt.Open(bolt.Config{Path: c.Storage.Path}, bolt.Deps{Logger: logger})
	if err != nil {
		return nil, err
	}
	// The lock is held now: nobody else uses the directory.
	if err := os.MkdirAll(c.raftDir(), 0o700); err != nil {
		return nil, errors.Join(fmt.Errorf("create log directory: %w", err), store.Close())
	}
	return store, nil
}

// nodeConfig configures the parts of the node; port is that of the client listener.
func (c *ServerConfig) nodeConfig(port int) NodeConfig {
	cfg := DefaultNodeConfig(c.NodeID)
	cfg.Flusher = writebehind.Config{
		Interval:  c.Storage.WriteBehind.FlushInterval,
		BatchSize: c.Storage.WriteBehind.BatchSize,
		Capacity:  c.Storage.WriteBehind.Capacity,
	}
	cfg.Mux.ListenAddr = net.JoinHostPort(c.BindHost(), strconv.Itoa(int(c.Cluster.Port)))
	cfg.Mux.Advertise = unbracket(c.Cluster.Host)
	cfg.Mux.Secret = []byte(c.Security.JWTSecret)
	cfg.Membership.Seeds = c.Cluster.Seeds
	cfg.Membership.ClientURL = "ws://" + net.JoinHostPort(unbracket(c.Cluster.Host), strconv.Itoa(port)) + "/ws"
	cfg.Router.CollectInterval, cfg.Router.CollectAge = c.GCInterval, c.TombstoneAge
	if c.Storage.Backend == BackendNull {
		// The store is memory already; a cache before it would hold everything twice.
		return cfg
	}
	cfg.Log = logstore.DefaultConfig(filepath.Join(c.raftDir(), "wal"))
	cfg.Raft.DataDir = filepath.Join(c.raftDir(), "incoming")
	cfg.CacheBytes = c.Storage.Cache.limit()
	return cfg
}

// reservedMB is what a node needs beside its clean records: the two journals of the
// store, what is not flushed yet, the log and the connections.
const reservedMB = 112

// limit is the number of bytes above which clean records are evicted.
func (c *CacheConfig) limit() int {
	left := c.MaxRAMMB - min(reservedMB, c.MaxRAMMB/2)
	return int(left << 20 / 100 * uint64(c.HighPercent))
}

// logFS is where the log lies: nil for the files of the system.
func (c *ServerConfig) logFS() logstore.FS {
	if c.Storage.Backend == BackendNull {
		return logstore.NewMemFS()
	}
	return nil
}

// transportConfig configures the client listener.
func (c *ServerConfig) transportConfig() transport.Config {
	cfg := transport.DefaultConfig()
	cfg.Addr = net.JoinHostPort(c.BindHost(), strconv.Itoa(int(c.Network.Port)))
	cfg.RequestTimeout = c.Network.RequestTimeout
	ws := &cfg.WebSocket
	ws.NodeID = c.NodeID
	ws.AllowedOrigins = c.Network.CORSOrigins
	ws.OperationTimeout = c.DefaultOperationTimeout
	ws.MaxConcurrentOperations = c.MaxConcurrentOperations
	ws.Connection.OutboundCapacity = c.Network.Connection.OutboundChannelCapacity
	ws.Connection.SendTimeout = c.Network.Connection.SendTimeout
	ws.Connection.IdleTimeout = c.Network.Connection.IdleTimeout
	ws.Connection.WriteBufferSize = c.Network.Connection.WSWriteBufferSize
	ws.Connection.MaxWriteBufferSize = c.Network.Connection.WSMaxWriteBufferSize
	return cfg
}

// verifier checks the tokens of clients.
func (c *ServerConfig) verifier(logger hclog.Logger, now func() int64) (*auth.Verifier, error) {
	cfg := auth.DefaultConfig()
	cfg.Secret = []byte(c.Security.JWTSecret)
	cfg.ForwardErrors = c.Security.ForwardAuthErrors
	return auth.New(cfg, auth.Deps{Logger: logger, Now: now})
}
