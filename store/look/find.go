package look

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Find reads the tasks with an id, whatever their state, in the order of their topics. It looks in
// the index of identities, under the names of all targets with tasks, so the number of tasks does
// not matter. allowed tells whether a task of a topic may be found; nil: all.
func (r Reader) Find(ctx context.Context, id string, allowed func(topic string) bool) ([]View, error) {
	topics, err := r.Targets(ctx, allowed)
	if err != nil {
		return nil, err
	}
	found, err := r.runs(ctx, tables.Idents(topics, func(topic string) [16]byte { return task.Ident(topic, id) }))
	out := make([]View, 0, len(found))
	for _, f := range found {
		if f.ID == id {
			out = append(out, f.View)
		}
	}
	slices.SortFunc(out, func(a, b View) int { return cmp.Compare(a.Topic, b.Topic) })
	return out, wrap.Err(err, "looking for the tasks with an id")
}

const (
	// laneRanges is how many parts of the lanes' numbers a statement looks at. Lanes are hashes, so
	// each part has its share.
	laneRanges = 64
	// laneRows is how many tasks are read where a lane begins. Two of some thousand targets may
	// share a lane; then both are known if each has one of these tasks.
	laneRows = 4
)

// Targets returns the names of the targets that have tasks, of any state. It goes from lane to lane
// in the index, and reads a few tasks of each.
func (r Reader) Targets(ctx context.Context, allowed func(topic string) bool) ([]string, error) {
	type head struct {
		part  int
		lane  int64
		topic string
	}
	table, known := r.h.Dialect.Use("tasks", "lane"), map[string]bool{}
	const width = (int64(task.MaxLane) + 1) / laneRanges
	after := map[int]int64{}
	for part := range laneRanges {
		after[part] = int64(part)*width - 1
	}
	for len(after) > 0 {
		var queries []string
		var a []any
		for part, lane := range after {
			queries = append(queries, fmt.Sprintf("SELECT * FROM (SELECT %d AS part, lane, topic FROM %s WHERE lane > ? AND lane < ? ORDER BY lane, pos LIMIT %d) AS part%d", part, table, laneRows, part))
			a = append(a, lane, int64(part+1)*width)
		}
		heads, err := tables.Ask(ctx, r.h.Reads(), func(r *sql.Rows, h *head) error { return r.Scan(&h.part, &h.lane, &h.topic) }, strings.Join(queries, " UNION ALL "), a...)
		if err != nil {
			return nil, fmt.Errorf("reading the names of the targets: %w", err)
		}
		clear(after)
		for _, h := range heads {
			known[h.topic] = allowed == nil || allowed(h.topic)
			after[h.part] = max(after[h.part], h.lane)
		}
	}
	var out []string
	for topic, may := range known {
		if may {
			out = append(out, topic)
		}
	}
	slices.Sort(out)
	return out, nil
}
