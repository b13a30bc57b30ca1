package store

import (
	"context"
	"database/sql"
	"sync"

	"go.uber.org/zap"
)

// preparedRows is how many rows a prepared statement has. The statements that every task goes
// through are prepared, because parsing their text costs the server about as much as executing
// them. Longer statements gain nothing.
const preparedRows = 128

// prepared keeps statements that each connection parses once.
type prepared struct {
	mu sync.Mutex
	by map[string]*sql.Stmt
}

// prepare returns a prepared statement, or nil: then the caller sends the text. It may need a
// connection of its own, so call it before a transaction.
func (s *Store) prepare(ctx context.Context, query string) *sql.Stmt {
	if !s.dialect.Prepares() {
		return nil
	}
	s.prepared.mu.Lock()
	defer s.prepared.mu.Unlock()
	stmt := s.prepared.by[query]
	if stmt != nil {
		return stmt
	}
	stmt, err := s.db.PrepareContext(ctx, query)
	if err != nil {
		s.log.Debug("preparing a statement failed", zap.Error(err))
		return nil
	}
	if s.prepared.by == nil {
		s.prepared.by = map[string]*sql.Stmt{}
	}
	s.prepared.by[query] = stmt
	return stmt
}

// query runs a query, prepared if it has preparedRows arguments.
func (s *Store) query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if len(args) == preparedRows {
		if stmt := s.prepare(ctx, query); stmt != nil {
			return stmt.QueryContext(ctx, args...)
		}
	}
	return s.db.QueryContext(ctx, query, args...)
}
