package store

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/notyet/notyet/internal/election/roll"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// Roll keeps the election, where dispatchers elect through the database, over a connection beside
// the pool: tasks' use of the pool must not cost a dispatcher its slots. Each call is one
// statement, so a process stopped in between holds no lock.
type Roll struct {
	store *Store
	db    *sql.DB // nil: the store's
}

// Roll opens the Roll. Close it before the store.
func (s *Store) Roll() *Roll {
	r := &Roll{store: s}
	if s.apart != nil {
		r.db = sql.OpenDB(s.apart)
		s.dialect.Pool(r.db, 1, handle.IdleTimeout/2)
		r.db.SetConnMaxLifetime(0) // at the server's limit of connections, somebody else might take the place of one that is renewed
	}
	return r
}

// Close closes the connection.
func (r *Roll) Close() {
	if r.db != nil {
		_ = r.db.Close()
	}
}

// exec runs a writing statement, and returns how many rows it has found.
func (r *Roll) exec(ctx context.Context, query string, args ...any) (int64, error) {
	var res sql.Result
	var err error
	if r.db == nil {
		res, err = r.store.h.Exec(ctx, query, args...)
	} else {
		res, err = r.db.ExecContext(ctx, query, args...)
		err = r.store.dialect.Done(ctx, err)
	}
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// Join adds a candidate. One with this Instance gets this Beat and Data.
func (r *Roll) Join(ctx context.Context, c roll.Candidate) error {
	again := r.store.dialect.Upsert("instance", "beat", "data")
	_, err := r.exec(ctx, "INSERT INTO members (instance, id, beat, data) VALUES (?, ?, ?, ?)"+again, []byte(c.Instance), []byte(c.ID), c.Beat, c.Data)
	return wrap.Err(err, "joining the election")
}

// Beat changes a candidate's Beat and Data, and tells whether the candidate is there.
func (r *Roll) Beat(ctx context.Context, c roll.Candidate) (bool, error) {
	n, err := r.exec(ctx, "UPDATE members SET beat = ?, data = ? WHERE instance = ?", c.Beat, c.Data, []byte(c.Instance))
	return n > 0, wrap.Err(err, "showing the other dispatchers that this one lives")
}

// Remove removes a candidate with this Beat, and tells whether there was one.
func (r *Roll) Remove(ctx context.Context, c roll.Candidate) (bool, error) {
	n, err := r.exec(ctx, "DELETE FROM members WHERE instance = ? AND beat = ?", []byte(c.Instance), c.Beat)
	return n > 0, wrap.Err(err, "removing a silent member from the election")
}

// Leave removes a candidate, unless it has shown a later Beat.
func (r *Roll) Leave(ctx context.Context, c roll.Candidate) error {
	_, err := r.exec(ctx, "DELETE FROM members WHERE instance = ? AND beat <= ?", []byte(c.Instance), c.Beat)
	return wrap.Err(err, "leaving the election")
}

// Publish replaces the assignment of the epoch before, in the name of a candidate, and tells
// whether both were there. An epoch is never published twice, so the epoch before proves that
// nobody wrote meanwhile.
func (r *Roll) Publish(ctx context.Context, by roll.Candidate, before, epoch int64, data []byte) (bool, error) {
	query := "UPDATE assignment SET epoch = ?, leader = ?, data = ? WHERE one = 1 AND EXISTS (SELECT 1 FROM members WHERE instance = ?) AND epoch = ?"
	args := []any{epoch, []byte(by.ID), data, []byte(by.Instance), before}
	if before == 0 {
		query = "INSERT INTO assignment (one, epoch, leader, data) SELECT 1, ?, ?, ? FROM members WHERE instance = ?"
		args = args[:4]
	}
	n, err := r.exec(ctx, query, args...)
	switch {
	case err != nil && handle.Duplicate(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("publishing the assignment of slots: %w", err)
	}
	return n > 0, nil
}

// Read reads everything: the assignment first, then the candidates in the order of Seq.
func (r *Roll) Read(ctx context.Context) (page roll.Page, err error) {
	db := r.db
	if db == nil {
		db = r.store.db
	}
	var epoch sql.NullInt64
	err = db.QueryRowContext(ctx, "SELECT "+r.store.h.Life+", a.epoch, a.data FROM (SELECT 1 AS one) AS o LEFT JOIN assignment a ON a.one = o.one").Scan(&page.Life, &epoch, &page.Data)
	if err != nil {
		return page, fmt.Errorf("reading the assignment of slots: %w", err)
	}
	page.Epoch = epoch.Int64
	page.Candidates, err = tables.Fetch(ctx, db, func(rows *sql.Rows, c *roll.Candidate) error {
		return rows.Scan(&c.Seq, &c.Instance, &c.ID, &c.Beat, &c.Data)
	}, "SELECT seq, instance, id, beat, data FROM members ORDER BY seq")
	return page, wrap.Err(err, "reading the members of the election")
}
