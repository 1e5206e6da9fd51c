package mirror

import (
	"context"

	"github.com/quorate/quorate/fsm/storage/postgres"
)

// Table is the table of the cluster as a Mirror uses it; see postgres.Table.
type Table interface {
	Name() string
	Adopt(o postgres.Owner) string
	Claim(ctx context.Context, cluster, instance string) (postgres.Owner, Session, error)
	Join(ctx context.Context) (Session, error)
	Owner(ctx context.Context) (postgres.Owner, error)
	Scan(ctx context.Context, fn func(postgres.Row) error) error
	Write(ctx context.Context, b postgres.Batch) (postgres.Position, error)
}

// Session is a node's use of the table; see postgres.Session.
type Session interface {
	Check(ctx context.Context) error
	Close(ctx context.Context) error
}

// Postgres adapts a table in PostgreSQL to Table.
type Postgres struct {
	*postgres.Table
}

// Claim implements Table.
func (p Postgres) Claim(ctx context.Context, cluster, instance string) (postgres.Owner, Session, error) {
	owner, session, err := p.Table.Claim(ctx, cluster, instance)
	if err != nil {
		return postgres.Owner{}, nil, err
	}
	return owner, session, nil
}

// Join implements Table.
func (p Postgres) Join(ctx context.Context) (Session, error) {
	session, err := p.Table.Join(ctx)
	if err != nil {
		return nil, err
	}
	return session, nil
}
