// Package letters reads, counts and forgets dead letters: tasks and requests that notyet has given
// up on. A filter goes in; a page of ids, a count, or letters come out. Other packages write them.
package letters

import (
	"context"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// Letters is a value without state of its own.
type Letters struct{ h *handle.Handle }

// New returns the dead letters of a store.
func New(st handle.Source) Letters { return Letters{handle.Of(st)} }

// Filter selects dead letters. The zero value selects all that were not replayed.
type Filter struct {
	IDs      []int64
	Kind     string
	Topic    string
	TaskID   string
	Tag      string // one of the task's; a rejected request has none
	Reason   string // a part of the reason
	Since    int64  // died at or after, Unix ms
	Until    int64  // died before, Unix ms; 0: no bound
	Replayed bool   // also those that were replayed
	Settled  int64  // with Replayed: not those replayed at or after it, Unix ms; 0: no bound
	After    int64  // only ids above it: pages go in the order of ids
	Newest   bool   // Select goes from UpTo down instead, and the next page is up to below Page.Next
	UpTo     int64  // only ids up to it, see Last; 0: no bound
	Limit    int    // 0: 100
	// Allowed tells whether a letter of the topic may be seen. nil: all.
	Allowed func(topic string) bool
}

// Read returns the existing letters with the given ids, which rise or fall, in their order.
func (ls Letters) Read(ctx context.Context, ids []int64, body bool) (out []task.DeadLetter, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	query := ls.h.Cold(ctx, "dead_letters").Where("id IN ?", ids).Order("id")
	if !body {
		query = query.Omit("body")
	}
	err = tables.Timely(query.Find(&out).Error)
	if ids[0] > ids[len(ids)-1] {
		slices.Reverse(out)
	}
	return out, wrap.Err(err, "reading %d dead letters", len(ids))
}
