package quorate_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/quorate/quorate"
)

// A node in memory, without authentication, on a port that the system chooses.
func Example() {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "embedded"
	cfg.Security.NoAuth = true
	cfg.Storage.Backend = quorate.BackendNull
	server, err := quorate.New(cfg, quorate.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	port, err := server.Start()
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()

	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/health/live", port))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = resp.Body.Close()
	fmt.Println("live:", resp.StatusCode)
	stop()
	fmt.Println("served:", <-served)
	// Output:
	// live: 200
	// served: <nil>
}

// Several servers in one process form a cluster by their cluster ports.
func Example_cluster() {
	const seeds = "127.0.0.1:17411"
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for _, node := range []struct {
		id   string
		port uint16
	}{{"n1", 17411}, {"n2", 17412}} {
		cfg := quorate.DefaultServerConfig()
		cfg.NodeID = node.id
		cfg.Network.Host = "127.0.0.1"
		cfg.Security.JWTSecret = "at least 32 random bytes, the same on all"
		cfg.Storage.Path = "/var/lib/quorate/" + node.id + ".db"
		cfg.Cluster.Port = node.port
		cfg.Cluster.Seeds = []string{seeds}
		server, err := quorate.New(cfg, quorate.Deps{})
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := server.Start(); err != nil {
			fmt.Println(err)
			return
		}
		go func() {
			if err := server.Serve(ctx); err != nil {
				fmt.Println(err)
			}
		}()
	}
	<-ctx.Done()
}

// Clients connect over TLS; the files are read again when they change.
func ExampleTLSConfig() {
	cfg := quorate.DefaultServerConfig()
	cfg.NodeID = "n1"
	cfg.Security.JWTSecret = "at least 32 random bytes"
	cfg.Network.TLS = &quorate.TLSConfig{CertPath: "/etc/quorate/cert.pem", KeyPath: "/etc/quorate/key.pem"}
	fmt.Println(cfg.Validate())
	// Output: <nil>
}

// Validate reports all problems at once, each with the field that is to blame.
func ExampleServerConfig_Validate() {
	cfg := quorate.DefaultServerConfig()
	cfg.Storage.WriteBehind.BatchSize = 0
	fmt.Println(cfg.Validate())
	// Output:
	// NodeID must be 1 to 64 printable ASCII characters without space, '#', ':' and '/'
	// Security.JWTSecret must be set unless authentication is off
	// Storage.WriteBehind.BatchSize must be greater than zero
}
