package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Errors by class. Any other error of a call leaves open whether it took effect: the
// database is away, slow, or refused the transaction for the moment. Every call can be
// repeated.
var (
	// ErrName: the table name is not one.
	ErrName = errors.New("invalid table name")
	// ErrForeign: the table belongs to another cluster, or to none, or it is not there:
	// this is not the database that the cluster writes to.
	ErrForeign = errors.New("the table is not the cluster's")
	// ErrInUse: nodes of another cluster use the table.
	ErrInUse = errors.New("the table is used by another cluster")
	// ErrDeposed: a leader of a later term writes the group.
	ErrDeposed = errors.New("a later leader writes the group")
)

// RejectedError says that the database takes a row neither now nor later.
type RejectedError struct {
	Map, Key string
	Err      error
}

// Error names the key and what the database said.
func (e *RejectedError) Error() string {
	return fmt.Sprintf("the database refuses key %q of map %q: %v", e.Key, e.Map, e.Err)
}

// Unwrap returns what the database said.
func (e *RejectedError) Unwrap() error { return e.Err }

// BackError says that the database has lost what it had committed.
type BackError struct {
	// Found is how far the group is written now.
	Found Position
}

// Error says how far the group is written now.
func (e *BackError) Error() string {
	return fmt.Sprintf("the database has lost transactions: it is at sequence %d, index %d", e.Found.Sequence, e.Found.Index)
}

// Classes of SQLSTATE.
const (
	undefinedTable  = "42P01"
	undefinedColumn = "42703"
	undefinedSchema = "3F000"
	unknownDatabase = "3D000"
)

// refusesData reports whether err is about the values of rows, so that another
// transaction with the same rows fails too.
func refusesData(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	// Data exceptions, violated constraints, exceeded limits of the program, and what a
	// trigger raised.
	for _, class := range []string{"22", "23", "54", "P0"} {
		if strings.HasPrefix(pg.Code, class) {
			return true
		}
	}
	return false
}

// Retry reports whether the database refused a transaction because of others at the same
// time, so that the next attempt need not wait.
func Retry(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

// classify names what a missing table means.
func classify(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case undefinedTable, undefinedColumn, undefinedSchema, unknownDatabase:
			return fmt.Errorf("%w: %w", ErrForeign, err)
		}
	}
	return err
}

// Class is a short name of what kind of error err is, for metrics and logs.
func Class(err error) string {
	var pg *pgconn.PgError
	var back *BackError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &back):
		return "back"
	case errors.Is(err, ErrForeign), errors.Is(err, ErrInUse):
		return "foreign"
	case errors.Is(err, ErrDeposed):
		return "deposed"
	case Retry(err):
		return "conflict"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &pg):
		return "refused"
	default:
		return "unreachable"
	}
}
