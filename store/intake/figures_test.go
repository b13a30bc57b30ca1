package intake

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

func TestServicesReport(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		reports := func() map[string]string {
			t.Helper()
			all, err := look.New(s.Store).Services(s.ctx)
			require.NoError(t, err)
			out := map[string]string{}
			for _, v := range all {
				out[v.ID] = string(v.Figures)
			}
			return out
		}
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "scanner", Figures: []byte(`{"v":1}`)}))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "b", Kind: "dispatcher", Member: "me"}))
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "c", Kind: "scanner", Figures: make([]byte, admin.MaxFigures+1)}))
		require.Equal(t, map[string]string{"a": `{"v":1}`, "b": "", "c": ""}, reports(), "what is too long is left out, and it is alive all the same")
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "scanner", Figures: []byte(`{"v":1,"n":2}`)}))
		require.Equal(t, `{"v":1,"n":2}`, reports()["a"])
		require.NoError(t, s.Beat(s.ctx, admin.Service{ID: "a", Kind: "scanner"}))
		require.Empty(t, reports()["a"], "what it does not know any more is not kept")

		// A program of the version before writes no figures.
		_, err := s.h.Exec(s.ctx, "INSERT INTO services (id, kind, owner, version, http, started, seen) SELECT ?, kind, owner, version, http, started, seen FROM services WHERE id = ?", []byte("old"), []byte("a"))
		require.NoError(t, err)
		require.Equal(t, map[string]string{"a": "", "b": "", "c": "", "old": ""}, reports())
		_, err = s.h.Exec(s.ctx, "UPDATE services SET seen = seen - ? WHERE id = ?", admin.ServiceLease+1, []byte("a"))
		require.NoError(t, err)
		require.NotContains(t, reports(), "a", "it died")
	})
}

func TestMinutesOfFigures(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		minutes := func(from, to int64) (out []string) {
			t.Helper()
			rows, err := look.New(s.Store).Minutes(s.ctx, from, to)
			require.NoError(t, err)
			for _, row := range rows {
				out = append(out, fmt.Sprintf("%d %s", row.Minute, row.Data))
			}
			return out
		}
		require.NoError(t, s.SaveMinute(s.ctx, "a", 1000, []byte("x")))
		require.NoError(t, s.SaveMinute(s.ctx, "a", 1000, []byte("y")), "again: in place of it")
		require.NoError(t, s.SaveMinute(s.ctx, "b", 1001, []byte("z")))
		require.NoError(t, s.SaveMinute(s.ctx, "a", 1002, []byte("w")))
		require.Equal(t, []string{"1000 y", "1001 z"}, minutes(1000, 1001))
		require.Equal(t, []string{"1002 w"}, minutes(1002, 1002))
		require.ErrorContains(t, s.SaveMinute(s.ctx, "a", 1003, make([]byte, admin.MaxMinute+1)), "2048")

		require.NoError(t, s.SaveMinute(s.ctx, "b", 1001+admin.FiguresMemory, []byte("v")))
		require.Equal(t, []string{"1001 z", "1002 w"}, minutes(0, 1100), "the oldest are forgotten, whoever wrote them")
	})
}

// Many processes write and forget at the turn of a minute.
func TestManySaveTheSameMinute(t *testing.T) {
	eachAtOnce(t, func(t *testing.T, s *fixture) {
		const processes = 20
		for minute := int64(1); minute <= 3; minute++ {
			for p := range processes {
				require.NoError(t, s.SaveMinute(s.ctx, fmt.Sprint(p), minute, []byte("x")))
			}
		}
		errs := make([]error, processes)
		var all sync.WaitGroup
		for p := range processes {
			all.Go(func() { errs[p] = s.SaveMinute(s.ctx, fmt.Sprint(p), 4+admin.FiguresMemory, []byte("x")) })
		}
		all.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.Equal(t, processes, s.count("figures"))
	})
}

func TestCountOverdue(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		counted := func(before, most int64) (look.Bounded, int64) {
			t.Helper()
			n, oldest, err := look.New(s.Store).CountOverdue(s.ctx, before, most)
			require.NoError(t, err)
			of, first, err := look.New(s.Store).CountOverdueOf(s.ctx, []string{"none", target}, before, most)
			require.NoError(t, err)
			require.Equal(t, n, of)
			require.True(t, first == oldest || of.More)
			of, _, err = look.New(s.Store).CountOverdueOf(s.ctx, []string{"none"}, before, most)
			require.NoError(t, err)
			require.Equal(t, look.Bounded{}, of)
			return n, oldest
		}
		n, oldest := counted(s.now, 10)
		require.Equal(t, look.Bounded{}, n)
		require.Zero(t, oldest)

		s.own()
		for i := range 6 {
			s.do(s.schedule(fmt.Sprint(i))) // in an hour
		}
		due := s.row("0").Pos
		n, oldest = counted(due, 10)
		require.Equal(t, look.Bounded{}, n, "due at that instant is not overdue")
		require.Zero(t, oldest)
		n, oldest = counted(due+1, 10)
		require.Equal(t, look.Bounded{N: 6}, n)
		require.Equal(t, due, oldest)
		n, _ = counted(due+1, 6)
		require.Equal(t, look.Bounded{N: 6}, n, "as many as are counted, and no more")
		n, oldest = counted(due+1, 5)
		require.Equal(t, look.Bounded{N: 5, More: true}, n)
		require.Equal(t, due, oldest)

		s.claim(due)
		n, _ = counted(due+1, 10)
		require.Equal(t, look.Bounded{N: 6}, n, "claimed is not delivered")
		s.settle(due)
		n, oldest = counted(due+1, 10)
		require.Equal(t, look.Bounded{}, n)
		require.Zero(t, oldest)
	})
}

func TestCountKinds(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 5 {
			s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: "orders", TaskID: fmt.Sprint(i)})
		}
		s.letter(task.DeadLetter{Kind: schemas.KindExpired, Topic: "orders", TaskID: "e"})
		_, err := s.h.Exec(s.ctx, "UPDATE dead_letters SET replayed_at = 7 WHERE task_id = ?", []byte("0"))
		require.NoError(t, err)
		kinds := []string{schemas.KindDead, schemas.KindExpired, schemas.KindCallback}
		got, err := look.New(s.Store).CountKinds(s.ctx, kinds, 4)
		require.NoError(t, err)
		require.Equal(t, map[string]look.Bounded{"dead": {N: 4}, "expired": {N: 1}, "callback": {}}, got, "without the one that was replayed")
		got, err = look.New(s.Store).CountKinds(s.ctx, kinds, 3)
		require.NoError(t, err)
		require.Equal(t, look.Bounded{N: 3, More: true}, got["dead"])
		s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: "bills", TaskID: "b"})
		for topic, own := range map[string]int64{"orders": 4, "bills": 1} {
			got, err := look.New(s.Store).CountKindsOf(s.ctx, kinds, 10, func(t string) bool { return t == topic })
			require.NoError(t, err)
			require.Equal(t, look.Bounded{N: own}, got["dead"])
		}
		got, err = look.New(s.Store).CountKindsOf(s.ctx, kinds, 4, func(t string) bool { return t == "bills" })
		require.NoError(t, err)
		require.Equal(t, look.Bounded{N: 1, More: true}, got["dead"], "behind the newest there may be more")
	})
}

// An overview counts while the database is as full as it gets: it must look at the index alone.
func TestOverviewReadsIndexesAlone(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if !s.backend.sqlite {
			t.Skip("the servers' plans depend on how much is there; the index is named where it matters")
		}
		for _, query := range []string{
			"SELECT COUNT(*) FROM (SELECT 1 FROM tasks WHERE slot = 1 AND pos > 1 AND pos < 9 LIMIT 5) AS overdue",
			"SELECT COUNT(*) FROM (SELECT 1 FROM dead_letters INDEXED BY dead_letters_kind WHERE kind = x'00' AND replayed_at = 0 LIMIT 5) AS letters",
		} {
			var plan string
			rows, err := s.db.QueryContext(s.ctx, "EXPLAIN QUERY PLAN "+query)
			require.NoError(t, err)
			for rows.Next() {
				var id, parent, unused int
				var detail string
				require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
				plan += detail + "\n"
			}
			require.NoError(t, rows.Err())
			require.NoError(t, rows.Close())
			require.Contains(t, plan, "USING COVERING INDEX", plan)
		}
	})
}

// A database that stalls ends a call with its time.
func TestFiguresEndWithTheirTime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ctx, cancel := context.WithDeadline(s.ctx, time.Unix(0, 0))
		defer cancel()
		_, err := look.New(s.Store).Services(ctx)
		require.Error(t, err)
		_, err = look.New(s.Store).Minutes(ctx, 1, 2)
		require.Error(t, err)
		_, _, err = look.New(s.Store).CountOverdue(ctx, 1, 1)
		require.Error(t, err)
		_, err = look.New(s.Store).CountKinds(ctx, []string{"dead"}, 1)
		require.Error(t, err)
		require.Error(t, s.SaveMinute(ctx, "a", 1, []byte("x")))
	})
}
