package check

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/notyet/notyet/test/chaos/history"
)

// Story writes everything that the history knows about one task, in the order of time.
func Story(w io.Writer, h *history.History, topic, id string) {
	type step struct {
		at   int64
		text string
	}
	var steps []step
	add := func(at int64, format string, args ...any) {
		steps = append(steps, step{at, fmt.Sprintf(format, args...)})
	}
	c := &checker{h: h}
	for i := range h.Ops {
		o := &h.Ops[i]
		if o.Topic != topic || c.identity(o) != id {
			continue
		}
		add(o.At, "request %d sent: %s key %s due %d delay %d version %d: %s", o.N, o.Kind, o.Key, o.Due, o.Delay, o.Version, o.Outcome)
		if o.Accepted > 0 {
			add(o.Accepted, "request %d in the intake at %d/%d, due %d", o.N, o.Partition, o.Offset, o.DueAt())
		}
	}
	for _, d := range h.Deliveries {
		if d.Topic == topic && d.ID == id {
			add(d.At, "PUBLISHED request %d attempt %d replay %d at %d/%d, key %s", d.Op, d.Attempt, d.Replay, d.Partition, d.Offset, d.Key)
		}
	}
	for _, e := range h.Events {
		if e.Topic == topic && e.ID == id {
			add(e.At, "event %s, attempt %d, due %d", e.State, e.Attempt, e.Due)
		}
	}
	for _, r := range h.Reports {
		if r.Topic == topic && r.ID == id {
			add(r.At, "report %s of attempt %d", r.Status, r.Attempt)
		}
	}
	for _, d := range h.Letters {
		if d.Topic == topic && d.ID == id {
			add(d.DiedAt, "dead letter (%s) after attempt %d: %s", d.Kind, d.Attempt, d.Reason)
		}
	}
	sent := map[string]map[int64]bool{}
	for _, s := range h.Sent {
		switch {
		case !s.Outcome && s.Topic == topic && s.ID == id:
			if sent[s.Log] == nil {
				sent[s.Log] = map[int64]bool{}
			}
			sent[s.Log][s.Seq] = true
			add(s.At, "%s notes an intent: seq %d attempt %d slot %d epoch %d", s.Log, s.Seq, s.Attempt, s.Slot, s.Epoch)
		case s.Outcome && sent[s.Log][s.Seq]:
			add(s.At, "%s notes an outcome: seq %d attempt %d acknowledged %v at %d/%d", s.Log, s.Seq, s.Attempt, s.Acked, s.Partition, s.Offset)
		}
	}
	if len(steps) > 0 {
		first := slices.MinFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) }).at
		last := slices.MaxFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) }).at
		for _, f := range h.Faults {
			if f.Start <= last && f.End >= first {
				add(f.Start, "  fault %d: %s of %s", f.N, f.Kind, f.Target)
				add(f.End, "  fault %d healed: %s", f.N, f.Evidence)
			}
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	fmt.Fprintf(w, "%s/%s\n", topic, id)
	for _, s := range steps {
		fmt.Fprintf(w, "  %d  %s\n", s.at, s.text)
	}
}
