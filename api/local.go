package api

import (
	"context"
	"time"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// Local reads one database. Fleet has the same methods for several.
type Local struct {
	store *store.Store
	lists *share.Turns
	*deadletter.Local

	// Lag returns how far the intake is stored. nil: nobody asks Kafka.
	Lag func(ctx context.Context) ([]Lag, error)

	Cancels CancelsConfig // its defaults are there, except for Kafka

	overview  *overviewer
	changes   *share.Turns  // of many tasks or dead letters
	changeFor time.Duration // how long one request changes many
}

// NewLocal returns a Local over the store and its dead letters.
func NewLocal(st *store.Store, dead *deadletter.Local) *Local {
	return &Local{store: st, lists: share.NewTurns(listsAtOnce, 2, listsAtOnce), Local: dead, overview: newOverviewer(st), changes: share.NewTurns(changesAtOnce, 1, changesAtOnce), changeFor: changeBudget,
		Cancels: CancelsConfig{Topic: schemas.TopicCancels, Tasks: 900, Ahead: 4}}
}

// Lists read many rows, hence limits of their number at a time and of their duration.
const (
	listsAtOnce = 6
	listTimeout = 5 * time.Second
)

const (
	// changeBudget is how long one request may change many. A larger one goes on with the cursor.
	changeBudget = 40 * time.Second
	// cancelPatience is for how much longer a request waits for its published cancels, and
	// cancelLook the time between two looks.
	cancelPatience = 5 * time.Second
	cancelLook     = 20 * time.Millisecond
	// changesAtOnce is how many requests change many tasks at a time. Each takes a turn for each
	// piece, so a small one does not wait for the end of a large one.
	changesAtOnce = 1
)

// budgetKey is of a context whose requests have another time than changeBudget.
type budgetKey struct{}

// budget is how long one request changes many.
func (l *Local) budget(ctx context.Context) time.Duration {
	if d, ok := ctx.Value(budgetKey{}).(time.Duration); ok {
		return min(d, l.changeFor)
	}
	return l.changeFor
}

// listing reads one of the few lists allowed at a time.
//
// A leaving caller's turn ends with the running statement: the database completes statements, and
// ones without a waiting caller must not pile up there.
func listing[T any](ctx context.Context, l *Local, read func(context.Context) (T, error)) (out T, err error) {
	leave, err := l.lists.Take(ctx, access.From(ctx).Account(), 1)
	if err != nil {
		return out, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), listTimeout)
	defer cancel()
	return read(ctx)
}

// Lag is how far a partition of an intake or of the reports is stored.
type Lag struct {
	Shard     int    `json:"shard,omitempty"  doc:"number of the database that stores; absent: 0"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     string `json:"state"            doc:"as notyet intake status says it: ok, new, diverged, …"`
	Detail    string `json:"detail,omitempty"`
	Next      int64  `json:"next_offset"      doc:"the first offset that is not stored; -1: none is"`
	End       int64  `json:"log_end"          doc:"-1: not known"`
	Lag       int64  `json:"lag"              doc:"records that are not stored yet; -1: not known"`
}
