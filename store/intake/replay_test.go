package intake

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

func TestReplay(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a", version(5), key("k"), value("v"))
		body := s.row("a").Body
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		s.now += 1000
		report, added := s.replay()
		require.Equal(t, []Replayed{{ID: letters[0].ID, Topic: target, TaskID: "a"}}, report)
		require.Equal(t, []handle.Place{s.place("a")}, added)

		row := s.row("a")
		require.Equal(t, task.Task{Seq: letters[0].Seq, Slot: slots.Of(target, []byte("k"), "a", testSlots), Pos: row.Pos, Due: s.now,
			Class: task.ClassRetried, Replay: 1, Version: 5, Created: s.now, Topic: target, ID: "a", Body: body}, row)
		require.GreaterOrEqual(t, row.Pos, s.now)
		require.Equal(t, "pending", s.state("a"))
		require.Equal(t, schemas.StateStale, s.answer(s.schedule("a", version(4))), "its version is remembered")

		report, added = s.replay()
		require.Equal(t, "it has been replayed already", report[0].Skipped, "each letter once")
		require.Empty(t, added)
		require.Equal(t, row, s.row("a"))
	})
}

// Another content is another task: it has a number of its own, so no delivery key is that of the
// former content, whatever the database has forgotten.
func TestReplayEdited(t *testing.T) {
	for name, c := range map[string]struct{ topic, wants string }{"the same topic": {"", target}, "another topic": {"others", "others"}} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.die("a", version(5), key("k"), value("v"))
				letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
				require.NoError(t, err)
				before := s.row("a")
				edit := task.Edit{Topic: c.topic, Body: func(b *schemas.Body) { b.Key, b.Value = []byte("other"), nil }}
				report, added, err := s.ReplayEdited(s.ctx, letters[0].ID, edit, "me", s.now)
				require.NoError(t, err)
				require.Equal(t, []Replayed{{ID: letters[0].ID, Topic: c.wants, TaskID: "a"}}, report)
				require.Len(t, added, 1)

				got, err := look.New(s.Store).Get(s.ctx, c.wants, "a")
				require.NoError(t, err)
				require.Equal(t, "pending", got.State)
				require.Equal(t, 1, got.Replay)
				require.Zero(t, got.Attempt)
				body, err := schemas.DecodeBody(got.Body)
				require.NoError(t, err)
				require.Equal(t, "other", string(body.Key))
				require.Nil(t, body.Value)
				require.Equal(t, schemas.AckReport, body.Settings.Ack, "what was not edited stays")
				if c.topic != "" {
					require.Equal(t, before, s.row("a"), "the dead task stays")
					require.Nil(t, got.Version)
				}
				rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks WHERE topic = ?", []byte(c.wants))
				require.NoError(t, err)
				require.Len(t, rows, 1)
				require.True(t, task.IsRun(rows[0].Seq))
				require.Equal(t, slots.Of(c.wants, []byte("other"), "a", testSlots), rows[0].Slot)

				report, added, err = s.ReplayEdited(s.ctx, letters[0].ID, edit, "me", s.now)
				require.NoError(t, err)
				require.Equal(t, "it has been replayed already", report[0].Skipped)
				require.Empty(t, added)
			})
		})
	}
}

func TestReplayEditedSkips(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a")
		s.die("b")
		s.letter(task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "r", Body: []byte("x")})
		s.do(s.schedule("b"))
		dead, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		edit := task.Edit{Topic: "others", Body: func(*schemas.Body) {}}
		s.do(s.schedule("a", func(r *schemas.Request) { r.Topic = "others" }))
		for i, reason := range []string{"a newer task", "", "it is a rejected request"} {
			report, _, err := s.ReplayEdited(s.ctx, dead[i].ID, edit, "me", s.now)
			require.NoError(t, err)
			if reason == "" {
				require.Empty(t, report[0].Skipped, "what is under way elsewhere is another's")
			} else {
				require.Contains(t, report[0].Skipped, reason)
			}
		}
	})
}

// A rehearsal answers what a replay would, and changes nothing; a replay leaves who asked for it.
func TestReplayRehearsed(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a")
		s.die("b")
		s.do(s.schedule("b"))
		dead, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		ids := []int64{dead[0].ID, dead[1].ID}
		before := s.dump()
		rehearsed, added, err := s.Replay(s.ctx, ids, "operator", s.now, true)
		require.NoError(t, err)
		require.Empty(t, added)
		require.Equal(t, before, s.dump())

		report, added, err := s.Replay(s.ctx, ids, "operator", s.now, false)
		require.NoError(t, err)
		require.Equal(t, rehearsed, report)
		require.Len(t, added, 1)
		dead, err = lettertest.All(s.ctx, s.dead, letters.Filter{Replayed: true})
		require.NoError(t, err)
		require.Equal(t, []string{"operator", ""}, []string{dead[0].ReplayedBy, dead[1].ReplayedBy})
		require.Equal(t, []int64{s.now, 0}, []int64{dead[0].ReplayedAt, dead[1].ReplayedAt})
	})
}

func TestReplaySkips(t *testing.T) {
	for name, c := range map[string]struct {
		bring  func(s *fixture)
		reason string
	}{
		"a rejected request": {func(s *fixture) {
			s.letter(task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "a"})
		}, "it is a rejected request"},
		"the id is pending again":   {func(s *fixture) { s.die("a"); s.do(s.schedule("a")) }, "a newer task of this topic and id is under way"},
		"the id is claimed again":   {func(s *fixture) { s.die("a"); s.do(s.schedule("a")); s.claim(s.row("a").Pos) }, "is under way"},
		"a newer task is awaited":   {func(s *fixture) { s.die("a"); s.do(s.schedule("a", wantReport)); s.awaitReport("a", 1) }, "is under way"},
		"a newer task is cancelled": {func(s *fixture) { s.die("a"); s.do(s.schedule("a")); s.do(s.cancel("a")) }, "was cancelled"},
		"a newer version was delivered": {func(s *fixture) {
			s.die("a", version(1))
			s.do(s.schedule("a", version(2)))
			s.deliver(s.row("a").Pos)
		}, "a newer request, of version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				c.bring(s)
				before := s.dump()
				report, added := s.replay()
				require.Len(t, report, 1)
				require.Contains(t, report[0].Skipped, c.reason)
				require.Empty(t, added)
				require.Equal(t, before, s.dump())
			})
		})
	}
}

// An id that was used again without versions, and whose newer task was delivered, is nobody's any more.
func TestReplayAfterAnotherDelivery(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a", value("dead"))
		s.do(s.schedule("a", value("other")))
		s.deliver(s.row("a").Pos)
		report, _ := s.replay()
		require.Empty(t, report[0].Skipped)
		require.Equal(t, "dead", string(s.body("a").Value))
	})
}

// A message that dies each time must not circle for ever.
func TestReplayHopLimit(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a")
		for hop := 1; hop <= task.MaxReplays; hop++ {
			report, _ := s.replay()
			require.Empty(t, report[len(report)-1].Skipped)
			require.Equal(t, hop, s.row("a").Replay)
			s.awaitReport("a", 1)
			s.do(says("a", 1, schemas.StatusFail))
			require.Equal(t, hop+1, s.count("dead_letters"), "each death has its letter")
		}
		report, _ := s.replay()
		require.Equal(t, "it has been replayed 10 times", report[len(report)-1].Skipped)
		require.Equal(t, "dead", s.state("a"))
	})
}

// Two letters of one id are two deaths; one call brings back the first and finds it under way for the second.
func TestReplayTwoLettersOfOneID(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.die("a", value("1"))
		s.die("a", value("2"))
		report, added := s.replay()
		require.Empty(t, report[0].Skipped)
		require.Contains(t, report[1].Skipped, "is under way")
		require.Len(t, added, 1)
		require.Equal(t, "1", string(s.body("a").Value))
		require.Equal(t, 1, s.count("tasks"))
	})
}

func TestReplayNothing(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for _, ids := range [][]int64{nil, {4711}} {
			report, added, err := s.Replay(s.ctx, ids, "test", s.now, false)
			require.NoError(t, err)
			require.Empty(t, report)
			require.Empty(t, added)
		}
	})
}

// Two operators replay the same letters: each comes back once.
func TestReplayByTwoAtOnce(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			s.die(id)
		}
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		var ids []int64
		for _, d := range letters {
			ids = append(ids, d.ID)
		}
		stores := []*store.Store{s.Store, s.another()}
		reports := make([][]Replayed, 6)
		errs := make([]error, len(reports))
		var wg sync.WaitGroup
		for i := range reports {
			wg.Go(func() { reports[i], _, errs[i] = New(stores[i%2]).Replay(s.ctx, ids, "test", s.now, false) })
		}
		wg.Wait()
		times := map[string]int{}
		for i, report := range reports {
			require.NoError(t, errs[i])
			for _, r := range report {
				if r.Skipped == "" {
					times[r.TaskID]++
				}
			}
		}
		require.Equal(t, map[string]int{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}, times)
	})
}
