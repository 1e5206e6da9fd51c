package quorate

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/fsm/storage"
	"github.com/quorate/quorate/fsm/storage/postgres"
)

const (
	// initializedMeta is the document of the store which says that the node has seen the
	// table: from then on a database that is away is an outage, not a wrong setting.
	initializedMeta = "relational"
	// databasePatience is how long a new node waits for the database to answer.
	databasePatience = 30 * time.Second
)

// openTable returns the table of BackendRelational, nil for the others. A new node makes
// what is missing of it. A node that has seen it starts without the database too.
func (s *Server) openTable(ctx context.Context, store storage.Store) (*postgres.Table, error) {
	r := &s.cfg.Storage.Relational
	if s.cfg.Storage.Backend != BackendRelational {
		return nil, nil
	}
	pool := r.Pool
	if pool == nil {
		var err error
		if s.pool, err = postgres.Open(context.WithoutCancel(ctx), r.URL); err != nil {
			return nil, err
		}
		pool = s.pool
	}
	table, err := postgres.New(pool, r.Table)
	if err != nil {
		return nil, err
	}
	seen, err := store.Meta(initializedMeta)
	if err != nil || seen != nil {
		return table, err
	}
	if err := s.initialize(ctx, table); err != nil {
		return nil, err
	}
	if err := store.SetMeta(initializedMeta, []byte(table.Name())); err != nil {
		return nil, err
	}
	return table, nil
}

// initialize creates the table, again and again while the database does not answer.
func (s *Server) initialize(ctx context.Context, table *postgres.Table) error {
	ctx, cancel := context.WithTimeout(ctx, databasePatience)
	defer cancel()
	told := false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := table.Initialize(ctx)
		if err == nil {
			return nil
		}
		if !told {
			s.log.Warn("the database does not answer yet", "err", err)
			told = true
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("open the relational backend: %w", err)
		}
	}
}
