package intake

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

func tagged(tag string) option { return func(r *schemas.Request) { r.Settings.Tag = tag } }

// listed reads all pages of a list, and expects each task once.
func (f *fixture) listed(filter look.ListFilter) (ids []string) {
	f.t.Helper()
	ids = []string{}
	for {
		page, err := look.New(f.Store).List(f.ctx, filter)
		require.NoError(f.t, err)
		for _, v := range page.Tasks {
			require.NotContains(f.t, ids, v.ID, "each once")
			ids = append(ids, v.ID)
		}
		if filter.After = page.More; page.More == nil {
			return ids
		}
	}
}

func TestListByTag(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		other := s.schedule("other", in(5*time.Second), tagged("a"))
		other.Topic = "bills"
		s.do(s.schedule("late", in(9*time.Second), tagged("a,b,a")), s.schedule("soon", in(4*time.Second), tagged("b,a")), s.schedule("ab", in(3*time.Second), tagged("ab")), s.schedule("none"), other)
		require.Equal(t, 6, s.count("tags"), "a task without tags has no row")
		require.Equal(t, []string{"soon", "other", "late"}, s.listed(look.ListFilter{Tag: "a"}), "in order of due times")
		require.Equal(t, []string{"soon", "other", "late"}, s.listed(look.ListFilter{Tag: "a", Limit: 1}))
		require.Equal(t, []string{"soon", "late"}, s.listed(look.ListFilter{Tag: "a", Topic: target}))
		require.Equal(t, []string{"other"}, s.listed(look.ListFilter{Tag: "a", IDPrefix: "o"}))
		require.Equal(t, []string{"other"}, s.listed(look.ListFilter{Tag: "a", From: t0 + 4001, To: t0 + 9000}))
		require.Equal(t, []string{"soon", "late"}, s.listed(look.ListFilter{Tag: "a", Allowed: func(topic string) bool { return topic == target }}))
		require.Empty(t, s.listed(look.ListFilter{Tag: "A"}))
		require.Empty(t, s.listed(look.ListFilter{Tag: "a,b"}), "one tag")

		s.do(s.schedule("late", in(9*time.Second), tagged("c")), s.cancel("soon"))
		require.Equal(t, []string{"late"}, s.listed(look.ListFilter{Tag: "c"}))
		require.Equal(t, []string{"other"}, s.listed(look.ListFilter{Tag: "a"}), "replaced and cancelled")
		require.Equal(t, []string{"soon"}, s.listed(look.ListFilter{Tag: "a", State: "cancelled"}))
		require.Equal(t, 5, s.count("tags"), "what is replaced leaves none behind")
		s.do(s.fire("late"))
		require.Equal(t, []string{"late"}, s.listed(look.ListFilter{Tag: "c", To: t0 + 1}), "fired: its due time is another one")
		require.Equal(t, 5, s.count("tags"))
		s.deliver(t0 + 20_000)
		require.Empty(t, s.listed(look.ListFilter{Tag: "a"}))
		require.Equal(t, []string{"other", "soon"}, s.listed(look.ListFilter{Tag: "a", Ended: true}), "the latest due time first")
	})
}

// Whatever happens to tasks, a list by tag is that of all tasks of which those without the tag are left out.
func TestListByTagIsTheWholeListOfTheTag(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		r := rand.New(rand.NewPCG(1, 2))
		tags := []string{"a", "b", "a,b", "b,c,d", ""}
		of := map[int64]string{} // tags of a task's content
		note := func() {
			for i := range 12 {
				for _, row := range s.rows(fmt.Sprint(i)) {
					if len(row.Body) > 0 {
						of[row.Seq] = schemas.BodyTag(row.Body)
					}
				}
			}
		}
		for step := range 60 {
			id := fmt.Sprint(r.IntN(12))
			switch r.IntN(8) {
			case 0:
				s.do(s.cancel(id))
			case 1:
				s.do(s.fire(id))
			case 2:
				s.do(s.cancel(id, version(int64(step))))
			case 3:
				s.now += r.Int64N(1500)
				s.claim(s.now)
				var exits []line.Transition
				for i := range 12 {
					for _, row := range s.rows(fmt.Sprint(i)) {
						if row.Slot >= 0 && row.State == task.StateLine && row.Pos <= s.now && row.Pos > s.doneOf(row.Slot) && r.IntN(2) == 0 {
							state := []task.State{task.StateRetry, task.StateReport, task.StateDead, task.StateLine}[r.IntN(4)]
							at := s.now + r.Int64N(3000)
							if state == task.StateLine {
								at = task.Held(row.Due)
							}
							exits = append(exits, s.transition(row.ID, state, at, 1))
						}
					}
				}
				s.settle(s.now, exits...)
				s.resolve()
			default:
				s.do(s.schedule(id, in(time.Duration(r.IntN(4000))*ms), tagged(tags[r.IntN(len(tags))]), version(int64(step)), []option{keep, merge(schemas.MergeLast), in(time.Second)}[r.IntN(3)]))
			}
			note()
			for _, ended := range []bool{false, true} {
				all := s.listed(look.ListFilter{Ended: ended})
				for _, tag := range []string{"a", "b", "c", "x"} {
					want := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !schemas.HasTag(of[s.row(id).Seq], tag) })
					require.ElementsMatch(t, want, s.listed(look.ListFilter{Tag: tag, Ended: ended, Limit: 1 + r.IntN(5)}), "step %d, tag %s, ended %t", step, tag, ended)
				}
			}
			if step%10 == 9 {
				_, _, err := s.SweepTags(s.ctx, nil)
				require.NoError(t, err)
			}
		}
		require.NotEmpty(t, slices.Collect(maps.Values(of)))
	})
}

func (f *fixture) doneOf(slot int) int64 {
	slots, err := f.Slots(f.ctx)
	require.NoError(f.t, err)
	return slots[slot].Done
}

// A due time before 1970 has a place too, and pages go on behind it.
func TestListByTagOfTimesLongAgo(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var want []string
		for i := range 5 {
			id := fmt.Sprint(i)
			want = append(want, id)
			s.do(s.schedule(id, in(-time.Duration(t0+int64(i))*ms), tagged("a")))
		}
		require.ElementsMatch(t, want, s.listed(look.ListFilter{Tag: "a", Limit: 2}))
	})
}

func TestCancelManyByTag(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("waits", wantReport, tagged("a")))
		s.awaitReport("waits", 1)
		other := s.schedule("other", in(time.Hour), tagged("a"))
		other.Topic = "bills"
		s.do(s.schedule("a1", in(2*time.Hour), tagged("a")), s.schedule("a2", in(3*time.Hour), tagged("b,a")), s.schedule("b", in(time.Hour), tagged("b")), s.schedule("none", in(time.Hour)), other,
			s.schedule("claimed", in(0), tagged("a")))
		s.claim(s.row("claimed").Pos)
		done := s.cancelAll(look.ListFilter{Tag: "a", Topic: target, To: s.now + 3*time.Hour.Milliseconds()})
		require.EqualValues(t, 1, done.Cancelled)
		require.EqualValues(t, 2, done.TooLate)
		require.Equal(t, "cancelled", s.state("a1"))
		done = s.cancelAll(look.ListFilter{Tag: "a"})
		require.EqualValues(t, 2, done.Cancelled)
		require.Equal(t, "cancelled", s.state("a2"))
		require.Equal(t, "pending", s.state("b"))
		require.Equal(t, "pending", s.state("none"))
		require.ElementsMatch(t, []string{"a1", "a2", "other"}, s.listed(look.ListFilter{Tag: "a", State: "cancelled"}))
	})
}

func TestForecastByTag(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 30 {
			tag := []string{"a", "b", ""}[i%3]
			s.do(s.schedule(fmt.Sprint(i), in(time.Duration(i)*100*ms), tagged(tag)))
		}
		other := s.schedule("other", in(200*ms), tagged("a"))
		other.Topic = "bills"
		s.do(other, s.cancel("3"), s.schedule("6", in(650*ms), tagged("a,b")))
		s.deliver(t0 + 100)
		count := func(f look.ForecastFilter) map[int64]int64 {
			t.Helper()
			f.From, f.To, f.Step = t0, t0+3000, 1000
			steps, next, err := look.New(s.Store).Forecast(s.ctx, f)
			require.NoError(t, err)
			require.Zero(t, next)
			out := map[int64]int64{}
			for _, step := range steps {
				out[step.At-t0] = step.Count
			}
			return out
		}
		for _, stretch := range []int64{0, 1} {
			require.Equal(t, map[int64]int64{0: 3, 1000: 3, 2000: 3}, count(look.ForecastFilter{Tag: "a", Stretch: stretch}), "0 is delivered and 3 cancelled; other, 6, 9; 12, 15, 18; 21, 24, 27")
			require.Equal(t, map[int64]int64{0: 2, 1000: 3, 2000: 3}, count(look.ForecastFilter{Tag: "a", Topic: target, Stretch: stretch}))
			require.Empty(t, count(look.ForecastFilter{Tag: "c", Stretch: stretch}))
		}
	})
}

func TestRunsHaveTheTagsOfTheirTimer(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.timerRequest(schemas.OpTimer, tagged("a,b")))
		s.own()
		made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+20_000, s.now, time.Minute, nil)
		require.NoError(t, err)
		require.Equal(t, 3, made.Runs)
		require.Len(t, s.listed(look.ListFilter{Tag: "b"}), 3)
		s.do(s.timerRequest(schemas.OpTimer, tagged("c")))
		_, err = s.MakeRuns(s.ctx, s.owned(s.epoch), s.now+20_000, s.now, time.Minute, nil)
		require.NoError(t, err)
		require.Empty(t, s.listed(look.ListFilter{Tag: "b"}))
		require.Len(t, s.listed(look.ListFilter{Tag: "c"}), 3)
		require.EqualValues(t, 3, s.cancelAll(look.ListFilter{Tag: "c"}).Cancelled)
	})
}

func TestLettersByTag(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i, tag := range []string{"a", "b,a", "", "ab", "a,a"} {
			s.die(fmt.Sprint(i), tagged(tag))
		}
		rejected := schemas.NewRequest(schemas.OpSchedule, target, "rejected")
		rejected.Settings.Tag = "a"
		s.do(&task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "rejected", Body: rejected.EncodeRejected()})
		ids := func(f letters.Filter) (out []string) {
			t.Helper()
			f.Limit = 1
			for {
				page, err := s.dead.Select(s.ctx, f)
				require.NoError(t, err)
				found, err := s.dead.Read(s.ctx, page.IDs, false)
				require.NoError(t, err)
				for _, d := range found {
					out = append(out, d.TaskID)
				}
				if f.After = page.Next; f.After == 0 {
					n, next, err := s.dead.Count(s.ctx, letters.Filter{Tag: f.Tag, Topic: f.Topic, TaskID: f.TaskID, Kind: f.Kind, IDs: f.IDs, UpTo: f.UpTo, Replayed: f.Replayed}, 0)
					require.NoError(t, err)
					require.EqualValues(t, len(out), n)
					require.Zero(t, next)
					return out
				}
			}
		}
		require.Equal(t, []string{"0", "1", "4"}, ids(letters.Filter{Tag: "a"}))
		require.Equal(t, []string{"1"}, ids(letters.Filter{Tag: "b", Topic: target}))
		require.Empty(t, ids(letters.Filter{Tag: "a", Topic: "bills"}))
		require.Empty(t, ids(letters.Filter{Tag: "c"}))
		require.Equal(t, []string{"4"}, ids(letters.Filter{Tag: "a", TaskID: "4"}))
		require.Equal(t, []string{"0", "1", "4"}, ids(letters.Filter{Tag: "a", Kind: schemas.KindDead}))
		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{Tag: "a"})
		require.NoError(t, err)
		require.Equal(t, []string{"1"}, ids(letters.Filter{Tag: "a", IDs: []int64{all[1].ID, all[2].ID + 100}}))
		require.Equal(t, []string{"0", "1"}, ids(letters.Filter{Tag: "a", UpTo: all[1].ID}))
		page, err := s.dead.Select(s.ctx, letters.Filter{Tag: "a", Allowed: func(string) bool { return false }})
		require.NoError(t, err)
		require.Empty(t, page)

		// What is replayed has its tags again, and so has its next letter.
		s.now += 1000
		report, _, err := s.Replay(s.ctx, []int64{all[0].ID, all[1].ID}, "operator", s.now, false)
		require.NoError(t, err)
		require.Empty(t, report[0].Skipped+report[1].Skipped)
		require.Equal(t, []string{"4"}, ids(letters.Filter{Tag: "a"}))
		require.Equal(t, []string{"0", "1", "4"}, ids(letters.Filter{Tag: "a", Replayed: true}))
		require.ElementsMatch(t, []string{"0", "1"}, s.listed(look.ListFilter{Tag: "a"}))
		require.Equal(t, []string{"1"}, s.listed(look.ListFilter{Tag: "b"}))
		s.awaitReport("1", 1)
		require.Equal(t, schemas.StateDead, s.answer(says("1", 1, schemas.StatusFail)))
		require.Equal(t, []string{"4", "1"}, ids(letters.Filter{Tag: "a"}), "in the order of their ids")

		deleted, next, err := s.dead.Purge(s.ctx, letters.Filter{Tag: "a"})
		require.NoError(t, err)
		require.EqualValues(t, 2, deleted)
		require.Zero(t, next)
		require.Equal(t, []string{"3"}, ids(letters.Filter{Tag: "ab"}))
		before := s.count("tags")
		n, _, err := s.SweepTags(s.ctx, nil)
		require.NoError(t, err)
		require.Equal(t, 3, n, "those of two letters, one of which had two")
		require.Equal(t, before-3, s.count("tags"))
		require.Equal(t, []string{"0", "1"}, ids(letters.Filter{Tag: "a", Replayed: true}), "the letters that are left")
	})
}

// A page of letters by tag looks at a bounded number, and goes on behind letters that are gone.
func TestLettersByTagPageByPage(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		settings := schemas.DefaultSettings()
		settings.Tag = "a"
		body := schemas.EncodeBody(nil, nil, nil, nil, settings)
		n := letters.Examined + 200
		records := make([]any, n)
		for i := range records {
			records[i] = &task.DeadLetter{Kind: schemas.KindDead, Topic: []string{"bills", "orders"}[i/(n-2)], TaskID: fmt.Sprint(i), Body: body}
		}
		s.do(records...)
		page, err := s.dead.Select(s.ctx, letters.Filter{Tag: "a", Topic: "orders"})
		require.NoError(t, err)
		require.Empty(t, page.IDs)
		require.NotZero(t, page.Next)
		found, err := lettertest.All(s.ctx, s.dead, letters.Filter{Tag: "a", Topic: "orders"})
		require.NoError(t, err)
		require.Len(t, found, 2)
		for next := int64(-1); next != 0; {
			_, next, err = s.dead.Purge(s.ctx, letters.Filter{Topic: "bills", After: max(next, 0)})
			require.NoError(t, err)
		}
		found, err = lettertest.All(s.ctx, s.dead, letters.Filter{Tag: "a"})
		require.NoError(t, err)
		require.Len(t, found, 2, "behind thousands that are gone")
		count, _, err := s.dead.Count(s.ctx, letters.Filter{Tag: "a"}, 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, count)
	})
}

// The rows of a task stay as long as the task is remembered, and no longer.
func TestSweepTags(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 1000 {
			records = append(records, s.schedule(fmt.Sprint(i), in(time.Duration(i)*ms), tagged("a,b")))
		}
		s.do(records...)
		s.do(s.cancel("999"))
		s.deliver(t0 + 499)
		sweep := func() (gone int) {
			var at *line.TagPlace
			for {
				n, next, err := s.SweepTags(s.ctx, at)
				require.NoError(t, err)
				gone += n
				if at = next; at == nil {
					return gone
				}
			}
		}
		require.Zero(t, sweep(), "all are remembered")
		for _, slot := range append(s.allSlots(), task.OutOfLine) {
			for rest := (line.Range{Slot: slot, From: 0, To: t0 + 499}); rest.From < rest.To; {
				var err error
				_, rest, err = s.Retire(s.ctx, rest)
				require.NoError(t, err)
			}
		}
		gone := 1000 - s.count("tasks")
		require.GreaterOrEqual(t, gone, 500)
		require.Equal(t, 2*gone, sweep())
		require.Equal(t, 2*s.count("tasks"), s.count("tags"))
		require.Zero(t, sweep())
	})
}
