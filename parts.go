package quorate

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/quorate/quorate/fsm"
	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/bolt"
	"github.com/quorate/quorate/fsm/storage/memory"
	"github.com/quorate/quorate/fsm/storage/writebehind"
	"github.com/quorate/quorate/raftnode/logstore"
	"github.com/quorate/quorate/transport"
	"github.com/quorate/quorate/transport/admin"
	"github.com/quorate/quorate/transport/auth"
	"github.com/quorate/quorate/transport/certs"
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
		Interval:      c.Storage.WriteBehind.FlushInterval,
		BatchSize:     c.Storage.WriteBehind.BatchSize,
		Capacity:      c.Storage.WriteBehind.Capacity,
		CapacityBytes: c.Storage.Cache.waiting(),
	}
	cfg.Mirror.Interval, cfg.Mirror.BatchSize = c.Storage.WriteBehind.FlushInterval, c.Storage.WriteBehind.BatchSize
	cfg.Mirror.Capacity = c.Storage.WriteBehind.Capacity
	cfg.Mux.ListenAddr = net.JoinHostPort(c.BindHost(), strconv.Itoa(int(c.Cluster.Port)))
	cfg.Mux.Advertise = unbracket(c.Cluster.Host)
	cfg.Mux.Secret = []byte(c.Security.JWTSecret)
	cfg.Membership.Seeds = c.Cluster.Seeds
	cfg.Membership.ClientURL = c.scheme() + "://" + net.JoinHostPort(unbracket(c.Cluster.Host), strconv.Itoa(port)) + "/ws"
	cfg.Router.CollectInterval, cfg.Router.CollectAge = c.GCInterval, c.TombstoneAge
	if c.Storage.Backend == BackendNull {
		// The store is memory already; a cache before it would hold everything twice.
		return cfg
	}
	cfg.Log = logstore.DefaultConfig(filepath.Join(c.raftDir(), "wal"))
	cfg.Raft.DataDir = filepath.Join(c.raftDir(), "incoming")
	cfg.Cache, cfg.CacheInterval = c.Storage.Cache.budget(), c.Storage.Cache.Interval
	return cfg
}

// reservedMB is what a node needs of a large ceiling beside the items in memory: the two
// journals of the store, the log and the connections.
const reservedMB = 112

// maxWaiting bounds what waits for the store under a large ceiling.
const maxWaiting = 32 << 20

// budget shares the ceiling out: what is not reserved is for items.
func (c *CacheConfig) budget() fsm.BudgetConfig {
	ceiling := (c.MaxRAMMB - min(reservedMB, c.MaxRAMMB/2)) << 20
	return fsm.BudgetConfig{
		Ceiling: int(ceiling),
		High:    int(ceiling / 100 * uint64(c.HighPercent)),
		Low:     int(ceiling / 100 * uint64(c.LowPercent)),
	}
}

// waiting is how many bytes of changed records may wait for the store.
func (c *CacheConfig) waiting() int { return int(min(maxWaiting, c.MaxRAMMB<<20/8)) }

// logFS is where the log lies: nil for the files of the system.
func (c *ServerConfig) logFS() logstore.FS {
	if c.Storage.Backend == BackendNull {
		return logstore.NewMemFS()
	}
	return nil
}

// reservedFiles is how many of the files that the process may have open are kept from clients, at
// most: the log, the store and the connections to other nodes need some, and a log that cannot
// open its next file ends the node.
const reservedFiles = 1024

// clientSockets is how many connections clients may have, of the given number of files that the
// process may have open; 0 is no bound.
func clientSockets(files int) int { return files - min(reservedFiles, files/4) }

// transportConfig configures the client listener.
func (c *ServerConfig) transportConfig() transport.Config {
	cfg := transport.DefaultConfig()
	cfg.Addr = net.JoinHostPort(c.BindHost(), strconv.Itoa(int(c.Network.Port)))
	cfg.RequestTimeout, cfg.MaxSockets = c.Network.RequestTimeout, clientSockets(openFiles())
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
	cfg.Admin = c.adminConfig(&cfg)
	return cfg
}

// scheme is that of the URL which clients dial.
func (c *ServerConfig) scheme() string {
	if c.Network.TLS != nil {
		return "wss"
	}
	return "ws"
}

// tlsConfig encrypts the client listener; nil is plain.
func (c *ServerConfig) tlsConfig(logger hclog.Logger) (*tls.Config, error) {
	t := c.Network.TLS
	if t == nil {
		return nil, nil
	}
	return certs.Load(certs.Files{Cert: t.CertPath, Key: t.KeyPath, CA: t.CACertPath}, logger)
}

// adminConfig configures what operators see and change.
func (c *ServerConfig) adminConfig(t *transport.Config) admin.Config {
	cfg := t.Admin
	local := c.loopback()
	cfg.Enabled, cfg.Open = !c.Security.NoAuth || local, c.Security.NoAuth && local
	cfg.Username, cfg.Password, cfg.Dir = c.Admin.Username, c.Admin.Password, c.Admin.Dir
	cfg.Fixed = admin.Fixed{
		NodeID: c.NodeID, DefaultOperationTimeoutMs: c.DefaultOperationTimeout.Milliseconds(), PartitionCount: c.PartitionCount,
		Host: c.BindHost(), Port: int(c.Network.Port), RequireAuth: !c.Security.NoAuth, MaxValueBytes: t.WebSocket.MaxValueBytes,
		IdleTimeoutMs: t.WebSocket.Connection.IdleTimeout.Milliseconds(), SendTimeoutMs: t.WebSocket.Connection.SendTimeout.Milliseconds(),
		OutboundChannelCapacity: t.WebSocket.Connection.OutboundCapacity, MaxSockets: t.MaxSockets,
	}
	cfg.Defaults = admin.Runtime{
		GCIntervalMs: c.GCInterval.Milliseconds(), MaxConcurrentOperations: c.MaxConcurrentOperations,
		MaxConnections: t.WebSocket.MaxConnections, OperationsPerSecond: t.WebSocket.RatePerSecond,
	}
	return cfg
}

// loopback reports whether only this machine reaches the client listener.
func (c *ServerConfig) loopback() bool {
	host := c.BindHost()
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// verifier checks the tokens of clients.
func (c *ServerConfig) verifier(logger hclog.Logger, now func() int64, operators *auth.Admin) (*auth.Verifier, error) {
	cfg := auth.DefaultConfig()
	cfg.Secret = []byte(c.Security.JWTSecret)
	cfg.ForwardErrors = c.Security.ForwardAuthErrors
	return auth.New(cfg, auth.Deps{Logger: logger, Now: now, Admin: operators})
}
