package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quorate/quorate/fsm/system"
)

// Owner is which cluster owns a table, by which claim.
type Owner struct {
	Cluster string
	system.Database
}

// Adopt returns the text of the statement by which an operator gives the owner another
// database, empty or restored, in place of the one of before.
func (t *Table) Adopt(o Owner) string {
	return fmt.Sprintf("INSERT INTO %s (cluster, instance, epoch, token) VALUES ('%s', '%s', %d, %d)",
		quoted(t.name+"_owner"), o.Cluster, o.Instance, o.Epoch, o.Token)
}

// Session is a node's use of the table: while it is open, no other cluster can claim the
// table.
type Session struct{ conn *pgxpool.Conn }

// Join opens a session. ErrInUse: another cluster is claiming the table at the moment.
func (t *Table) Join(ctx context.Context) (*Session, error) {
	return t.lock(ctx, "SELECT pg_try_advisory_lock_shared(hashtextextended($1, 0))")
}

func (t *Table) lock(ctx context.Context, statement string) (*Session, error) {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	granted := false
	if err := conn.QueryRow(ctx, statement, t.lockName()).Scan(&granted); err != nil || !granted {
		s := &Session{conn}
		if err == nil {
			err = ErrInUse
		}
		return nil, errors.Join(fmt.Errorf("lock table %s: %w", t.name, err), s.Close(ctx))
	}
	return &Session{conn}, nil
}

// Check reports whether the session still holds: an error means that it does not.
func (s *Session) Check(ctx context.Context) error {
	if err := s.conn.Ping(ctx); err != nil {
		return fmt.Errorf("check session: %w", err)
	}
	return nil
}

// Close ends the session. Its connection, which holds locks, is not used again.
func (s *Session) Close(ctx context.Context) error {
	conn := s.conn.Hijack()
	// What the server says at the end changes nothing: without its connection a session is over.
	_ = conn.Close(ctx)
	return nil
}

// Claim makes the table that of a cluster, and returns the claim: a new one named
// instance, unless the table is the cluster's already. It fails with ErrInUse while nodes
// of another cluster have sessions. The caller must have no session open, and gets one.
func (t *Table) Claim(ctx context.Context, cluster, instance string) (Owner, *Session, error) {
	s, err := t.lock(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))")
	if err != nil {
		return Owner{}, nil, err
	}
	var owner Owner
	err = pgx.BeginFunc(ctx, s.conn, func(tx pgx.Tx) (err error) {
		owner, err = t.claim(ctx, tx, cluster, instance)
		return err
	})
	if err == nil {
		// From alone in the table to one of its users, without a moment in between.
		_, err = s.conn.Exec(ctx, "SELECT pg_advisory_lock_shared(hashtextextended($1, 0)), pg_advisory_unlock(hashtextextended($1, 0))", t.lockName())
	}
	if err != nil {
		return Owner{}, nil, errors.Join(fmt.Errorf("claim table %s: %w", t.name, classify(err)), s.Close(ctx))
	}
	return owner, s, nil
}

func (t *Table) claim(ctx context.Context, tx pgx.Tx, cluster, instance string) (Owner, error) {
	owner, err := t.owner(ctx, tx, "FOR UPDATE")
	switch {
	case err == nil && owner.Cluster == cluster:
		return owner, nil
	case err != nil && !errors.Is(err, pgx.ErrNoRows):
		return Owner{}, err
	}
	var token int64
	if err := tx.QueryRow(ctx, t.sql.greatestToken).Scan(&token); err != nil {
		return Owner{}, err
	}
	next := Owner{cluster, system.Database{Instance: instance, Epoch: owner.Epoch + 1, Token: max(owner.Token, uint64(token))}}
	if _, err := tx.Exec(ctx, t.sql.setOwner, next.Cluster, next.Instance, next.Epoch, next.Token); err != nil {
		return Owner{}, err
	}
	_, err = tx.Exec(ctx, t.sql.forgetGroups)
	return next, err
}

// owner reads the owner; pgx.ErrNoRows if there is none.
func (t *Table) owner(ctx context.Context, tx pgx.Tx, lock string) (o Owner, err error) {
	err = tx.QueryRow(ctx, t.sql.owner+lock).Scan(&o.Cluster, &o.Instance, &o.Epoch, &o.Token)
	return o, err
}

// Owner returns who owns the table. ErrForeign: nobody.
func (t *Table) Owner(ctx context.Context) (o Owner, err error) {
	err = pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) (err error) {
		o, err = t.owner(ctx, tx, "")
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: it has no owner", ErrForeign)
	}
	if err != nil {
		return Owner{}, fmt.Errorf("read owner of table %s: %w", t.name, classify(err))
	}
	return o, nil
}
