package check

import "github.com/notyet/notyet/test/chaos/history"

// modes adds tasks that were kept, fired and merged.
func (s *sample) modes() {
	s.kept("kept", base+210_000)
	s.once("once", base+120_000)
	s.fired("fired", base+130_000)
	s.tooLateToFire("unfired", base+140_000)
	s.outdated("outdated", base+150_000)
	s.merged("appended", history.Append)
	s.merged("summed", history.Sum)
	s.merged("newest", "")
	s.mergedAndCancelled("forgone")
}

func (s *sample) more(o history.Op) *history.Op {
	o.Kind, o.Version, o.AllEvents = history.Schedule, -1, true
	return s.op(o)
}

// kept is asked for again while it is pending, and again when it has been delivered.
func (s *sample) kept(id string, due int64) {
	first := *s.more(history.Op{ID: id, Due: due, IfExists: history.Keep})
	s.answer(&first, "scheduled", due, due-8000)
	s.answer(s.more(history.Op{ID: id, Due: due + 500, IfExists: history.Keep}), "kept", due, due-7000)
	s.publish(&first, 1, due+2, "two", 2)
	again := s.more(history.Op{ID: id, Due: due + 3000, IfExists: history.Keep})
	again.Accepted = due + 1000
	s.answer(again, "scheduled", due+3000, due+1100)
	s.publish(again, 1, due+3002, "two", 2)
}

// once is asked for again while it is pending, and again when it has been delivered.
func (s *sample) once(id string, due int64) {
	first := *s.more(history.Op{ID: id, Due: due, IfExists: history.Once})
	s.answer(&first, "scheduled", due, due-8000)
	s.answer(s.more(history.Op{ID: id, Due: due, IfExists: history.Once}), "kept", due, due-7000)
	s.publish(&first, 1, due+2, "one", 1)
	again := s.more(history.Op{ID: id, Due: due + 3000, IfExists: history.Once})
	again.Accepted = due + 1000
	s.answer(again, "kept", due, due+1100)
}

func (s *sample) fired(id string, due int64) {
	now := *s.schedule(id, due)
	f := s.op(history.Op{Kind: history.Fire, ID: id, Version: -1})
	f.Accepted, now.Due = due-5000, due-4990
	s.answer(f, "fired", now.Due, due-4980)
	s.publish(&now, 1, now.Due+3, "one", 1)
}

func (s *sample) tooLateToFire(id string, due int64) {
	s.publish(s.schedule(id, due), 1, due+2, "one", 1)
	f := s.op(history.Op{Kind: history.Fire, ID: id, Version: -1})
	f.Accepted = due + 10
	s.answer(f, "too_late", due, due+20)
}

// outdated has a cancel of a version that is below the task's.
func (s *sample) outdated(id string, due int64) {
	o := s.schedule(id, due)
	o.Version = 5
	s.publish(o, 1, due+2, "one", 1)
	s.answer(s.op(history.Op{Kind: history.Cancel, ID: id, Version: 4}), "stale", due, due-4000)
}

// merge is a request that is due 500 ms later, and at most 800 ms after the first.
func (s *sample) merge(id, mode string) *history.Op {
	return s.more(history.Op{ID: id, Delay: 500, IfExists: history.Merge, Merge: mode, MaxWait: 800})
}

// merged has four requests, each 100 ms behind the other: the first three are delivered when the fourth comes.
func (s *sample) merged(id, mode string) {
	var all []history.Op
	for range 4 {
		all = append(all, *s.merge(id, mode))
	}
	fourth := &s.Ops[len(s.Ops)-1]
	fourth.Accepted += 1000
	start := all[0].Accepted
	s.answer(&all[0], "scheduled", start+500, start+10)
	s.answer(&all[1], "merged", start+600, start+110)
	s.answer(&all[2], "merged", start+700, start+210)
	s.together(all[:3], start+700)
	s.answer(fourth, "scheduled", fourth.Accepted+500, fourth.Accepted+10)
	s.together([]history.Op{*fourth}, fourth.Accepted+500)
}

// together publishes merged requests.
func (s *sample) together(all []history.Op, due int64) {
	last := all[len(all)-1]
	last.Due = due
	s.publish(&last, 1, due+2, "one", 1)
	if d := &s.Deliveries[len(s.Deliveries)-1]; last.Merge != "" {
		for _, o := range all {
			d.Merged = append(d.Merged, o.N)
		}
	}
}

func (s *sample) mergedAndCancelled(id string) {
	for i := range int64(2) {
		o := s.merge(id, history.Append)
		s.answer(o, []string{"scheduled", "merged"}[i], o.DueAt(), o.Accepted+10)
	}
	c := s.op(history.Op{Kind: history.Cancel, ID: id, Version: -1})
	s.answer(c, "cancelled", s.Ops[len(s.Ops)-2].DueAt(), c.Accepted+10)
}
