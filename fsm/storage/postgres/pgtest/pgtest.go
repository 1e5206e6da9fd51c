// Package pgtest runs a PostgreSQL server of the distribution for tests: in a directory of
// its own, reached over a Unix socket, as an unprivileged user.
package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrMissing says that the machine has no PostgreSQL.
var ErrMissing = errors.New("no PostgreSQL server found; install the package postgresql")

// Required reports whether a missing server is a failure: where REQUIRE_POSTGRES is set.
func Required() bool { return os.Getenv("REQUIRE_POSTGRES") != "" }

// startTimeout is generous: the machine may be busy with other tests.
const startTimeout = 2 * time.Minute

// Server is one server. Its methods are for one goroutine.
type Server struct {
	bin, dir string
	// credential is who runs the server, nil for the present user.
	credential *syscall.Credential
}

// Start makes a new server and starts it. Close removes it.
func Start() (*Server, error) {
	bin, err := findPrograms()
	if err != nil {
		return nil, err
	}
	// The path of a socket is short, so the directory is not one of testing.
	dir, err := os.MkdirTemp("", "quorate-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	if err := s.create(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// findPrograms returns the directory of the newest server's programs.
func findPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) > 0 {
		return filepath.Dir(slices.Max(found)), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", ErrMissing
}

func (s *Server) create() error {
	if os.Getuid() == 0 {
		if err := s.unprivileged(); err != nil {
			return err
		}
	}
	if err := s.run("initdb", "-D", s.data(), "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"); err != nil {
		return err
	}
	// What a test kills are processes, never the machine: without fsync is as durable.
	settings := fmt.Sprintf("listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\nshared_buffers = 16MB\nmax_connections = 100\n", s.dir)
	file, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(settings)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return s.Resume()
}

// unprivileged gives the directory to a user who is not root, which the server demands.
func (s *Server) unprivileged() error {
	var errs []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return err
		}
		s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return os.Chown(s.dir, int(uid), int(gid))
	}
	return fmt.Errorf("no unprivileged user: %w", errors.Join(errs...))
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out.Bytes())
	}
	return nil
}

// Resume starts the server after Kill.
func (s *Server) Resume() error {
	return s.run("pg_ctl", "-D", s.data(), "-l", filepath.Join(s.dir, "log"), "-w", "-t", "120", "-s", "start")
}

// Kill ends the server at once, as a crash does: connections break, and what was not
// committed is gone.
func (s *Server) Kill() error {
	return s.run("pg_ctl", "-D", s.data(), "-m", "immediate", "-s", "stop")
}

// Close kills the server if it runs, and removes everything.
func (s *Server) Close() error {
	if _, err := os.Stat(filepath.Join(s.data(), "postmaster.pid")); err == nil {
		if err := s.Kill(); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.dir)
}

// URL is the connection string of a database.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres:///%s?host=%s&user=postgres", database, s.dir)
}

// Exec runs SQL in a database.
func (s *Server) Exec(database, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Create makes an empty database and returns its connection string.
func (s *Server) Create(database string) (url string, err error) {
	return s.URL(database), s.Exec("postgres", "CREATE DATABASE "+pgx.Identifier{database}.Sanitize())
}

// Recreate replaces a database, whoever uses it, by an empty one of its name.
func (s *Server) Recreate(database string) error {
	name := pgx.Identifier{database}.Sanitize()
	if err := s.Exec("postgres", "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
		return err
	}
	_, err := s.Create(database)
	return err
}
