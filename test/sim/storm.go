package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/chaos/history"
)

// stormSeeds is the first seed with identities that many requests are about.
const stormSeeds = 1 << 45

// storm are identities that many requests are about.
func (w *world) storm(now int64) (out []planned) {
	if !w.has(stormSeeds) || w.forgets {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 29))
	for i := range 2 + r.IntN(10) {
		base := history.Op{Topic: plainTopics[r.IntN(len(plainTopics))], ID: fmt.Sprintf("s%d", i), Key: fmt.Sprintf("k%d", r.IntN(5))}
		if r.IntN(4) == 0 {
			base.Topic, base.AckTimeout, base.MaxAttempts, base.Backoff = ackTopic, w.ackTimeout, ackAttempts, ackBackoff
		}
		for _, t := range history.Storm(r, base, now+r.Int64N(w.load.Milliseconds())) {
			out = append(out, planned{at: t.At, op: t.Op, apart: true})
		}
	}
	return out
}

// look asks for the identities of the storm, one after the other, until ctx ends.
func (w *world) look(ctx context.Context, all []planned) {
	for i := 0; len(all) > 0 && pause(ctx, 70*time.Millisecond) == nil; i++ {
		o := &all[i*7%len(all)].op
		l := history.Look{Topic: o.Topic, ID: o.ID, Call: time.Now().UnixMilli(), Version: -1}
		v, err := w.get(ctx, o.Topic, o.ID)
		l.Return = time.Now().UnixMilli()
		switch {
		case errors.Is(err, look.ErrNotFound):
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
