package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestScheduleFresh(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		r := s.schedule("a", version(3))
		r.Headers = []kgo.RecordHeader{{Key: "x", Value: []byte{0, 0xff}}, {Key: "x"}, {Key: "\xff", Value: []byte{}}}
		events := s.do(r)
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateScheduled, Due: t0 + 1000, At: t0}}, events)

		slot := slots.Of(target, r.Key, "a", testSlots)
		seq := task.Seq(s.source.ID, 0)
		require.Equal(t, []handle.Place{handle.NewPlace(slot, t0+1000, seq, t0+1000)}, s.last.Added)
		require.Empty(t, s.last.Removed)

		want := task.Task{Seq: seq, Slot: slot, Pos: t0 + 1000, Due: t0 + 1000, Version: 3, Created: t0, Topic: target, ID: "a",
			Class: task.ClassNormal, Body: schemas.EncodeBody(nil, r.Key, r.Value, r.Headers, r.Settings)}
		require.Equal(t, want, s.row("a"))
		require.Equal(t, r.Headers, s.body("a").Headers, "whatever their bytes, order and repetition")
	})
}

// Null and empty keys and values are different things, to Kafka and to compacted topics.
func TestScheduleKeepsNullApartFromEmpty(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		null, empty := s.schedule("null"), s.schedule("empty", key(""), value(""))
		null.Key, null.Value = nil, nil
		s.do(null, empty)
		require.Nil(t, s.body("null").Key)
		require.Nil(t, s.body("null").Value)
		require.Equal(t, []byte{}, s.body("empty").Key)
		require.Equal(t, []byte{}, s.body("empty").Value)
	})
}

// A record without an id gets one from its place in the intake, and tells nothing unless asked.
func TestScheduleWithDefaultID(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var changes []task.Change
		for offset := range 3 {
			rec := &kgo.Record{Topic: "in", Offset: int64(offset), Value: []byte("v"), Timestamp: time.UnixMilli(t0),
				Headers: []kgo.RecordHeader{{Key: schemas.HeaderTopic, Value: []byte(target)}, {Key: schemas.HeaderDelay, Value: []byte("5s")}}}
			req, err := schemas.Decode(rec, schemas.Limits{})
			require.NoError(t, err)
			changes = append(changes, task.Change{Seq: task.Seq(s.source.ID, rec.Offset), Request: &req})
		}
		require.Empty(t, s.apply(Batch{Advance: []Advance{{s.source.ID, 0, 3}}, Changes: changes}))
		for offset := range 3 {
			require.EqualValues(t, t0+5000, s.row(fmt.Sprintf("in/0/%d", offset)).Due)
		}
	})
}

func TestReplacePending(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", version(1)))
		old := s.last.Added
		s.now += 10
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", in(time.Minute), key("other"), value("new"))))

		row := s.row("a")
		require.Equal(t, old, s.last.Removed)
		require.Equal(t, []handle.Place{handle.PlaceOf(&row)}, s.last.Added)
		require.Equal(t, task.Seq(s.source.ID, 1), row.Seq, "another content has another seq")
		require.EqualValues(t, s.now+60_000, row.Due)
		require.EqualValues(t, 1, row.Version, "a request without a version keeps the stored one")
		require.Equal(t, slots.Of(target, []byte("other"), "a", testSlots), row.Slot, "it moves to its new key's slot")
		require.Equal(t, "new", string(s.body("a").Value))
		require.Equal(t, 1, s.count("tasks"))
	})
}

func TestKeepPending(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", keep)), "nothing to keep yet")
		before := s.row("a")
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateKept, Due: before.Due, At: s.now}},
			s.do(s.schedule("a", keep, in(time.Hour), value("late"))))
		require.Equal(t, before, s.row("a"))
		require.Empty(t, s.last.Added)
		require.Empty(t, s.last.Removed)

		s.deliver(before.Due)
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", keep, value("again"))), "an id whose task has ended may be used again")
		require.Equal(t, "again", string(s.body("a").Value))
	})
}

// Several requests for one id in one batch act one after the other, and leave one row.
func TestScheduleRepeatedlyInOneBatch(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, round := range []string{"fresh", "known"} {
			events := s.do(s.schedule("a", value("1")), s.schedule("a", value("2"), in(2*time.Second)), s.schedule("a", keep, value("3")))
			var states []schemas.State
			for _, e := range events {
				states = append(states, e.State)
			}
			require.Equal(t, []schemas.State{schemas.StateScheduled, schemas.StateScheduled, schemas.StateKept}, states, round)
			require.Equal(t, "2", string(s.body("a").Value), round)
			require.Len(t, s.last.Added, 1, round)
			require.Equal(t, 1, s.count("tasks"))
		}
	})
}

// The id names a task together with its target topic.
func TestSameIDOnTwoTopics(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other := s.schedule("a")
		other.Topic = "invoices"
		s.do(s.schedule("a"), other)
		require.Equal(t, 2, s.count("tasks"))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a")))
		v, err := look.New(s.Store).Get(s.ctx, "invoices", "a")
		require.NoError(t, err)
		require.Equal(t, "pending", v.State)
	})
}

// More rows than a statement carries, and more bytes.
func TestScheduleManyAndLarge(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		records := make([]any, 2500)
		for i := range records {
			records[i] = s.schedule(fmt.Sprint("many-", i))
		}
		s.do(records...)
		require.Len(t, s.last.Added, len(records))
		require.Equal(t, len(records), s.count("tasks"))

		large := make([]byte, 1<<20)
		for i := range large {
			large[i] = byte(i) // every byte that a statement must escape
		}
		records = records[:9]
		for i := range records {
			records[i] = s.schedule(fmt.Sprint("large-", i), value(string(large)))
		}
		s.do(records...)
		require.Equal(t, large, s.body("large-8").Value)
	})
}

// A place that the owner has passed is closed: the task goes to the first one that is open, and keeps its due time, by
// which it is released.
func TestScheduleBehindClaimed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0 + 5000)
		for _, round := range []string{"claimed not known to the writer", "claimed known"} {
			for _, c := range []struct {
				id  string
				due time.Duration
				pos int64
			}{{"past", -time.Hour, t0 + 5001}, {"at", 5 * time.Second, t0 + 5001}, {"first free", 5001 * time.Millisecond, t0 + 5001}, {"after", 6 * time.Second, t0 + 6000}} {
				id := round + c.id
				s.do(s.schedule(id, in(c.due)))
				row := s.row(id)
				require.Equal(t, c.pos, row.Pos, id)
				require.Equal(t, t0+c.due.Milliseconds(), row.Due, id)
				require.Equal(t, []handle.Place{handle.PlaceOf(&row)}, s.last.Added, id)
				require.Equal(t, "pending", s.state(id))
			}
		}
		s.do(s.schedule("replaced", in(time.Minute)))
		s.do(s.schedule("replaced", in(time.Second)))
		require.EqualValues(t, t0+5001, s.row("replaced").Pos)
	})
}

// Another process moves claimed: what this one remembers of it is behind, and must not decide.
func TestScheduleBehindClaimedThatAnotherMoved(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.own()
		other := s.another()
		for round := range int64(3) {
			claimed := t0 + (round+1)*10_000
			require.NoError(t, claimTo(s.ctx, other, s.allSlots(), s.epoch, claimed))
			id := fmt.Sprint(round)
			s.do(s.schedule(id))
			require.Equal(t, claimed+1, s.row(id).Pos)
		}
	})
}

// once keeps whatever is known of an id, at each point of a task's life; a cancel that came before any schedule is no task.
func TestScheduleOnce(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", once)))
		kept := func(where string) {
			t.Helper()
			before := s.row("a")
			require.Equal(t, schemas.StateKept, s.answer(s.schedule("a", once, value("second"))), where)
			require.Equal(t, before, s.row("a"), where)
			require.Zero(t, s.count("waiting"), where)
		}
		kept("pending")
		s.now = t0 + 1000
		s.claim(s.now)
		kept("in flight")
		s.settle(s.now)
		kept("delivered")
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", value("third"))), "without once the id is free")
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("a", version(3))))
		kept("cancelled")
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", once, version(2))))

		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("b", version(3))))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("b", once, version(3))))
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("b", once, version(4))))
		body := s.body("b")
		require.NotEqual(t, schemas.Once, body.Settings.IfExists, "dispatchers of the version before must be able to read it")
	})
}

// A cancel with a version that names a default id stops its schedule, though it came through another partition.
func TestCancelOfADefaultIDThroughAnotherPartition(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other, err := s.Source(s.ctx, "in", [16]byte{1}, 1, 0)
		require.NoError(t, err)
		id := schemas.DefaultID("in", 1, 0)
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel(id, version(1))))
		late := s.schedule(id, version(1))
		late.GivenID = false
		events := s.apply(Batch{Advance: []Advance{{other.ID, 0, 1}}, Changes: []task.Change{{Seq: task.Seq(other.ID, 0), Request: late}}})
		require.Len(t, events, 1)
		require.Equal(t, schemas.StateStale, events[0].State)
		require.Equal(t, 1, s.count("tasks"))
	})
}

// The longest name of an intake topic leaves no room for what makes a default id unique; the batch must go through all the same.
func TestDefaultIDOfARecreatedTopicWithALongName(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		id := schemas.DefaultID(strings.Repeat("t", schemas.MaxIntakeTopicLen), 2147483647, 1<<47)
		id += strings.Repeat("x", schemas.MaxIDLen-len(id))
		again, err := s.Source(s.ctx, "in", [16]byte{2}, 0, 0)
		require.NoError(t, err)
		first, second := s.schedule(id), s.schedule(id)
		first.GivenID, second.GivenID = false, false
		s.do(first)
		events := s.apply(Batch{Advance: []Advance{{again.ID, 0, 1}}, Changes: []task.Change{{Seq: task.Seq(again.ID, 0), Request: second}}})
		require.Len(t, events, 1)
		require.LessOrEqual(t, len(events[0].ID), schemas.MaxIDLen)
		require.Equal(t, 2, s.count("tasks"), "what is pending from before is not replaced")
	})
}
