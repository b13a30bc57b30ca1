package check

import (
	"fmt"

	"github.com/notyet/notyet/test/chaos/history"
)

// Sample returns a small correct history: one task of each fate, a kill that duplicated one of
// them, and all that stores and send logs show of it. Bugs are planted in it.
func Sample() *history.History {
	s := &sample{History: &history.History{Run: history.Run{Intake: "intake", Slots: 1, Session: 4000, Start: base, End: base + 600_000}}}
	s.plain("first", base+10_000, 2)
	s.plain("second", base+11_000, 2)
	s.plain("third", base+12_000, 2)
	s.doubled("doubled", base+100_000)
	s.cancelled("cancelled", base+20_000)
	s.replaced("replaced", base+30_000)
	s.overtaken("overtaken", base+40_000)
	s.invalid("invalid", history.Schedule, base+41_000)
	s.resident("resident", base+5_000_000)
	s.invalid("resident", history.Fire, base+42_000)
	s.reported("reported", base+50_000)
	s.exhausted("exhausted", base+60_000)
	s.died("mortal", base+70_000)
	s.vanished("vanished", base+75_000)
	s.beyond("beyond", base+77_000)
	s.unknown("unknown", base+80_000)
	s.modes()
	s.storm()
	s.setback()
	s.attack()
	s.stores()
	return s.History
}

const base = 1_700_000_000_000

// sample is a history under construction.
type sample struct{ *history.History }

func (s *sample) op(o history.Op) *history.Op {
	o.N = int64(len(s.Ops) + 1)
	o.Topic, o.Key, o.Hash = "target", "key", uint64(o.N)*7
	o.Offset, o.Accepted, o.At, o.Outcome = o.N-1, base+o.N*100, base+o.N*100-5, history.OK
	s.Ops = append(s.Ops, o)
	return &s.Ops[len(s.Ops)-1]
}

func (s *sample) schedule(id string, due int64) *history.Op {
	return s.op(history.Op{Kind: history.Schedule, ID: id, Due: due, Version: -1})
}

// publish adds a record on the target, with its intent and outcome in the log of a dispatcher.
func (s *sample) publish(o *history.Op, attempt int, at int64, log string, epoch int64) {
	offset := int64(len(s.Deliveries))
	s.Deliveries = append(s.Deliveries, history.Delivery{
		Op: o.N, Topic: o.Topic, ID: o.ID, Key: fmt.Sprintf("%d/%d", o.N, attempt), Attempt: attempt, Due: o.Due, At: at, Offset: offset, Hash: o.Hash,
	})
	s.Sent = append(s.Sent,
		history.Sent{Log: log, Seq: o.N, Attempt: attempt, At: at - 2, Topic: o.Topic, ID: o.ID, Epoch: epoch},
		history.Sent{Log: log, Seq: o.N, Attempt: attempt, At: at + 2, Outcome: true, Acked: true, Offset: offset})
}

func (s *sample) tell(id, state string, due, at int64) {
	s.Events = append(s.Events, history.Event{Topic: "target", ID: id, State: state, Due: due, At: at})
}

// answer tells the answer to a request.
func (s *sample) answer(o *history.Op, state string, due, at int64) {
	s.tell(o.ID, state, due, at)
	s.Events[len(s.Events)-1].Request = fmt.Sprintf("%s/%d/%d", s.Run.Intake, o.Partition, o.Offset)
}

func (s *sample) report(id string, attempt int, status string, at int64) {
	s.Reports = append(s.Reports, history.Report{Topic: "target", ID: id, Attempt: attempt, Status: status, RetryAfter: -1, At: at})
}

func (s *sample) letter(id string, attempt int, at int64) {
	s.Letters = append(s.Letters, history.Letter{Topic: "target", ID: id, Kind: "dead", Reason: "sample", Attempt: attempt, DiedAt: at})
	s.tell(id, "dead", 0, at)
}

func (s *sample) plain(id string, due, late int64) {
	s.publish(s.schedule(id, due), 1, due+late, "one", 1)
}

// doubled was sent by a dispatcher that was then killed, and again by the next owner of its slot.
func (s *sample) doubled(id string, due int64) {
	o := s.schedule(id, due)
	s.publish(o, 1, due+1, "one", 1)
	s.publish(o, 1, due+5000, "two", 2)
	s.Faults = append(s.Faults, history.Fault{N: 1, Kind: "kill-dispatcher", Target: "one", Killed: "one", Start: due + 5, End: due + 6000, Doubles: true, Effect: true})
}

func (s *sample) cancelled(id string, due int64) {
	s.schedule(id, due)
	s.answer(s.op(history.Op{Kind: history.Cancel, ID: id, Version: -1}), "cancelled", due, due-5000)
}

// replaced has a newer version in time, and then one that is too old.
func (s *sample) replaced(id string, due int64) {
	s.answer(s.op(history.Op{Kind: history.Schedule, ID: id, Due: due, Version: 1, AllEvents: true}), "scheduled", due, due-8000)
	newer := s.op(history.Op{Kind: history.Schedule, ID: id, Due: due + 1000, Version: 2, AllEvents: true})
	s.answer(newer, "scheduled", due+1000, due-7000)
	s.publish(newer, 1, due+1003, "one", 1)
	s.answer(s.op(history.Op{Kind: history.Schedule, ID: id, Due: due + 500, Version: 1, AllEvents: true}), "stale", due+1000, due-6000)
}

func (s *sample) overtaken(id string, due int64) {
	s.answer(s.op(history.Op{Kind: history.Cancel, ID: id, Version: 3}), "cancelled", 0, due-9000)
	s.answer(s.op(history.Op{Kind: history.Schedule, ID: id, Due: due, Version: 3}), "stale", 0, due-9000)
}

func (s *sample) invalid(id, kind string, due int64) {
	s.answer(s.op(history.Op{Kind: kind, ID: id, Due: due, Version: -1, Invalid: true}), "rejected", 0, due)
	s.Letters = append(s.Letters, history.Letter{Topic: "target", ID: id, Kind: "rejected"})
}

func (s *sample) resident(id string, due int64) {
	o := s.schedule(id, due)
	e := history.Entry{Pos: due, Seq: o.N}
	s.Rest = history.Rest{Slots: []int{1}, Until: due + 1, Index: []history.Entry{e}, Pending: []history.Pending{{Entry: e, Topic: o.Topic, ID: id}}}
}

func (s *sample) waiting(id string, due int64) *history.Op {
	return s.op(history.Op{Kind: history.Schedule, ID: id, Due: due, Version: -1, AckTimeout: 4000, MaxAttempts: 2, Backoff: 1000})
}

// reported gets no report in time at first, and then an ok.
func (s *sample) reported(id string, due int64) {
	o := s.waiting(id, due)
	s.publish(o, 1, due+1, "one", 1)
	s.publish(o, 2, due+5010, "one", 1)
	s.report(id, 2, "ok", due+5100)
	s.tell(id, "succeeded", due, due+5200)
}

func (s *sample) exhausted(id string, due int64) {
	o := s.waiting(id, due)
	s.publish(o, 1, due+1, "one", 1)
	s.report(id, 1, "retry", due+100)
	s.publish(o, 2, due+1110, "one", 1)
	s.letter(id, 2, due+5200)
}

func (s *sample) died(id string, due int64) {
	s.schedule(id, due).MayDie = true
	s.letter(id, 0, due+5000)
}

// vanished was delivered to a topic that was deleted then.
func (s *sample) vanished(id string, due int64) {
	s.schedule(id, due).MayDie = true
	s.tell(id, "succeeded", due, due+50)
}

// beyond was rejected by a quota, without a dead letter.
func (s *sample) beyond(id string, due int64) {
	o := s.schedule(id, due)
	o.MayDie = true
	s.answer(o, "rejected", due, due-7000)
}

func (s *sample) unknown(id string, due int64) {
	o := s.schedule(id, due)
	o.Outcome, o.Accepted = history.Unknown, 0
}

// stores adds samples of slot and offsets: all requests are stored by 5 s, and the slot gets
// another owner later.
func (s *sample) stores() {
	s.Slots = []history.SlotSample{
		{At: base, Epoch: 1, Owner: "one", Claimed: base, Done: base},
		{At: base + 50_000, Epoch: 1, Owner: "one", Claimed: base + 50_200, Done: base + 49_000},
		{At: base + 105_000, Epoch: 2, Owner: "two", Claimed: base + 105_200, Done: base + 104_000},
	}
	n := int64(len(s.Ops))
	s.Offsets = []history.OffsetSample{{At: base, Topic: "intake"}, {At: base + 5000, Topic: "intake", Committed: n, Stored: n}}
}
