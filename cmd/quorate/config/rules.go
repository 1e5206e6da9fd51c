package config

import (
	"fmt"
	"maps"
	"net"
	"slices"
)

// checkCombination finds the problems that no single setting has.
func (s *Settings) checkCombination() []Problem {
	var problems []Problem
	if !s.isGiven("node-id") && len(s.Server.Cluster.Seeds) > 0 {
		// Every node would have the same default id, and a cluster refuses the second.
		problems = append(problems, Problem{Name: "--node-id", Reason: "must be given together with --seed-nodes"})
	}
	return append(problems, s.Embedding.problems()...)
}

// Warnings returns what an operator should know about settings that can be used,
// one line each. It never contains a secret.
func (s *Settings) Warnings() []string {
	var lines []string
	for i := range table {
		r := &table[i]
		if _, ok := s.given[r]; ok && r.inert != "" {
			lines = append(lines, fmt.Sprintf("%s has no effect: %s", s.label(r), r.inert))
		}
	}
	if s.isGiven("SERVICE_VECTOR_MAPS") && s.Embedding.Provider == "" {
		lines = append(lines, "SERVICE_VECTOR_MAPS has no effect: no embedding provider is set")
	}
	if s.Server.Security.NoAuth && !loopback(s.Server.BindHost()) {
		lines = append(lines, "authentication is off and the server listens on "+s.Server.BindHost()+
			": anyone who reaches it can read and write everything")
	}
	if !s.Server.Security.NoAuth && s.Server.Admin.Password == "" {
		lines = append(lines, "SERVICE_ADMIN_PASSWORD is not set: nobody can log in to the admin API")
	}
	if len(s.Server.Cluster.Seeds) > 0 && loopback(s.Server.Cluster.Host) && slices.ContainsFunc(s.Server.Cluster.Seeds, remoteSeed) {
		lines = append(lines, "--host is "+s.Server.Cluster.Host+
			": nodes and clients on other machines are told to reach this node there and cannot")
	}
	return lines
}

func remoteSeed(seed string) bool {
	host, _, err := net.SplitHostPort(seed)
	return err == nil && !loopback(host)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
