package check

import "github.com/notyet/notyet/test/chaos/history"

// The set-back of the sample: the database goes on from a state that it had in the first 100 ms.
const (
	lostFrom = base + 400_000
	lostAt   = lostFrom + 3000
	backAt   = lostFrom + 4000
)

// setback adds identities of which the database forgets something.
func (s *sample) setback() {
	s.Faults = append(s.Faults, history.Fault{
		N: 2, Kind: "mysql-forgets", Target: "mysql", Start: lostFrom - 100, End: backAt + 1000, Doubles: true, Rewinds: true, Effect: true,
		Setbacks: []history.Setback{{From: lostFrom, Kept: lostFrom + 100, Gone: lostAt, Back: backAt}},
	})
	s.decidedAgain("forgetful", lostFrom+20_000)
	s.sentAgain("resent", lostFrom+1000)
	s.provenSent("proven", lostFrom+1000)
}

// at is a request of a storm at an instant, answered a moment later unless the state is "".
func (s *sample) at(accepted int64, o history.Op, state string, due int64) *history.Op {
	if o.Kind == "" {
		o.Kind = history.Schedule
	}
	o.Storm, o.AllEvents = true, true
	added := s.op(o)
	added.Accepted = accepted
	if state != "" {
		s.answer(added, state, due, accepted+10)
	}
	return added
}

// decidedAgain was scheduled before the time that is lost, and replaced and cancelled in it. Both is decided and told again.
func (s *sample) decidedAgain(id string, due int64) {
	s.at(lostFrom-1000, history.Op{ID: id, Due: due, Version: 1}, "scheduled", due)
	newer := *s.at(lostFrom+500, history.Op{ID: id, Due: due + 1000, Version: 2}, "scheduled", due+1000)
	cancel := *s.at(lostFrom+1500, history.Op{Kind: history.Cancel, ID: id, Version: -1}, "cancelled", due+1000)
	s.answer(&newer, "scheduled", due+1000, backAt+1500)
	s.answer(&cancel, "cancelled", due+1000, backAt+1500)
	s.Looks = append(s.Looks, history.Look{Topic: "target", ID: id, State: "cancelled", Due: due + 1000, Version: 2, Call: lostFrom + 2000, Return: lostFrom + 2002},
		history.Look{Topic: "target", ID: id, State: "pending", Due: due, Version: 1, Call: backAt + 500, Return: backAt + 502})
}

// sentAgain was delivered in the time that is lost, and is delivered once more. A cancel that comes then is too late.
func (s *sample) sentAgain(id string, due int64) {
	o := *s.at(lostFrom-1000, history.Op{ID: id, Due: due, Version: -1}, "scheduled", due)
	s.publish(&o, 1, due+1, "one", 1)
	s.publish(&o, 1, backAt+3500, "two", 2)
	s.at(backAt+4000, history.Op{Kind: history.Cancel, ID: id, Version: -1}, "too_late", due)
}

// provenSent was delivered in the time that is lost. A send log proves it, so it is not delivered again.
func (s *sample) provenSent(id string, due int64) {
	o := *s.at(lostFrom-1000, history.Op{ID: id, Due: due, Version: -1}, "scheduled", due)
	s.publish(&o, 1, due+1, "one", 1)
	s.at(backAt+3000, history.Op{Kind: history.Cancel, ID: id, Version: -1}, "too_late", due)
}
