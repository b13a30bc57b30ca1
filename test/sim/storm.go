package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/test/chaos/history"
)

// stormSeeds is the first seed with identities that many requests are about.
const stormSeeds = 1 << 45

// storm are identities with many requests of every kind, in any order, most of them about when a task is due. Only the
// order of all of them can judge one (check/identity.go).
func (w *world) storm(now int64) (out []planned) {
	if w.seed < stormSeeds || w.forgets {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 29))
	for i := range 2 + r.IntN(10) {
		out = append(out, w.stormy(r, fmt.Sprintf("s%d", i), now)...)
	}
	return out
}

func (w *world) stormy(r *rand.Rand, id string, now int64) (out []planned) {
	base := history.Op{Kind: history.Schedule, Topic: plainTopics[r.IntN(len(plainTopics))], ID: id, Key: fmt.Sprintf("k%d", r.IntN(5)), Version: -1, AllEvents: true, Storm: true}
	if r.IntN(4) == 0 {
		base.Topic, base.AckTimeout, base.MaxAttempts, base.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
	}
	combine, merges := pick(r, history.Append, history.Sum, ""), r.IntN(3) == 0
	versions := r.IntN(2) == 0
	at, due := now+r.Int64N(w.load.Milliseconds()), int64(0)
	for range 3 + r.IntN(8) {
		o := base
		if versions && r.IntN(3) > 0 {
			o.Version = r.Int64N(6)
		}
		switch p := r.IntN(100); {
		case p < 20:
			o.Kind = history.Cancel
		case p < 32:
			o.Kind = history.Fire
		case merges:
			o.IfExists, o.Merge, o.MaxWait = history.Merge, combine, pick[int64](r, 0, 800)
		case p < 50:
			o.IfExists = history.Keep
		case p < 62:
			o.IfExists = history.Once
		}
		if o.Kind == history.Schedule { // due times within a life differ, so that a due time names its request
			due = max(due, at) + 1 + r.Int64N(3000)
			o.Due = due
		}
		out = append(out, planned{at: at, op: o, apart: true})
		switch r.IntN(4) {
		case 0:
			at += r.Int64N(20)
		case 1:
			at = max(at, due) + r.Int64N(1500)
		default:
			at = around(r, at, max(due, at+1))
		}
	}
	return out
}

// look asks for the identities of the storm, one after the other, until ctx ends.
func (w *world) look(ctx context.Context, all []planned) {
	for i := 0; len(all) > 0 && pause(ctx, 70*time.Millisecond) == nil; i++ {
		o := &all[i*7%len(all)].op
		l := history.Look{Topic: o.Topic, ID: o.ID, Call: time.Now().UnixMilli(), Version: -1}
		v, err := w.admin.Get(ctx, o.Topic, o.ID)
		l.Return = time.Now().UnixMilli()
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			continue // it shows nothing
		default:
			l.State, l.Due = v.State, v.Due
			if v.Version != nil {
				l.Version = *v.Version
			}
			if body, err := schemas.DecodeBody(v.Body); err == nil {
				l.Op = lastRequestOf(body.Value)
			}
		}
		w.rec.Look(l)
	}
}
