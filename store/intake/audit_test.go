package intake

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

func (f *fixture) audited() []admin.AuditEntry {
	f.t.Helper()
	page, err := look.New(f.Store).ListAudit(f.ctx, look.AuditFilter{})
	require.NoError(f.t, err)
	require.Nil(f.t, page.More)
	for i := range page.Entries {
		require.NotZero(f.t, page.Entries[i].ID)
		require.NotZero(f.t, page.Entries[i].At)
		page.Entries[i].ID, page.Entries[i].At = 0, 0
	}
	return page.Entries
}

// by has the fixture's calls be those of an actor, who makes the change.
func (f *fixture) by(e admin.AuditEntry) {
	f.ctx = handle.Auditing(handle.WithActor(f.test.Context(), admin.Actor{Who: "ann", Via: admin.ViaAPI}), e)
}

func (f *fixture) letterIDs() (ids []int64) {
	f.t.Helper()
	letters, err := lettertest.All(f.ctx, f.dead, letters.Filter{})
	require.NoError(f.t, err)
	for _, d := range letters {
		ids = append(ids, d.ID)
	}
	return ids
}

// Each change and its entry are one transaction.
func TestChangesAreAudited(t *testing.T) {
	die := func(s *fixture, n int) {
		var records []any
		for i := range n {
			records = append(records, &task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: fmt.Sprint(i), Reason: "r"})
		}
		s.do(records...)
	}
	for _, c := range []struct {
		name   string
		before func(s *fixture)
		change func(s *fixture) error
		count  int64 // 0: nothing was changed, and there is no entry
	}{
		{"replay", func(s *fixture) { s.die("a"); s.die("b") }, func(s *fixture) error {
			_, _, err := s.Replay(s.ctx, append(s.letterIDs(), 1<<40), "ann", s.now, false)
			return err
		}, 2},
		{"a rehearsal", func(s *fixture) { s.die("a") }, func(s *fixture) error {
			_, _, err := s.Replay(s.ctx, s.letterIDs(), "ann", s.now, true)
			return err
		}, 0},
		{"replay of nothing", func(s *fixture) { die(s, 1) }, func(s *fixture) error {
			_, _, err := s.Replay(s.ctx, s.letterIDs(), "ann", s.now, false)
			return err
		}, 0},
		{"purge in several transactions", func(s *fixture) { die(s, tables.MaxRows+7) }, func(s *fixture) error {
			_, _, err := s.dead.Purge(s.ctx, letters.Filter{Limit: 1000})
			return err
		}, tables.MaxRows + 7},
		{"purge of nothing", func(*fixture) {}, func(s *fixture) error {
			_, _, err := s.dead.Purge(s.ctx, letters.Filter{})
			return err
		}, 0},
		{"restart", func(*fixture) {}, func(s *fixture) error {
			_, err := s.Restart(s.ctx, s.source, 0)
			return err
		}, 1},
		{"restart that comes too late", func(*fixture) {}, func(s *fixture) error {
			stale := s.source
			stale.Next = 5
			if _, err := s.Restart(s.ctx, stale, 0); !errors.Is(err, handle.ErrFenced) {
				return fmt.Errorf("want ErrFenced, got %w", err)
			}
			return nil
		}, 0},
		{"skip", func(*fixture) {}, func(s *fixture) error {
			b := s.batch(&task.DeadLetter{Kind: schemas.KindRejected, Topic: target, TaskID: "x"})
			b.Advance[0].To = 10
			b.Skip(s.source.ID, 1, 10)
			_, err := s.Apply(s.ctx, b, store.At(s.now))
			return err
		}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				c.before(s)
				require.Empty(t, s.audited(), "what scanners and dispatchers do is nobody's change")
				s.by(admin.AuditEntry{What: "change", Topic: target, Detail: `{"a":1}`})
				require.NoError(t, c.change(s))
				s.ctx = t.Context()
				if c.count == 0 {
					require.Empty(t, s.audited())
					return
				}
				require.Equal(t, []admin.AuditEntry{{Actor: admin.Actor{Who: "ann", Via: admin.ViaAPI}, What: "change", Topic: target, Detail: `{"a":1}`, Count: c.count}}, s.audited())
			})
		})
	}
}

// What is noted before it is sent needs no transaction of its change.
func TestAuditOfRequests(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		long := strings.Repeat("ü", 3000)
		require.NoError(t, s.Audit(s.ctx, []admin.AuditEntry{
			{Actor: admin.Actor{Who: long, Via: admin.ViaCLI, User: long}, What: long, Topic: long, TaskID: long, Detail: admin.AuditDetail(map[string]any{"reason": long}), Count: 1},
			{Actor: admin.Actor{Who: "bob", Via: admin.ViaAPI}, What: "cancel", Topic: target, TaskID: "\xff", Detail: "{}", Count: 1},
		}))
		found := s.audited()
		require.Equal(t, "\xff", found[0].TaskID, "the latest first")
		require.Len(t, found[1].Who, handle.MaxAuditName-1)
		require.Len(t, found[1].Topic, handle.MaxAuditTopic)
		require.True(t, json.Valid([]byte(found[1].Detail)))
	})
}

func TestAuditDetailIsBounded(t *testing.T) {
	ids := make([]int64, 1000)
	for i := range ids {
		ids[i] = 1<<62 + int64(i)
	}
	fields := map[string]any{"ids": ids, "none": "", "zero": int64(0), "no": false, "yes": true, "n": int64(7)}
	for i := range 10 {
		fields[fmt.Sprint("text", i)] = strings.Repeat("\x01", 1<<20)
	}
	text := admin.AuditDetail(fields)
	require.LessOrEqual(t, len(text), handle.MaxAuditDetail)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	require.EqualValues(t, 1000, out["ids_in_all"])
	require.Equal(t, true, out["yes"])
	require.EqualValues(t, 7, out["n"])
	require.NotContains(t, out, "none")
	require.NotContains(t, out, "zero")
	require.Equal(t, `{"cut":true}`, admin.AuditDetail(map[string]any{"a": func() {}}))
}

func TestListAudit(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var entries []admin.AuditEntry
		for i := range 2*look.AuditExamined + 10 {
			e := admin.AuditEntry{Actor: admin.Actor{Who: "many", Via: admin.ViaAPI}, What: "schedule", Topic: "orders", TaskID: fmt.Sprint("t", i), Detail: "{}", Count: 1}
			if i == 3 {
				e.Who, e.What, e.Topic = "ann", "cancel", "bills"
			}
			entries = append(entries, e)
		}
		require.NoError(t, s.Audit(s.ctx, entries))
		walk := func(f look.AuditFilter) (out []admin.AuditEntry, pages int) {
			for {
				page, err := look.New(s.Store).ListAudit(s.ctx, f)
				require.NoError(t, err)
				out, pages = append(out, page.Entries...), pages+1
				if f.After = page.More; f.After == nil {
					return out, pages
				}
			}
		}
		all, _ := walk(look.AuditFilter{Limit: 999})
		require.Len(t, all, len(entries))
		for i, e := range all {
			require.Equal(t, entries[len(entries)-1-i].TaskID, e.TaskID)
		}
		for name, f := range map[string]look.AuditFilter{
			"who": {Who: "ann"}, "what": {What: "cancel"}, "topic": {Topic: "bills"}, "allowed": {Allowed: func(topic string) bool { return topic == "bills" }},
		} {
			found, pages := walk(f)
			require.Len(t, found, 1, name)
			require.Equal(t, 3, pages, "%s: a page looks at no more than %d", name, look.AuditExamined)
		}
		found, pages := walk(look.AuditFilter{TaskID: "t3"})
		require.Len(t, found, 1)
		require.Equal(t, 1, pages, "by the index")
		now := all[0].At
		found, _ = walk(look.AuditFilter{From: now + 1})
		require.Empty(t, found)
		found, _ = walk(look.AuditFilter{To: all[len(all)-1].At})
		require.Empty(t, found)
		found, _ = walk(look.AuditFilter{From: 1, To: now + 1, TaskID: "t5"})
		require.Len(t, found, 1)

		total := 0
		for more := true; more; {
			var n int
			var err error
			n, more, err = s.RetireAudit(s.ctx, now+1)
			require.NoError(t, err)
			require.LessOrEqual(t, n, tables.MaxRows)
			total += n
		}
		require.Equal(t, len(entries), total)
		require.Empty(t, s.audited())
	})
}
