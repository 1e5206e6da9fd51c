package quorate

import (
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quorate/quorate/protocol"
)

// Backend names the durable home of a node's records.
type Backend string

// The backends of the contract.
const (
	// BackendEmbedded keeps everything in one file and a log directory beside it.
	BackendEmbedded Backend = "embedded"
	// BackendRelational is BackendEmbedded, and the leaders write the records to a
	// table in PostgreSQL as well. PERSISTED then means that the table has them.
	BackendRelational Backend = "relational"
	// BackendNull keeps everything in memory and loses it at exit. For tests.
	BackendNull Backend = "null"
)

// ServerConfig configures one node. DefaultServerConfig fills every field that
// has a default; the zero value is not valid.
type ServerConfig struct {
	// NodeID identifies the node within its cluster: 1 to 64 printable ASCII
	// characters other than space, '#', ':' and '/'. No default.
	NodeID string
	// DefaultOperationTimeout bounds a client operation that asks for no shorter
	// timeout. Default 30 s.
	DefaultOperationTimeout time.Duration
	// MaxConcurrentOperations bounds the writes and queries under way on this node;
	// further ones wait a moment and are then refused. Default 1000.
	MaxConcurrentOperations int
	// GCInterval is the pace of collecting tombstones. Default 60 s.
	GCInterval time.Duration
	// TombstoneAge is how old tombstones get. A client that was away for longer drops
	// what it has and syncs from nothing, because it may have missed deletions. Default
	// 7 days.
	TombstoneAge time.Duration
	// PartitionCount is 271. Clients compute partitions with it, so Validate
	// refuses any other.
	PartitionCount int

	Network  NetworkConfig
	Security SecurityConfig
	Admin    AdminConfig
	Storage  StorageConfig
	Cluster  ClusterConfig
}

// NetworkConfig configures the client listener.
type NetworkConfig struct {
	// Host is the bind address: a name or an IP, IPv6 with or without brackets.
	// Empty means 0.0.0.0, or 127.0.0.1 when Security.NoAuth is set.
	Host string
	// Port is the TCP port. 0 (the default) lets the system choose.
	Port uint16
	// TLS encrypts the listener. Nil (the default) is plain.
	TLS *TLSConfig
	// Connection bounds one client connection.
	Connection ConnectionConfig
	// CORSOrigins lists the origins whose pages may connect, besides pages of the
	// server's own host. "*" admits every origin. Default none.
	CORSOrigins []string
	// RequestTimeout bounds reading one HTTP request. Default 30 s.
	RequestTimeout time.Duration
}

// TLSConfig names the PEM files of a TLS listener. They are read again when they change.
type TLSConfig struct {
	CertPath, KeyPath string
	// CACertPath, when set, demands client certificates signed by this authority.
	CACertPath string
}

// ConnectionConfig bounds one client connection.
type ConnectionConfig struct {
	// OutboundChannelCapacity is how many encoded messages wait for a slow client
	// before it is disconnected. Default 256.
	OutboundChannelCapacity int
	// SendTimeout bounds one socket write. Default 5 s.
	SendTimeout time.Duration
	// IdleTimeout closes a connection that sent nothing for so long. Default 60 s.
	IdleTimeout time.Duration
	// WSWriteBufferSize and WSMaxWriteBufferSize bound, in bytes, how much queued
	// output is joined into one socket write. Defaults 128 KiB and 512 KiB.
	WSWriteBufferSize, WSMaxWriteBufferSize int
}

// SecurityConfig configures authentication. Either JWTSecret or NoAuth must be
// set.
type SecurityConfig struct {
	// JWTSecret is the HMAC key of client tokens. The key that protects the links
	// between nodes is derived from it, so all nodes must have the same. Secrets
	// under 32 bytes are accepted with a warning.
	JWTSecret string
	// NoAuth accepts every client without a token. A JWTSecret given as well still
	// protects the links between nodes; without one the cluster port speaks plain
	// TCP.
	NoAuth bool
	// ForwardAuthErrors tells clients why their token was refused. Insecure.
	ForwardAuthErrors bool
}

// AdminConfig configures the admin API and the pages below /admin. They exist when
// authentication is on, or only this machine reaches the listener.
type AdminConfig struct {
	// Username and Password are those of the operator. Default name admin; without a
	// password nobody can log in.
	Username, Password string
	// Dir holds the pages below /admin. Empty (the default) means those in the binary.
	Dir string
}

// StorageConfig configures where and how records are kept.
type StorageConfig struct {
	// Backend selects the store. Default BackendEmbedded.
	Backend Backend
	// Path is the file of BackendEmbedded and BackendRelational. The directory Path+".raft" beside it
	// holds the log. Default ./service.db.
	Path string
	// Cache bounds the records kept in memory.
	Cache CacheConfig
	// Relational is the database of BackendRelational.
	Relational RelationalConfig
	// WriteBehind paces the writing of applied records to the store.
	WriteBehind WriteBehindConfig
}

// RelationalConfig names the table of BackendRelational. Either URL or Pool is set.
type RelationalConfig struct {
	// URL is a PostgreSQL connection string.
	URL string
	// Pool is a pool of connections that stays the caller's, in place of URL.
	Pool *pgxpool.Pool
	// Table is the name of the table: letters, digits and '_', no digit in front, at most
	// 40 characters. Empty means service_maps.
	Table string
}

// CacheConfig bounds what is in memory of the records. At every tick that finds more
// than the high water mark, records that the store holds leave memory, the least recently
// used first, down to the low one; between ticks they leave one by one at the ceiling.
// With BackendNull nothing leaves.
type CacheConfig struct {
	// MaxRAMMB is the ceiling in MiB, at least 16. Default 1024.
	MaxRAMMB uint64
	// HighPercent and LowPercent are the water marks in percent of the ceiling,
	// Low below High. Defaults 85 and 70.
	HighPercent, LowPercent uint8
	// Interval is the eviction tick. Default 1 s.
	Interval time.Duration
}

// WriteBehindConfig paces the flusher. Acknowledged writes do not depend on it:
// they are in the log first.
type WriteBehindConfig struct {
	// FlushInterval is the longest time between two flushes. Default 1 s.
	FlushInterval time.Duration
	// BatchSize is how many records of a group lie between two states that the store can
	// stand at, and in one transaction of BackendRelational. Default 100.
	BatchSize int
	// Capacity is how many records may wait before proposers are slowed. Default
	// 10000.
	Capacity int
}

// ClusterConfig configures the links between nodes.
type ClusterConfig struct {
	// Host is the name or IP under which peers reach this node; clients receive it
	// in the partition map. It cannot be an address like 0.0.0.0 that only listens.
	// Default 127.0.0.1.
	Host string
	// Port is the TCP port for peers. 0 (the default) lets the system choose.
	Port uint16
	// Seeds are host:port addresses of cluster ports to form or join a cluster
	// with. Empty means a cluster of one, which others may join later.
	Seeds []string
}

// DefaultServerConfig returns the contract's defaults. NodeID and one of
// Security's JWTSecret and NoAuth are left to the caller.
func DefaultServerConfig() ServerConfig {
	return ServerConfig{
		DefaultOperationTimeout: 30 * time.Second,
		MaxConcurrentOperations: 1000,
		GCInterval:              60 * time.Second,
		TombstoneAge:            7 * 24 * time.Hour,
		PartitionCount:          protocol.PartitionCount,
		Network:                 DefaultNetworkConfig(),
		Admin:                   AdminConfig{Username: "admin"},
		Storage: StorageConfig{
			Backend: BackendEmbedded,
			Path:    "./service.db",
			Cache: CacheConfig{
				MaxRAMMB:    1024,
				HighPercent: 85,
				LowPercent:  70,
				Interval:    time.Second,
			},
			WriteBehind: WriteBehindConfig{
				FlushInterval: time.Second,
				BatchSize:     100,
				Capacity:      10000,
			},
		},
		Cluster: ClusterConfig{Host: "127.0.0.1"},
	}
}

// DefaultNetworkConfig returns the contract's defaults of the client listener.
func DefaultNetworkConfig() NetworkConfig {
	return NetworkConfig{
		Connection: ConnectionConfig{
			OutboundChannelCapacity: 256,
			SendTimeout:             5 * time.Second,
			IdleTimeout:             60 * time.Second,
			WSWriteBufferSize:       128 << 10,
			WSMaxWriteBufferSize:    512 << 10,
		},
		RequestTimeout: 30 * time.Second,
	}
}

// BindHost is the address that the client listener and the cluster port bind:
// Network.Host without brackets, or the default that Network.Host documents. The
// loopback default of NoAuth matters for the cluster port too, which may then
// speak plain TCP.
func (c *ServerConfig) BindHost() string {
	switch {
	case c.Network.Host != "":
		return unbracket(c.Network.Host)
	case c.Security.NoAuth:
		return "127.0.0.1"
	default:
		return "0.0.0.0"
	}
}

// raftDir is the directory beside the store that holds the log. Empty when the
// backend keeps nothing on disk.
func (c *ServerConfig) raftDir() string {
	if c.Storage.Backend == BackendNull {
		return ""
	}
	return c.Storage.Path + ".raft"
}

// AddressFile is the file that holds the cluster address, host:port, of the node
// while it runs on this store. Empty when the backend keeps nothing on disk.
func (c *ServerConfig) AddressFile() string {
	dir := c.raftDir()
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "address")
}
