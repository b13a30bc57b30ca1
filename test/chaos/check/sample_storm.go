package check

import "github.com/notyet/notyet/test/chaos/history"

// storm adds identities that many requests are about, with looks at them.
func (s *sample) storm() {
	s.stormy("stormy", base+230_000)
	s.updated("updated", base+9000)
	s.stopped("stopped", base+260_000)
}

// stopped waits for a report when it is stopped, with a version. A report, a cancel and a request of that version come too late.
func (s *sample) stopped(id string, due int64) {
	first := *s.turn(history.Op{ID: id, Due: due, Version: 1, AckTimeout: 4000, MaxAttempts: 5, Backoff: 1000}, "scheduled", due)
	s.publish(&first, 1, due+1, "two", 2)
	s.report(id, 1, "retry", due+50)
	s.publish(&first, 2, due+1060, "two", 2)
	s.at(due+1200, history.Op{Kind: history.Stop, ID: id, Version: 2}, "stopped", due)
	s.shown(id, "stopped", due, 2, int(first.N))
	s.report(id, 2, "ok", due+1300)
	s.at(due+1400, history.Op{Kind: history.Cancel, ID: id, Version: -1}, "too_late", due)
	s.at(due+1500, history.Op{Kind: history.Stop, ID: id, Version: -1}, "stopped", due)
	s.at(due+1600, history.Op{ID: id, Due: due + 9000, Version: 2}, "stale", due)
	for i := range s.Events {
		if s.Events[i].State == "stopped" {
			s.Events[i].Attempt = 2
		}
	}
}

// stormy is replaced, cancelled, scheduled again, kept, asked for in an old version, fired, and cancelled when that is too late.
func (s *sample) stormy(id string, due int64) {
	s.turn(history.Op{ID: id, Due: due, Version: 1}, "scheduled", due)
	s.turn(history.Op{ID: id, Due: due + 1000, Version: 2}, "scheduled", due+1000)
	s.shown(id, "pending", due+1000, 2, len(s.Ops))
	s.turn(history.Op{Kind: history.Cancel, ID: id, Version: -1}, "cancelled", due+1000)
	s.shown(id, "cancelled", due+1000, 2, 0)
	s.turn(history.Op{ID: id, Due: due + 2000, Version: -1}, "scheduled", due+2000)
	again := len(s.Ops)
	s.turn(history.Op{ID: id, Due: due + 2500, Version: -1, IfExists: history.Keep}, "kept", due+2000)
	s.turn(history.Op{ID: id, Due: due + 2600, Version: 1}, "stale", due+2000)
	s.shown(id, "pending", due+2000, 2, again)
	s.turn(history.Op{Kind: history.Fire, ID: id, Version: -1}, "fired", s.now()+105)
	fired := s.Ops[again-1]
	fired.Due = s.now() + 5
	s.publish(&fired, 1, fired.Due+1, "one", 1)
	s.shown(id, "delivered", fired.Due, 2, again)
	s.turn(history.Op{Kind: history.Cancel, ID: id, Version: -1}, "too_late", fired.Due)
	s.turn(history.Op{ID: id, Due: due, Version: -1, IfExists: history.Once}, "kept", fired.Due)
}

// updated is merged, delivered, and merged again as another task.
func (s *sample) updated(id string, due int64) {
	s.turn(history.Op{ID: id, Due: due, Version: -1, IfExists: history.Merge, Merge: history.Append}, "scheduled", due)
	s.turn(history.Op{ID: id, Due: due + 100, Version: -1, IfExists: history.Merge, Merge: history.Append}, "merged", due+100)
	n := len(s.Ops)
	s.together(s.Ops[n-2:n:n], due+100)
	last := s.turn(history.Op{ID: id, Due: due + 5000, Version: -1, IfExists: history.Merge, Merge: history.Append}, "scheduled", due+5000)
	last.Accepted = due + 2000
	s.Events[len(s.Events)-1].At = due + 2010
	s.together([]history.Op{*last}, due+5000)
}

// turn is a request of a storm and its answer.
func (s *sample) turn(o history.Op, state string, due int64) *history.Op {
	if o.Kind == "" {
		o.Kind = history.Schedule
	}
	o.Storm, o.AllEvents = true, true
	added := s.op(o)
	s.answer(added, state, due, added.Accepted+10)
	return added
}

// now is when the latest request came.
func (s *sample) now() int64 { return s.Ops[len(s.Ops)-1].Accepted }

func (s *sample) shown(id, state string, due, version int64, op int) {
	s.Looks = append(s.Looks, history.Look{Topic: "target", ID: id, State: state, Due: due, Version: version, Op: int64(op), Call: s.now() + 20, Return: s.now() + 22})
}
