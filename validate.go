package quorate

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/quorate/quorate/fsm/storage/postgres"
)

const (
	maxNodeIDLength = 64
	minCacheMB      = 16
	// maxCacheMB keeps the ceiling in bytes within 63 bits.
	maxCacheMB = 1 << 43
)

// Validate reports every problem of c at once, as *FieldError values joined with
// errors.Join; nil when c can be used. It touches neither disk nor network.
func (c *ServerConfig) Validate() error {
	v := &validation{}
	c.validateNode(v)
	c.validateNetwork(v)
	c.validateSecurity(v)
	c.validateStorage(v)
	c.validateCluster(v)
	return errors.Join(v.problems...)
}

type validation struct{ problems []error }

// check records a problem of field unless ok.
func (v *validation) check(ok bool, field, format string, args ...any) {
	if !ok {
		v.problems = append(v.problems, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
}

func (v *validation) positive(d time.Duration, field string) {
	v.check(d > 0, field, "must be greater than zero")
}

func (c *ServerConfig) validateNode(v *validation) {
	v.check(validNodeID(c.NodeID), "NodeID",
		"must be 1 to %d printable ASCII characters without space, '#', ':' and '/'", maxNodeIDLength)
	v.positive(c.DefaultOperationTimeout, "DefaultOperationTimeout")
	fixed := DefaultServerConfig()
	v.check(c.MaxConcurrentOperations > 0, "MaxConcurrentOperations", "must be greater than zero")
	v.positive(c.GCInterval, "GCInterval")
	v.positive(c.TombstoneAge, "TombstoneAge")
	v.check(c.PartitionCount == fixed.PartitionCount, "PartitionCount", "is fixed at %d", fixed.PartitionCount)
}

func (c *ServerConfig) validateNetwork(v *validation) {
	n := &c.Network
	v.check(validHost(n.Host, true), "Network.Host", "must be a host name or an IP address, without a port")
	v.check(n.TLS == nil || n.TLS.CertPath != "" && n.TLS.KeyPath != "", "Network.TLS", "must name a certificate and its key")
	v.positive(n.RequestTimeout, "Network.RequestTimeout")
	v.check(n.Connection.OutboundChannelCapacity > 0, "Network.Connection.OutboundChannelCapacity", "must be greater than zero")
	v.positive(n.Connection.SendTimeout, "Network.Connection.SendTimeout")
	v.positive(n.Connection.IdleTimeout, "Network.Connection.IdleTimeout")
	v.check(n.Connection.WSWriteBufferSize > 0, "Network.Connection.WSWriteBufferSize", "must be greater than zero")
	v.check(n.Connection.WSMaxWriteBufferSize >= n.Connection.WSWriteBufferSize, "Network.Connection.WSMaxWriteBufferSize",
		"must not be below WSWriteBufferSize")
	for _, o := range n.CORSOrigins {
		v.check(validOrigin(o), "Network.CORSOrigins", "%q is not an origin such as https://app.example.com, nor *", o)
	}
}

func (c *ServerConfig) validateSecurity(v *validation) {
	v.check(c.Security.JWTSecret != "" || c.Security.NoAuth, "Security.JWTSecret",
		"must be set unless authentication is off")
	v.check(c.Admin.Username != "", "Admin.Username", "must not be empty")
}

func (c *ServerConfig) validateStorage(v *validation) {
	s := &c.Storage
	switch s.Backend {
	case BackendEmbedded:
		v.check(s.Path != "", "Storage.Path", "must name a file")
	case BackendRelational:
		v.check(s.Path != "", "Storage.Path", "must name a file")
		c.validateRelational(v)
	case BackendNull:
	default:
		v.check(false, "Storage.Backend", "%q is not one of embedded, relational, null", s.Backend)
	}
	k := &s.Cache
	v.check(k.MaxRAMMB >= minCacheMB && k.MaxRAMMB <= maxCacheMB, "Storage.Cache.MaxRAMMB", "must be at least %d", minCacheMB)
	v.check(k.HighPercent <= 100, "Storage.Cache.HighPercent", "must be at most 100")
	v.check(k.LowPercent > 0 && k.LowPercent < k.HighPercent, "Storage.Cache.LowPercent",
		"must be greater than zero and below the high water mark (%d)", k.HighPercent)
	v.positive(k.Interval, "Storage.Cache.Interval")
	w := &s.WriteBehind
	v.positive(w.FlushInterval, "Storage.WriteBehind.FlushInterval")
	v.check(w.BatchSize > 0, "Storage.WriteBehind.BatchSize", "must be greater than zero")
	v.check(w.Capacity > 0, "Storage.WriteBehind.Capacity", "must be greater than zero")
}

func (c *ServerConfig) validateRelational(v *validation) {
	r := &c.Storage.Relational
	switch {
	case r.Pool != nil:
		v.check(r.URL == "", "Storage.Relational.URL", "must be empty when a pool is given")
	case r.URL == "":
		v.check(false, "Storage.Relational.URL", "must be set for the backend relational")
	default:
		// What is wrong is not repeated: the string may hold a password.
		_, err := postgres.ParseURL(r.URL)
		v.check(err == nil, "Storage.Relational.URL", "is not a PostgreSQL connection string")
	}
	v.check(r.Table == "" || postgres.ValidTable(r.Table) == nil, "Storage.Relational.Table",
		"must be letters, digits and '_', no digit in front, at most 40 characters")
}

func (c *ServerConfig) validateCluster(v *validation) {
	k := &c.Cluster
	v.check(validHost(k.Host, false), "Cluster.Host", "must be a host name or an IP address, without a port")
	ip := net.ParseIP(unbracket(k.Host))
	v.check(ip == nil || !ip.IsUnspecified(), "Cluster.Host", "must be an address that others can dial, not %s", k.Host)
	for _, seed := range k.Seeds {
		v.check(validSeed(seed), "Cluster.Seeds", "%q is not host:port", seed)
	}
}

func validNodeID(id string) bool {
	if id == "" || len(id) > maxNodeIDLength {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' || strings.IndexByte("#:/", id[i]) >= 0 {
			return false
		}
	}
	return true
}

// validHost admits names and IP literals; a colon outside an IPv6 literal would
// be a port.
func validHost(host string, empty bool) bool {
	if host == "" {
		return empty
	}
	bare := unbracket(host)
	if strings.Contains(bare, ":") {
		ip, _, _ := strings.Cut(bare, "%")
		return net.ParseIP(ip) != nil
	}
	return bare == host && !strings.ContainsAny(host, " \t\r\n/[]#?@")
}

func unbracket(host string) string {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			return inner
		}
	}
	return host
}

func validSeed(seed string) bool {
	host, port, err := net.SplitHostPort(seed)
	if err != nil || !validHost(host, false) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func validOrigin(origin string) bool {
	if origin == "*" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme != "" && u.Host != "" && u.Path == "" && u.RawQuery == "" &&
		u.Fragment == "" && u.User == nil && !u.ForceQuery
}
