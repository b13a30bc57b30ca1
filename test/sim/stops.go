package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// stopSeeds is the first seed with tasks that are stopped or snoozed while they wait, or retried in steps, and with reports that cannot be
// read: what earlier seeds draw stays as it is.
const stopSeeds = 63 << 46

// stops are tasks that wait for reports and retries, and requests about them meanwhile.
func (w *world) stops(now int64) (out []planned) {
	if !w.has(stopSeeds) || w.forgets {
		return nil
	}
	r := rand.New(rand.NewPCG(w.seed, 97))
	one := func(kind string, i int) (history.Op, int64) {
		at := now + r.Int64N(w.load.Milliseconds())
		return history.Op{Kind: history.Schedule, Topic: ackTopic, ID: fmt.Sprintf("%s-%d", kind, i), Key: fmt.Sprintf("k%d", r.IntN(5)), Due: at + 1 + r.Int64N(2000), Version: -1, AllEvents: true,
			AckTimeout: w.ackTimeout, MaxAttempts: ackAttempts, Backoff: ackBackoff}, at
	}
	for i := range 4 + r.IntN(12) {
		o, at := one("stop", i)
		o.Storm = true
		if r.IntN(3) == 0 {
			o.Steps = []int64{100 + r.Int64N(1000), 3000 + r.Int64N(20_000)}
		}
		versions := r.IntN(3) == 0
		out = append(out, planned{at: at, op: o})
		for when := o.Due; len(out) > 0 && r.IntN(4) > 0; {
			when += r.Int64N(2500) - 200
			next := history.Op{Kind: pick(r, history.Stop, history.Stop, history.Cancel, history.Fire), Topic: o.Topic, ID: o.ID, Key: o.Key, Version: -1, Storm: true}
			if versions {
				next.Version = r.Int64N(3) - 1
			}
			if r.IntN(6) == 0 {
				next = o
				next.Due = max(next.Due, when) + 1 + r.Int64N(3000)
				o.Due = next.Due
			}
			out = append(out, planned{at: max(when, at), op: next})
		}
	}
	for i := range 2 + r.IntN(4) {
		o, at := one("step", i)
		o.Steps = []int64{100 + r.Int64N(300), 1000 + r.Int64N(3000), 50}
		o.MaxAttempts = 5
		out = append(out, planned{at: at, op: o})
		o, at = one("snooze", i)
		out = append(out, planned{at: at, op: o})
	}
	for i := range out {
		out[i].apart = true
	}
	return out
}

// unreadable is the value of reports that cannot be read.
const unreadable = "nobody can read this"

func isUnreadable(r *kgo.Record) bool {
	return r.Topic == schemas.TopicReports && string(r.Value) == unreadable
}

// reportStops is what a consumer does about a delivery of those tasks, and of no others.
func (w *world) reportStops(rep schemas.Report, r *rand.Rand, send func(schemas.Report)) bool {
	kind, _, _ := strings.Cut(rep.ID, "-")
	switch {
	case kind != "stop" && kind != "step" && kind != "snooze":
		return false
	case kind == "stop" && r.IntN(4) == 0:
		bad := schemas.EncodeReport(schemas.TopicReports, rep)
		bad.Value = []byte(unreadable)
		for i := range bad.Headers {
			if bad.Headers[i].Key == schemas.HeaderStatus {
				bad.Headers[i].Value = []byte("OK")
			}
		}
		for range 1 + r.IntN(3) {
			again := *bad
			w.client.Produce(context.Background(), &again, nil)
		}
	}
	switch p := r.IntN(100); {
	case p < 12:
		send(rep)
	case p < 45:
		rep.Status = schemas.StatusRetry
		send(rep)
	case p < 55:
		rep.Status, rep.RetryAfter = schemas.StatusRetry, time.Duration(r.Int64N(4000))*time.Millisecond
		send(rep)
	case p < 80 && kind != "step":
		rep.Status, rep.RetryAfter = schemas.StatusSnooze, time.Duration(r.Int64N(2000))*time.Millisecond
		send(rep)
	case p < 85:
		rep.Status, rep.Error = schemas.StatusFail, "it is beyond me"
		send(rep)
	}
	return true
}

// judgeUnreadable: reports that cannot be read are told under their tasks, each delivery of which brings one event at most, however many
// such reports come. An event may come twice.
func (w *world) judgeUnreadable() {
	if !w.has(stopSeeds) {
		return
	}
	deliveries, told, sent := map[name]int{}, map[name]map[int64]bool{}, 0
	for _, a := range w.seen.all() {
		if isUnreadable(a.r) {
			sent++
		}
		if d, _, err := schemas.ParseDelivery(a.r); err == nil && a.r.Topic == ackTopic {
			deliveries[name{a.r.Topic, d.ID}]++
		}
		if e, err := schemas.DecodeEvent(a.r); a.r.Topic == schemas.TopicResults && err == nil && e.Kind == schemas.KindReport {
			of := name{e.Topic, e.ID}
			if told[of] == nil {
				told[of] = map[int64]bool{}
			}
			told[of][e.At] = true
		}
	}
	for of, at := range told {
		if most := deliveries[of] + 1; len(at) > most && w.setback.lost == 0 { // one more for what was stored before the delivery was
			w.find("reports", "%s/%s was delivered %d times, and %d reports about it were told to be unreadable", of.topic, of.id, deliveries[of], len(at))
		}
	}
	if sent > 0 && len(told) == 0 {
		w.find("reports", "%d reports could not be read, and nothing was told", sent)
	}
}
