package check

import "github.com/notyet/notyet/test/chaos/history"

// attackBugs are mistakes in what keeps tenants apart.
var attackBugs = []Bug{
	{"an attack holds up another tenant's tasks", "I13", func(h *history.History) { delivery(h, "second", 1).At += 8000 }},
	{"an attack holds up another tenant's callbacks", "I13", func(h *history.History) { attacked(h).Late[0] += 8000 }},
	{"another tenant's callback is lost", "I1", func(h *history.History) { attacked(h).Asked++ }},
	{"another tenant's callback is early", "I2", func(h *history.History) { attacked(h).Late[0] = -1 }},
	{"an administrator waits for those who send slowly", "I13", func(h *history.History) { attacked(h).Answers[0] = 8000 }},
	{"an administrator is refused for those who send slowly", "I13", func(h *history.History) { attacked(h).Refused = []int{503} }},
	{"an attacker stores more than its quotas allow", "I13", func(h *history.History) { attacked(h).Rows = attacked(h).Most + 1 }},
}

func attacked(h *history.History) *history.Attack {
	for _, f := range h.Faults {
		if f.Attack != nil {
			return f.Attack
		}
	}
	panic("the sample has no attack")
}

// attack adds a tenant that attacks, and what others had beside it.
func (s *sample) attack() {
	s.Faults = append(s.Faults, history.Fault{N: 9, Kind: Attack, Start: base + 9500, End: base + 13_000, Only: []string{"attack."}, Effect: true,
		Attack: &history.Attack{Rows: 100, Most: 100, Asked: 3, Late: []int64{1, 0, 20}, Answers: []int64{2, 3}}})
}
