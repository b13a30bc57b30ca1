package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/notyet/notyet/store/admin"
)

// policies are targets that an operator pauses or limits for a while, in every third seed, beside whatever else happens. Where targets
// take nothing for minutes, the checker would lay their lateness at the door of a policy that is long over.
func (w *world) policies() (all []trouble) {
	r := rand.New(rand.NewPCG(w.seed, 9))
	if r.IntN(3) > 0 || w.hush != hushNone || w.stays != nil || w.several > 0 {
		return nil
	}
	for _, topic := range []string{plainTopics[0], plainTopics[1], floodTopic, ackTopic} {
		if r.IntN(2) == 0 {
			continue
		}
		p := pick(r, admin.Policy{Paused: true}, admin.Policy{Paused: true}, admin.Policy{Rate: 0.5}, admin.Policy{Rate: 20}, admin.Policy{MaxInFlight: 1}, admin.Policy{Rate: 200, MaxInFlight: 2})
		all = append(all, trouble{
			kind: fmt.Sprintf("policy (paused %v, rate %v, in flight %d)", p.Paused, p.Rate, p.MaxInFlight), target: topic, only: []string{topic}, gentle: true,
			at: time.Duration(r.Int64N(int64(w.load))), lasts: spans[r.IntN(len(spans))],
			begin: func() { w.policy(topic, p) }, end: func() { w.policy(topic, admin.Policy{}) },
		})
	}
	return all
}

func (w *world) policy(topic string, p admin.Policy) {
	if _, err := admin.New(w.admin).SetPolicy(context.Background(), topic, time.Now().UnixMilli(), func(admin.Policy) admin.Policy { return p }); err != nil {
		w.find("sim", "setting the policy of %s: %v", topic, err)
	}
}
