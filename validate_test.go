package quorate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate"
)

func valid() quorate.ServerConfig {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.JWTSecret = "secret"
	return cfg
}

// fields returns the fields that err blames.
func fields(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var names []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var f *quorate.FieldError
		if !errors.As(e, &f) {
			t.Fatalf("%v is no FieldError", e)
		}
		names = append(names, f.Field)
	}
	return names
}

func TestDefaultsAreTheContracts(t *testing.T) {
	cfg := quorate.DefaultServerConfig()
	got := map[string]any{
		"default_operation_timeout_ms": cfg.DefaultOperationTimeout.Milliseconds(),
		"max_concurrent_operations":    cfg.MaxConcurrentOperations,
		"gc_interval_ms":               cfg.GCInterval.Milliseconds(),
		"partition_count":              cfg.PartitionCount,
		"host":                         cfg.BindHost(),
		"port":                         cfg.Network.Port,
		"cors_origins":                 len(cfg.Network.CORSOrigins),
		"request_timeout":              cfg.Network.RequestTimeout,
		"outbound_channel_capacity":    cfg.Network.Connection.OutboundChannelCapacity,
		"send_timeout":                 cfg.Network.Connection.SendTimeout,
		"idle_timeout":                 cfg.Network.Connection.IdleTimeout,
		"ws_write_buffer_size":         cfg.Network.Connection.WSWriteBufferSize,
		"ws_max_write_buffer_size":     cfg.Network.Connection.WSMaxWriteBufferSize,
	}
	want := map[string]any{
		"default_operation_timeout_ms": int64(30000),
		"max_concurrent_operations":    1000,
		"gc_interval_ms":               int64(60000),
		"partition_count":              271,
		"host":                         "0.0.0.0",
		"port":                         uint16(0),
		"cors_origins":                 0,
		"request_timeout":              30 * time.Second,
		"outbound_channel_capacity":    256,
		"send_timeout":                 5 * time.Second,
		"idle_timeout":                 60 * time.Second,
		"ws_write_buffer_size":         128 << 10,
		"ws_max_write_buffer_size":     512 << 10,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	cfg = valid()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheField(t *testing.T) {
	cases := map[string]func(*quorate.ServerConfig){
		"NodeID":                  func(c *quorate.ServerConfig) { c.NodeID = "" },
		"DefaultOperationTimeout": func(c *quorate.ServerConfig) { c.DefaultOperationTimeout = 0 },
		"MaxConcurrentOperations": func(c *quorate.ServerConfig) { c.MaxConcurrentOperations = 0 },
		"GCInterval":              func(c *quorate.ServerConfig) { c.GCInterval = 0 },
		"TombstoneAge":            func(c *quorate.ServerConfig) { c.TombstoneAge = -time.Second },
		"PartitionCount":          func(c *quorate.ServerConfig) { c.PartitionCount = 16 },
		"Network.Host":            func(c *quorate.ServerConfig) { c.Network.Host = "a:1" },
		"Network.TLS":             func(c *quorate.ServerConfig) { c.Network.TLS = &quorate.TLSConfig{} },
		"Network.RequestTimeout":  func(c *quorate.ServerConfig) { c.Network.RequestTimeout = -1 },
		"Network.CORSOrigins":     func(c *quorate.ServerConfig) { c.Network.CORSOrigins = []string{"x"} },
		"Network.Connection.OutboundChannelCapacity": func(c *quorate.ServerConfig) { c.Network.Connection.OutboundChannelCapacity = 0 },
		"Network.Connection.SendTimeout":             func(c *quorate.ServerConfig) { c.Network.Connection.SendTimeout = 0 },
		"Network.Connection.IdleTimeout":             func(c *quorate.ServerConfig) { c.Network.Connection.IdleTimeout = 0 },
		"Security.JWTSecret":                         func(c *quorate.ServerConfig) { c.Security.JWTSecret = "" },
		"Storage.Backend":                            func(c *quorate.ServerConfig) { c.Storage.Backend = "redis" },
		"Storage.Relational.URL":                     func(c *quorate.ServerConfig) { c.Storage.Backend = quorate.BackendRelational },
		"Storage.Relational.Table": func(c *quorate.ServerConfig) {
			c.Storage.Backend, c.Storage.Relational = quorate.BackendRelational, quorate.RelationalConfig{URL: "postgres://h/d", Table: "no-name"}
		},
		"Storage.Path":                      func(c *quorate.ServerConfig) { c.Storage.Path = "" },
		"Storage.Cache.MaxRAMMB":            func(c *quorate.ServerConfig) { c.Storage.Cache.MaxRAMMB = 15 },
		"Storage.Cache.HighPercent":         func(c *quorate.ServerConfig) { c.Storage.Cache.HighPercent = 101 },
		"Storage.Cache.LowPercent":          func(c *quorate.ServerConfig) { c.Storage.Cache.LowPercent = 85 },
		"Storage.Cache.Interval":            func(c *quorate.ServerConfig) { c.Storage.Cache.Interval = 0 },
		"Storage.WriteBehind.FlushInterval": func(c *quorate.ServerConfig) { c.Storage.WriteBehind.FlushInterval = 0 },
		"Storage.WriteBehind.BatchSize":     func(c *quorate.ServerConfig) { c.Storage.WriteBehind.BatchSize = 0 },
		"Storage.WriteBehind.Capacity":      func(c *quorate.ServerConfig) { c.Storage.WriteBehind.Capacity = 0 },
		"Cluster.Host":                      func(c *quorate.ServerConfig) { c.Cluster.Host = "" },
		"Cluster.Seeds":                     func(c *quorate.ServerConfig) { c.Cluster.Seeds = []string{"a:1", "a"} },
	}
	for field, spoil := range cases {
		t.Run(field, func(t *testing.T) {
			cfg := valid()
			spoil(&cfg)
			if diff := cmp.Diff([]string{field}, fields(t, cfg.Validate())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidateReportsEverythingAtOnceWithoutSecrets(t *testing.T) {
	var cfg quorate.ServerConfig
	cfg.Security.JWTSecret = "hunter2"
	err := cfg.Validate()
	if got := fields(t, err); len(got) < 10 {
		t.Errorf("only %v", got)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("a secret is printed")
	}
}

func TestBindHostIsLoopbackWithoutAuthentication(t *testing.T) {
	cases := []struct {
		host   string
		noAuth bool
		want   string
	}{
		{"", false, "0.0.0.0"},
		{"", true, "127.0.0.1"},
		{"0.0.0.0", true, "0.0.0.0"},
		{"[::]", false, "::"},
		{"localhost", true, "localhost"},
	}
	for _, c := range cases {
		cfg := valid()
		cfg.Network.Host, cfg.Security.NoAuth = c.host, c.noAuth
		if got := cfg.BindHost(); got != c.want {
			t.Errorf("host %q, no auth %v: binds %s, want %s", c.host, c.noAuth, got, c.want)
		}
	}
}
