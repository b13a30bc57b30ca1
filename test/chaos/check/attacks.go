package check

import (
	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/notyet/notyet/test/chaos/history"
)

// Attack is the fault that breaks nothing either: one tenant does all by which it may hold up the others.
const Attack = "tenant-attacks"

// judgeAttacks checks I13 for tenants: beside one that attacks, the others' tasks and callbacks are as late as usual, an administrator is
// answered, and the attacker has no more rows than its quotas allow.
func (c *checker) judgeAttacks(firsts []*history.Delivery) {
	for _, f := range c.faults {
		a := f.Attack
		if a == nil {
			continue
		}
		c.during(f, firsts, c.Figures.Attacked)
		for _, late := range a.Late {
			if note(c.Figures.Called, late); late < 0 {
				c.find("I2", "", "", "fault %d (%s): a callback came %d ms early", f.N, f.Kind, -late)
			}
		}
		for _, ms := range a.Answers {
			note(c.Figures.Answered, ms)
		}
		if lost := a.Asked - len(a.Late); lost > 0 {
			c.find("I1", "", "", "fault %d (%s): %d of another tenant's %d callbacks never came", f.N, f.Kind, lost, a.Asked)
		}
		if len(a.Refused) > 0 {
			c.find("I13", "", "", "fault %d (%s): an administrator was answered %d, %d times of %d", f.N, f.Kind, a.Refused[0], len(a.Refused), len(a.Refused)+len(a.Answers))
		}
		if a.Rows > a.Most {
			c.find("I13", "", "", "fault %d (%s): the attacker has %d rows, and its quotas allow %d", f.N, f.Kind, a.Rows, a.Most)
		}
	}
	within := func(what string, h *hdrhistogram.Histogram, usual int64) {
		if p99 := h.ValueAtQuantile(99); p99 > usual+c.bounds.Flood {
			c.find("I13", "", "", "beside a tenant that attacks, %s took %d ms at p99, %d in calm", what, p99, usual)
		}
	}
	within("others' tasks", c.Figures.Attacked, c.calmP99())
	within("others' callbacks", c.Figures.Called, c.calmP99())
	within("answers to an administrator", c.Figures.Answered, 0)
}
