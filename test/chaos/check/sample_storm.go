package check

import "github.com/notyet/notyet/test/chaos/history"

// storm adds identities that many requests are about, with looks at them.
func (s *sample) storm() {
	s.stormy("stormy", base+230_000)
	s.updated("updated", base+9000)
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
	s.tell(o.ID, state, due, added.Accepted+10)
	return added
}

// now is when the latest request came.
func (s *sample) now() int64 { return s.Ops[len(s.Ops)-1].Accepted }

func (s *sample) shown(id, state string, due, version int64, op int) {
	s.Looks = append(s.Looks, history.Look{Topic: "target", ID: id, State: state, Due: due, Version: version, Op: int64(op), Call: s.now() + 20, Return: s.now() + 22})
}
