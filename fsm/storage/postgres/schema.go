package postgres

import (
	"context"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DefaultTable is the name of the table unless another one is given.
const DefaultTable = "service_maps"

// maxTableName leaves room for what is appended to it: PostgreSQL cuts longer names off
// without a word, and two of them would be one.
const maxTableName = 40

var tableName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// ValidTable reports what is wrong with a table name; nil if nothing is.
func ValidTable(name string) error {
	if !tableName.MatchString(name) || len(name) > maxTableName {
		return fmt.Errorf("%w: %q does not match %s in at most %d characters", ErrName, name, tableName, maxTableName)
	}
	return nil
}

// Table is the table of one cluster in a database. All methods are safe for concurrent
// use.
type Table struct {
	pool *pgxpool.Pool
	name string
	sql  statements
}

// New returns the table with the given name, empty for DefaultTable. It does not touch
// the database. A name that is not allowed is ErrName. The pool stays the caller's.
func New(pool *pgxpool.Pool, name string) (*Table, error) {
	if name == "" {
		name = DefaultTable
	}
	if err := ValidTable(name); err != nil {
		return nil, err
	}
	return &Table{pool: pool, name: name, sql: newStatements(name)}, nil
}

// Name is the name of the table.
func (t *Table) Name() string { return t.name }

// ParseURL reads a connection string. Sessions commit synchronously, unless the database
// waits for even more, and end soon after the node is gone.
func ParseURL(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read connection string: %w", err)
	}
	for name, value := range map[string]string{
		"application_name": "quorate", "tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		if _, given := cfg.ConnConfig.RuntimeParams[name]; !given {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
	return cfg, nil
}

// Open returns a pool for the connection string. It does not connect yet.
func Open(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return pool, nil
}

// quoted is an identifier in SQL. The pattern of table names holds nothing that would
// need it, but a name may be a word of the language.
func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// Initialize creates what is missing of the table. What is there stays.
func (t *Table) Initialize(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		// Several nodes may start at once, and CREATE IF NOT EXISTS is not made for that.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))", t.lockName()); err != nil {
			return err
		}
		for _, statement := range t.schema() {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("initialize table %s: %w", t.name, err)
	}
	return nil
}

// schema creates the tables. The columns behind updated_at are the guard of a row: the
// claim, the leader's term and the log index by which it was written.
func (t *Table) schema() []string {
	rows, owner, groups := quoted(t.name), quoted(t.name+"_owner"), quoted(t.name+"_groups")
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + rows + ` (
			map_name TEXT NOT NULL, key TEXT NOT NULL, value BYTEA NOT NULL,
			expiration_time BIGINT NOT NULL DEFAULT 0, is_backup BOOLEAN NOT NULL DEFAULT false,
			created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
			PRIMARY KEY (map_name, key, is_backup))`,
		`ALTER TABLE ` + rows + `
			ADD COLUMN IF NOT EXISTS epoch BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS log_group BIGINT NOT NULL DEFAULT 0,
			ADD COLUMN IF NOT EXISTS log_term BIGINT NOT NULL DEFAULT 0, ADD COLUMN IF NOT EXISTS log_index BIGINT NOT NULL DEFAULT 0,
			ADD COLUMN IF NOT EXISTS removed_at BIGINT NOT NULL DEFAULT 0`,
		`CREATE INDEX IF NOT EXISTS ` + quoted("idx_"+t.name+"_map") + ` ON ` + rows + ` (map_name)`,
		`CREATE INDEX IF NOT EXISTS ` + quoted("idx_"+t.name+"_expiry") + ` ON ` + rows + ` (map_name, expiration_time) WHERE expiration_time > 0`,
		`CREATE INDEX IF NOT EXISTS ` + quoted("idx_"+t.name+"_removed") + ` ON ` + rows + ` (log_group, removed_at) WHERE removed_at > 0`,
		`CREATE TABLE IF NOT EXISTS ` + owner + ` (
			single BOOLEAN PRIMARY KEY DEFAULT true CHECK (single),
			cluster TEXT NOT NULL, instance TEXT NOT NULL, epoch BIGINT NOT NULL, token BIGINT NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS ` + groups + ` (
			log_group BIGINT PRIMARY KEY, epoch BIGINT NOT NULL,
			log_term BIGINT NOT NULL, log_index BIGINT NOT NULL, sequence BIGINT NOT NULL, token BIGINT NOT NULL)`,
	}
}

// lockName is what the locks of the table are named after. Tables of one name in several
// schemas share it, which only makes them wait for each other.
func (t *Table) lockName() string { return "quorate." + t.name }
