package handle

import (
	"context"
	"database/sql"
	"sync"

	"go.uber.org/zap"
)

// PreparedRows is how many rows a prepared statement has. The statements that every task goes
// through are prepared, because parsing their text costs the server about as much as executing
// them. Longer statements gain nothing.
const PreparedRows = 128

// prepared keeps statements that each connection parses once.
type prepared struct {
	mu sync.Mutex
	by map[string]*sql.Stmt
}

// Prepare returns a prepared statement, or nil: then the caller sends the text. It may need a
// connection of its own, so call it before a transaction.
func (h *Handle) Prepare(ctx context.Context, query string) *sql.Stmt {
	if !h.Dialect.Prepares() {
		return nil
	}
	h.prepared.mu.Lock()
	defer h.prepared.mu.Unlock()
	stmt := h.prepared.by[query]
	if stmt != nil {
		return stmt
	}
	stmt, err := h.DB.PrepareContext(ctx, query)
	if err != nil {
		h.Log.Debug("preparing a statement failed", zap.Error(err))
		return nil
	}
	if h.prepared.by == nil {
		h.prepared.by = map[string]*sql.Stmt{}
	}
	h.prepared.by[query] = stmt
	return stmt
}

// Query runs a query, prepared if it has PreparedRows arguments.
func (h *Handle) Query(ctx context.Context, query string, args []any) (*sql.Rows, error) {
	if len(args) == PreparedRows {
		if stmt := h.Prepare(ctx, query); stmt != nil {
			return stmt.QueryContext(ctx, args...)
		}
	}
	return h.DB.QueryContext(ctx, query, args...)
}
