package intake

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// letters writes n letters of a topic.
func (f *fixture) letters(n int, topic, reason string) {
	f.t.Helper()
	records := make([]any, n)
	for i := range records {
		records[i] = &task.DeadLetter{Kind: schemas.KindDead, Topic: topic, TaskID: fmt.Sprint(i), Reason: reason}
	}
	f.do(records...)
}

// However rare what a filter selects is, a page looks at a bounded number of letters and says where the
// next one begins.
func TestAPageOfLettersLooksAtABoundedNumber(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(letters.Examined+200, "orders", "as usual")
		s.letters(2, "orders", "what is looked for")
		f := letters.Filter{Reason: "looked for", Limit: 10}
		page, err := s.dead.Select(s.ctx, f)
		require.NoError(t, err)
		require.Empty(t, page.IDs)
		require.NotZero(t, page.Next)
		f.After = page.Next
		page, err = s.dead.Select(s.ctx, f)
		require.NoError(t, err)
		require.Len(t, page.IDs, 2)
		require.Zero(t, page.Next)

		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{Reason: "looked for"})
		require.NoError(t, err)
		require.Len(t, all, 2, "who wants all goes on by itself")
		n, next, err := s.dead.Count(s.ctx, letters.Filter{Reason: "looked for"}, 0)
		require.NoError(t, err)
		require.EqualValues(t, 2, n)
		require.Zero(t, next)
		deleted, next, err := s.dead.Purge(s.ctx, letters.Filter{Reason: "looked for"})
		require.NoError(t, err)
		require.Zero(t, deleted)
		deleted, next, err = s.dead.Purge(s.ctx, letters.Filter{Reason: "looked for", After: next})
		require.NoError(t, err)
		require.EqualValues(t, 2, deleted)
		require.Zero(t, next)
	})
}

// A caller for some topics learns nothing about the letters of others: whatever he asks for, the answer
// is the same as if theirs said something else.
func TestPagesOfLettersSayNothingAboutOthers(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(300, "billing", "the secret is 4711")
		s.letters(3, "orders", "as usual")
		s.letters(300, "billing", "the secret is 4711")
		allowed := func(topic string) bool { return topic == "orders" }
		for _, f := range []letters.Filter{
			{}, {Kind: schemas.KindDead}, {TaskID: "1"}, {Since: t0}, {Until: s.now + 1}, {Replayed: true},
			{Reason: "4"}, {Reason: "the secret is 4711"}, {Reason: "the secret is 4712"}, {Reason: "usual"},
		} {
			for _, limit := range []int{1, 2, 3, 100} {
				f.Limit, f.Allowed = limit, nil
				own := f
				own.Topic = "orders"
				want, err := s.dead.Select(s.ctx, own)
				require.NoError(t, err)
				f.Allowed = allowed
				got, err := s.dead.Select(s.ctx, f)
				require.NoError(t, err)
				require.Equal(t, want, got, "%+v", f)
			}
		}
	})
}

// Where a page ends may depend on how many letters others have, and on nothing that theirs say.
func TestWhereAPageEndsSaysNothingAboutOthers(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(letters.Examined+1, "billing", "the secret is 4711")
		f := letters.Filter{Allowed: func(topic string) bool { return topic == "orders" }}
		want, err := s.dead.Select(s.ctx, f)
		require.NoError(t, err)
		require.NotZero(t, want.Next)
		for _, f.Kind = range []string{schemas.KindDead, schemas.KindRejected} {
			for _, f.Reason = range []string{"", "4711", "4712"} {
				got, err := s.dead.Select(s.ctx, f)
				require.NoError(t, err)
				require.Equal(t, want, got, "%s %s", f.Kind, f.Reason)
			}
		}
	})
}

// A page that looked at more letters than one statement reads, up to the last, is the last page.
func TestTheLastPageSaysSo(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(letters.AtOnce+1, "orders", "no")
		for _, newest := range []bool{false, true} {
			page, err := s.dead.Select(s.ctx, letters.Filter{Limit: letters.Examined, Newest: newest})
			require.NoError(t, err)
			require.Len(t, page.IDs, letters.AtOnce+1)
			require.Zero(t, page.Next)
		}
	})
}

// The pages of the latest letters are the whole list the other way round, whatever the filter and
// whatever comes meanwhile.
func TestNewestLettersFirst(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 40 {
			kind, topic := []string{schemas.KindDead, schemas.KindExpired}[i%2], []string{"orders", "bills", "carts"}[i%3]
			s.letter(task.DeadLetter{Kind: kind, Topic: topic, TaskID: fmt.Sprint(i % 5), Reason: fmt.Sprint("reason ", i%4)})
		}
		all, err := lettertest.All(s.ctx, s.dead, letters.Filter{Limit: 1000})
		require.NoError(t, err)
		some := []int64{all[2].ID, all[16].ID, all[8].ID} // a database leaves ids out
		for _, f := range []letters.Filter{{}, {Kind: schemas.KindDead}, {Topic: "orders"}, {TaskID: "1"}, {Topic: "bills", TaskID: "1"}, {Reason: "reason 2"}, {Replayed: true}, {Since: t0}, {Until: s.now + 1},
			{IDs: some}, {Allowed: func(topic string) bool { return topic == "carts" }}} {
			f.Limit = 1000
			want, err := lettertest.All(s.ctx, s.dead, f)
			require.NoError(t, err)
			require.NotEmpty(t, want)
			f.Newest, f.Limit = true, 3
			var got []int64
			for {
				page, err := s.dead.Select(s.ctx, f)
				require.NoError(t, err)
				read, err := s.dead.Read(s.ctx, page.IDs, false)
				require.NoError(t, err)
				for _, l := range read {
					got = append(got, l.ID)
				}
				if page.Next == 0 {
					break
				}
				s.letter(task.DeadLetter{Kind: schemas.KindDead, Topic: "later", TaskID: "1", Reason: "reason 2"})
				f = f.Behind(page.Next)
			}
			require.Len(t, got, len(want), "%+v", f)
			for i, l := range want {
				require.Equal(t, l.ID, got[len(got)-1-i], "%+v", f)
			}
		}
	})
}

// Of a replay, those that died again are counted by the letters that it brought back.
func TestCountDiedAgain(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(20, "orders", "r")
		was, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		for i, l := range was[:15] { // five of them long ago
			at := s.now
			if i >= 10 {
				at -= 1000
			}
			_, err := s.h.Exec(s.ctx, "UPDATE dead_letters SET replayed_at = ? WHERE id = ?", at, l.ID)
			require.NoError(t, err)
			_, err = s.h.Exec(s.ctx, "INSERT INTO dead_letters (seq, kind, topic, task_id, due, attempt, replay, reason, died_at, replayed_at, replayed_by, body) SELECT seq, kind, topic, task_id, due, attempt, 1, reason, ?, 0, '', '' FROM dead_letters WHERE id = ?", s.now+int64(i), l.ID)
			require.NoError(t, err)
		}
		s.letters(3, "orders", "others")
		for _, c := range []struct {
			f letters.Filter
			n int64
		}{{letters.Filter{}, 10}, {letters.Filter{Topic: "orders"}, 10}, {letters.Filter{Topic: "bills"}, 0}, {letters.Filter{TaskID: "3"}, 1}, {letters.Filter{IDs: []int64{was[0].ID, was[12].ID, was[19].ID}}, 1}, {letters.Filter{Reason: "other"}, 0}, {letters.Filter{Settled: s.now + 1}, 10}, {letters.Filter{Settled: s.now}, 0}} {
			n, err := s.dead.CountDiedAgain(s.ctx, c.f, s.now)
			require.NoError(t, err)
			require.Equal(t, c.n, n, "%+v", c.f)
		}
	})
}

func TestCountingLettersEndsInTime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.letters(letters.Counted+5, "orders", "r")
		n, next, err := s.dead.Count(s.ctx, letters.Filter{}, 1)
		require.NoError(t, err)
		require.EqualValues(t, letters.Counted, n)
		more, next, err := s.dead.Count(s.ctx, letters.Filter{After: next}, 1)
		require.NoError(t, err)
		require.EqualValues(t, 5, more)
		require.Zero(t, next)
	})
}

// The server ends a statement whose caller has no time left. Otherwise statements that nobody waits for
// would pile up on it.
func TestTheServerEndsAStatementInTime(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if s.backend.sqlite {
			t.Skip("its driver ends a statement with the context")
		}
		ctx, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
		defer cancel()
		query := tables.Limited(ctx, "SELECT SLEEP(120)")
		require.True(t, strings.HasPrefix(query, "/*M!"))
		began := time.Now()
		rows, err := s.db.QueryContext(s.ctx, query) // a context without an end: only the server ends it
		if err == nil {
			for rows.Next() { // MySQL says that SLEEP was interrupted by its value
			}
			err = rows.Err()
			require.NoError(t, rows.Close())
		}
		require.Less(t, time.Since(began), time.Minute, "%v", err)
	})
}
