package raftnode

import "github.com/hashicorp/go-hclog"

// demoted has the library's messages that are errors to it and not to us: they come
// with every message to a peer that is down, which peers reports once, or name
// what the caller is told anyway.
var demoted = map[string]hclog.Level{
	"failed to heartbeat to":                    hclog.Debug,
	"failed to appendEntries to":                hclog.Debug,
	"failed to make requestVote RPC":            hclog.Debug,
	"failed to install snapshot":                hclog.Warn,
	"failed to send snapshot to":                hclog.Debug,
	"failed to take snapshot":                   hclog.Debug,
	"failed to get log":                         hclog.Debug,
	"peer has newer term, stopping replication": hclog.Debug,
}

// quiet is a logger that logs some errors at a lower level.
type quiet struct {
	hclog.Logger
	// level is that of an error message.
	level func(message string) hclog.Level
}

// quieten returns the logger for an instance of the library.
func quieten(logger hclog.Logger) hclog.Logger {
	return quiet{logger, func(message string) hclog.Level {
		if level, ok := demoted[message]; ok {
			return level
		}
		return hclog.Error
	}}
}

// quietenAll returns the logger for a transport, whose errors are those of single
// connections.
func quietenAll(logger hclog.Logger) hclog.Logger {
	return quiet{logger, func(string) hclog.Level { return hclog.Debug }}
}

// Error implements hclog.Logger.
func (q quiet) Error(message string, args ...any) {
	q.Log(q.level(message), message, args...)
}
