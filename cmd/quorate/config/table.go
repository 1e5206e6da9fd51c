package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate"
)

// row is one setting.
type row struct {
	// name is the environment variable, flag the command-line flag. One of them may
	// be empty.
	name, flag string
	// kind is the type as documented.
	kind string
	// meaning is one sentence for help and for the printed configuration.
	meaning string
	// field is the quorate.ServerConfig field that set fills.
	field string
	// secret values are never printed.
	secret bool
	// hint is added to a problem found by validating field.
	hint string
	// inert says why the setting changes nothing in this build. Empty for all
	// others.
	inert string
	// set parses text into s.
	set func(s *Settings, text string) error
	// show returns the effective value of s as text.
	show func(s *Settings) string
}

const (
	noSearch = "search is not part of this build"
)

// table holds every setting of the executable, in the order of the documents.
// Settings.given refers to rows by address, so it must not be copied.
var table = [...]row{
	{
		flag: "node-id", kind: "string", field: "NodeID",
		meaning: "unique node identifier within a cluster",
		set:     func(s *Settings, text string) error { s.Server.NodeID = text; return nil },
		show:    func(s *Settings) string { return s.Server.NodeID },
	},
	{
		flag: "host", kind: "string", field: "Cluster.Host",
		meaning: "name or IP that peers use to reach this node's cluster port; clients get it in the partition map",
		set:     func(s *Settings, text string) error { s.Server.Cluster.Host = text; return nil },
		show:    func(s *Settings) string { return s.Server.Cluster.Host },
	},
	{
		flag: "port", name: "PORT", kind: "u16", field: "Network.Port",
		meaning: "client port; 0 lets the system choose",
		set:     port(func(s *Settings) *uint16 { return &s.Server.Network.Port }),
		show:    func(s *Settings) string { return strconv.Itoa(int(s.Server.Network.Port)) },
	},
	{
		flag: "cluster-port", kind: "u16", field: "Cluster.Port",
		meaning: "port for other nodes; 0 lets the system choose",
		set:     port(func(s *Settings) *uint16 { return &s.Server.Cluster.Port }),
		show:    func(s *Settings) string { return strconv.Itoa(int(s.Server.Cluster.Port)) },
	},
	{
		flag: "seed-nodes", kind: "list of host:port", field: "Cluster.Seeds",
		meaning: "cluster ports of nodes to form or join a cluster with; empty means a single node that others may join",
		set:     list(func(s *Settings) *[]string { return &s.Server.Cluster.Seeds }),
		show:    func(s *Settings) string { return strings.Join(s.Server.Cluster.Seeds, ",") },
	},
	{
		name: "STORAGE_BACKEND", kind: "string", field: "Storage.Backend",
		meaning: "embedded, relational (embedded, and in PostgreSQL too) or null; null keeps everything in memory and loses it at exit",
		set: func(s *Settings, text string) error {
			s.Server.Storage.Backend = quorate.Backend(text)
			return nil
		},
		show: func(s *Settings) string { return string(s.Server.Storage.Backend) },
	},
	{
		name: "SERVICE_STORE_PATH", kind: "path", field: "Storage.Path",
		meaning: "file of the embedded store; its log lies beside it in <path>.raft",
		set:     func(s *Settings, text string) error { s.Server.Storage.Path = text; return nil },
		show:    func(s *Settings) string { return s.Server.Storage.Path },
	},
	{
		name: "DATABASE_URL", kind: "string", field: "Storage.Relational.URL", secret: true,
		meaning: "PostgreSQL connection string of the relational backend",
		hint:    "set DATABASE_URL, such as postgres://user@host/database",
		set:     func(s *Settings, text string) error { s.Server.Storage.Relational.URL = text; return nil },
		show:    func(s *Settings) string { return s.Server.Storage.Relational.URL },
	},
	{
		name: "SERVICE_BIND_ADDR", kind: "string", field: "Network.Host",
		meaning: "address that the client and the cluster port bind; 127.0.0.1 by default when authentication is off",
		set:     func(s *Settings, text string) error { s.Server.Network.Host = strings.TrimSpace(text); return nil },
		show:    func(s *Settings) string { return s.Server.BindHost() },
	},
	{
		name: "SERVICE_CORS_ORIGINS", kind: "list", field: "Network.CORSOrigins",
		meaning: "origins whose pages may connect besides the server's own; * admits all",
		set:     list(func(s *Settings) *[]string { return &s.Server.Network.CORSOrigins }),
		show:    func(s *Settings) string { return strings.Join(s.Server.Network.CORSOrigins, ",") },
	},
	{
		name: "JWT_SECRET", kind: "string", field: "Security.JWTSecret", secret: true,
		meaning: "HMAC secret that verifies client tokens and protects the links between nodes",
		hint:    "set JWT_SECRET, or SERVICE_NO_AUTH=true for tests and demos",
		set:     func(s *Settings, text string) error { s.Server.Security.JWTSecret = text; return nil },
		show:    func(s *Settings) string { return s.Server.Security.JWTSecret },
	},
	{
		name: "SERVICE_NO_AUTH", kind: "true or 1", field: "Security.NoAuth",
		meaning: "accept clients without a token; tests and demos only",
		set:     truthy(func(s *Settings) *bool { return &s.Server.Security.NoAuth }),
		show:    func(s *Settings) string { return strconv.FormatBool(s.Server.Security.NoAuth) },
	},
	{
		name: "INSECURE_FORWARD_AUTH_ERRORS", kind: "true or 1", field: "Security.ForwardAuthErrors",
		meaning: "tell clients why their token was refused; insecure",
		set:     truthy(func(s *Settings) *bool { return &s.Server.Security.ForwardAuthErrors }),
		show:    func(s *Settings) string { return strconv.FormatBool(s.Server.Security.ForwardAuthErrors) },
	},
	{
		name: "SERVICE_ADMIN_USERNAME", kind: "string", field: "Admin.Username",
		meaning: "dashboard login name",
		set:     func(s *Settings, text string) error { s.Server.Admin.Username = text; return nil },
		show:    func(s *Settings) string { return s.Server.Admin.Username },
	},
	{
		name: "SERVICE_ADMIN_PASSWORD", kind: "string", field: "Admin.Password", secret: true,
		meaning: "dashboard login password; nobody can log in without one",
		set:     func(s *Settings, text string) error { s.Server.Admin.Password = text; return nil },
		show:    func(s *Settings) string { return s.Server.Admin.Password },
	},
	{
		name: "SERVICE_ADMIN_DIR", kind: "path", field: "Admin.Dir",
		meaning: "directory of the files below /admin; those in the binary by default",
		set:     func(s *Settings, text string) error { s.Server.Admin.Dir = text; return nil },
		show:    func(s *Settings) string { return s.Server.Admin.Dir },
	},
	inertRow("SERVICE_INDEX_PATH", "path", "", "directory of the full-text index", noSearch),
	inertRow("SERVICE_VECTOR_INDEX_PATH", "path", "", "directory of the vector index", noSearch),
	{
		name: "SERVICE_EMBEDDING_PROVIDER", kind: "string",
		meaning: "local_model, remote_http (or http), deterministic, noop; none or unset disables semantic search",
		set:     func(s *Settings, text string) error { return s.Embedding.setProvider(text) },
		show:    func(s *Settings) string { return s.Embedding.provider() },
	},
	{
		name: "SERVICE_EMBEDDING_MODEL", kind: "string",
		meaning: "model name; required for remote_http",
		set:     func(s *Settings, text string) error { s.Embedding.Model = text; return nil },
		show:    func(s *Settings) string { return s.Embedding.withDefaults().Model },
	},
	{
		name: "SERVICE_EMBEDDING_BASE_URL", kind: "URL",
		meaning: "base of the provider's endpoint; required for remote_http",
		set:     func(s *Settings, text string) error { return s.Embedding.setBaseURL(text) },
		show:    func(s *Settings) string { return s.Embedding.withDefaults().BaseURL },
	},
	{
		name: "SERVICE_EMBEDDING_API_KEY", kind: "string", secret: true,
		meaning: "bearer token sent to remote_http",
		set:     func(s *Settings, text string) error { s.Embedding.APIKey = text; return nil },
		show:    func(s *Settings) string { return s.Embedding.APIKey },
	},
	{
		name: "SERVICE_EMBEDDING_DIMENSION", kind: "u16",
		meaning: "size of the provider's vectors; required for remote_http",
		set:     func(s *Settings, text string) error { return s.Embedding.setDimension(text) },
		show:    func(s *Settings) string { return s.Embedding.dimension() },
	},
	{
		name: "SERVICE_VECTOR_MAPS", kind: "JSON object",
		meaning: `maps vectorized on write: {"map": {"fields": ["a"], "dimension": 256}}`,
		set:     func(s *Settings, text string) error { return s.Embedding.setMaps(text) },
		show:    func(s *Settings) string { return s.Embedding.mapsText },
	},
	{
		name: "RUST_LOG", kind: "filter",
		meaning: "log filter: a level, target=level pairs, or both, separated by commas",
		set:     func(s *Settings, text string) error { s.LogFilter = text; return nil },
		show:    func(s *Settings) string { return s.LogFilter },
	},
	{
		name: "SERVICE_LOG_FORMAT", kind: "string",
		meaning: "json for JSON lines; anything else is text",
		set: func(s *Settings, text string) error {
			s.LogJSON = strings.EqualFold(strings.TrimSpace(text), "json")
			return nil
		},
		show: func(s *Settings) string {
			if s.LogJSON {
				return "json"
			}
			return "text"
		},
	},
	{
		name: "SERVICE_MAX_RAM_MB", kind: "u64", field: "Storage.Cache.MaxRAMMB",
		meaning: "RAM ceiling of the record cache in MiB, at least 16",
		set:     whole(64, func(s *Settings, n uint64) { s.Server.Storage.Cache.MaxRAMMB = n }),
		show:    func(s *Settings) string { return number(s.Server.Storage.Cache.MaxRAMMB) },
	},
	{
		name: "SERVICE_EVICTION_HIGH_PCT", kind: "u8", field: "Storage.Cache.HighPercent",
		meaning: "records are evicted above this percentage of the ceiling",
		set:     whole(8, func(s *Settings, n uint64) { s.Server.Storage.Cache.HighPercent = uint8(n) }),
		show:    func(s *Settings) string { return number(s.Server.Storage.Cache.HighPercent) },
	},
	{
		name: "SERVICE_EVICTION_LOW_PCT", kind: "u8", field: "Storage.Cache.LowPercent",
		meaning: "eviction stops below this percentage of the ceiling",
		set:     whole(8, func(s *Settings, n uint64) { s.Server.Storage.Cache.LowPercent = uint8(n) }),
		show:    func(s *Settings) string { return number(s.Server.Storage.Cache.LowPercent) },
	},
	{
		name: "SERVICE_EVICTION_INTERVAL_MS", kind: "u64", field: "Storage.Cache.Interval",
		meaning: "eviction tick in milliseconds",
		set:     millis(func(s *Settings) *time.Duration { return &s.Server.Storage.Cache.Interval }),
		show:    func(s *Settings) string { return number(s.Server.Storage.Cache.Interval.Milliseconds()) },
	},
	{
		name: "SERVICE_WRITEBEHIND_FLUSH_INTERVAL_MS", kind: "u64", field: "Storage.WriteBehind.FlushInterval",
		meaning: "longest time between two flushes to the store, in milliseconds",
		set:     millis(func(s *Settings) *time.Duration { return &s.Server.Storage.WriteBehind.FlushInterval }),
		show:    func(s *Settings) string { return number(s.Server.Storage.WriteBehind.FlushInterval.Milliseconds()) },
	},
	{
		name: "SERVICE_WRITEBEHIND_BATCH_SIZE", kind: "usize", field: "Storage.WriteBehind.BatchSize",
		meaning: "records of a group written in one transaction",
		set:     whole(31, func(s *Settings, n uint64) { s.Server.Storage.WriteBehind.BatchSize = int(n) }),
		show:    func(s *Settings) string { return number(s.Server.Storage.WriteBehind.BatchSize) },
	},
	{
		name: "SERVICE_WRITEBEHIND_CAPACITY", kind: "usize", field: "Storage.WriteBehind.Capacity",
		meaning: "records that may wait for the store before writers are slowed",
		set:     whole(31, func(s *Settings, n uint64) { s.Server.Storage.WriteBehind.Capacity = int(n) }),
		show:    func(s *Settings) string { return number(s.Server.Storage.WriteBehind.Capacity) },
	},
}
