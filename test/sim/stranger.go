package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// strangerSeeds is the first seed with a stranger: what earlier seeds draw stays as it is.
const strangerSeeds = 31 << 47

// strangerIntake is all that the stranger may write. It allows none of the targets that the others use.
const strangerIntake = "notyet.intake.stranger"

// drawStranger draws how many records the stranger writes. Their events would be too many for a results topic that is silent.
func (p *plan) drawStranger() {
	if r := rand.New(rand.NewPCG(p.seed, 601)); !p.silent && !p.forgets && p.hush == hushNone {
		p.strange = pick(r, 0, 10, 60)
	}
	if p.strange > 0 {
		p.scanner.Intake = []string{schemas.TopicIntake, strangerIntake}
		p.scanner.IntakeLimits = map[string]schemas.Limits{strangerIntake: {AllowedTargets: []string{"stranger.*"}}}
	}
}

// intrude has the stranger repeat requests of others at its own intake, some with another op, another version, a header too many. None
// may come of them but a rejection: the other judges hold the world against the requests of the others alone.
func (w *world) intrude(begin time.Time) {
	r := rand.New(rand.NewPCG(w.seed, 607))
	for range w.strange {
		at, ops := begin.Add(time.Duration(r.Int64N(int64(w.load)))), []string{"schedule", "cancel", "fire", "timer-delete"}
		op, which, more := ops[r.IntN(len(ops))], r.IntN(1<<20), r.IntN(4)
		w.swept.asking.Go(func() {
			time.Sleep(time.Until(at))
			w.repeat(which, op, more)
		})
	}
}

func (w *world) repeat(which int, op string, more int) {
	all := slices.DeleteFunc(w.seen.all(), func(a arrival) bool { return a.r.Topic != schemas.TopicIntake || len(a.r.Headers) > schemas.MaxHeaders })
	if len(all) == 0 {
		return
	}
	theirs := all[which%len(all)].r
	r := &kgo.Record{Topic: strangerIntake, Key: theirs.Key, Value: []byte("of a stranger"), Headers: slices.Clone(theirs.Headers)}
	if more != 0 && op != "schedule" {
		r.Headers = slices.DeleteFunc(r.Headers, func(h kgo.RecordHeader) bool {
			return h.Key != schemas.HeaderTopic && h.Key != schemas.HeaderURL && h.Key != schemas.HeaderID
		})
		r.Headers = append(r.Headers, recordtest.Headers(schemas.HeaderOp, op)...)
	}
	switch more {
	case 1:
		r.Headers = append(r.Headers, recordtest.Headers(schemas.HeaderVersion, "1000000")...)
	case 2:
		r.Headers = append(recordtest.Headers("notyet-note", "pay again"), r.Headers...)
	}
	w.client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			w.find("sim", "Kafka did not take a stranger's record: %v", err)
		}
	})
}

func isStrange(request string) bool { return strings.HasPrefix(request, strangerIntake+"/") }

// judgeStranger: each of the stranger's records was rejected under its place in its intake, and in no other name.
func (w *world) judgeStranger() {
	if w.strange == 0 {
		return
	}
	told := map[string]bool{}
	for _, a := range w.seen.all() {
		e, err := schemas.DecodeEvent(a.r)
		if a.r.Topic != schemas.TopicResults || err != nil || !isStrange(e.Request) {
			continue
		}
		told[e.Request] = true
		if e.State != schemas.StateRejected || e.Topic != "" || e.ID != e.Request {
			w.find("names", "a stranger's request %s was answered %s in the name of %s/%s", e.Request, e.State, e.Topic, e.ID)
		}
	}
	ends := w.ends(strangerIntake)
	if n := int64(len(told)); n != ends {
		w.find("names", "%d of a stranger's %d requests were answered", n, ends)
	}
	rows, err := w.looks.Query("SELECT DISTINCT d.topic FROM dead_letters d JOIN sources s ON s.src = d.seq >> 48 WHERE s.topic = ?", []byte(strangerIntake))
	if err != nil {
		w.find("sim", "looking for a stranger's letters: %v", err)
		return
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var topic string
		if err := rows.Scan(&topic); err != nil || topic != strangerIntake {
			w.find("names", "a letter of a stranger's is under %s (%v)", topic, err)
		}
	}
}
