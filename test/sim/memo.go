package sim

import (
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// memo keeps answers of the database until the next write: what idles asks the same again and again, and SQLite parses a question each
// time.
type memo struct {
	writes  atomic.Int64
	mu      sync.Mutex
	at      int64 // writes, when the answers were kept
	answers map[string]*answer
}

type answer struct {
	columns []string
	rows    [][]driver.Value
}

// changed is called after each write.
func (m *memo) changed() { m.writes.Add(1) }

func question(query string, args []driver.NamedValue) string {
	var b strings.Builder
	b.WriteString(query)
	for _, a := range args {
		fmt.Fprintf(&b, "\x00%v", a.Value)
	}
	return b.String()
}

// ask answers a question outside of a transaction from memory, if nothing was written since it was asked.
func (m *memo) ask(query string, args []driver.NamedValue, really func() (driver.Rows, error)) (driver.Rows, error) {
	key, now := question(query, args), m.writes.Load()
	m.mu.Lock()
	if m.at != now {
		m.at, m.answers = now, nil
	}
	a := m.answers[key]
	m.mu.Unlock()
	if a != nil {
		return &replay{answer: a}, nil
	}
	rows, err := really()
	if err != nil {
		return nil, err
	}
	if a, err = readAll(rows); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == now && m.writes.Load() == now {
		if m.answers == nil {
			m.answers = map[string]*answer{}
		}
		m.answers[key] = a
	}
	return &replay{answer: a}, nil
}

func readAll(rows driver.Rows) (*answer, error) {
	defer func() { _ = rows.Close() }()
	a := &answer{columns: rows.Columns()}
	for {
		row := make([]driver.Value, len(a.columns))
		switch err := rows.Next(row); err {
		case nil:
			a.rows = append(a.rows, row)
		case io.EOF:
			return a, nil
		default:
			return nil, err
		}
	}
}

// replay is an answer as the caller reads it.
type replay struct {
	*answer
	next int
}

func (r *replay) Columns() []string { return r.columns }
func (r *replay) Close() error      { return nil }
func (r *replay) Next(row []driver.Value) error {
	if r.next == len(r.rows) {
		return io.EOF
	}
	copy(row, r.rows[r.next])
	r.next++
	return nil
}
