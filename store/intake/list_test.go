package intake

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/store/look"
)

func TestList(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		for i := range 12 {
			s.do(s.schedule(fmt.Sprint(i), in(time.Duration(i+1)*time.Second)))
		}
		other := s.schedule("other", in(90*ms))
		other.Topic = "invoices"
		s.do(other, s.cancel("3"))
		s.deliver(t0 + 6000)

		ids := func(f look.ListFilter) (out []string) {
			t.Helper()
			page, err := look.New(s.Store).List(s.ctx, f)
			require.NoError(t, err)
			for _, v := range page.Tasks {
				out = append(out, v.ID)
			}
			return out
		}
		require.Equal(t, []string{"6", "7", "8", "9", "10", "11"}, ids(look.ListFilter{}), "what comes next, in order")
		require.Equal(t, []string{"6", "7"}, ids(look.ListFilter{Limit: 2}))
		require.Equal(t, []string{"9", "10"}, ids(look.ListFilter{Limit: 2, From: t0 + 9500}))
		require.Empty(t, ids(look.ListFilter{Topic: "invoices"}))
		require.Equal(t, []string{"5", "4", "2", "1", "0", "other", "3"}, ids(look.ListFilter{Ended: true}), "what was settled last, the latest first")
		require.Equal(t, []string{"5", "4"}, ids(look.ListFilter{Ended: true, Limit: 2}))
		require.Equal(t, []string{"other"}, ids(look.ListFilter{Ended: true, Topic: "invoices"}))
		require.Equal(t, []string{"5", "4"}, ids(look.ListFilter{Ended: true, From: t0 + 4000}))
	})
}

// Many tasks at one place are listed in one order every time, so that pages can be compared.
func TestListOfOnePlace(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 60 {
			records = append(records, s.schedule(fmt.Sprintf("%02d", i)))
		}
		s.do(records...)
		for _, ended := range []bool{false, true} {
			page, err := look.New(s.Store).List(s.ctx, look.ListFilter{Ended: ended})
			require.NoError(t, err)
			views := page.Tasks
			require.Len(t, views, 60)
			for i, v := range views {
				want := i
				if ended {
					want = 59 - i
				}
				require.Equal(t, fmt.Sprintf("%02d", want), v.ID)
			}
			s.deliver(t0 + 1000)
		}
	})
}

// Pages that are read one after the other are the whole list, in its order, each task once, whatever their size.
func TestPagesMakeTheWhole(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var records []any
		for i := range 90 {
			r := s.schedule(fmt.Sprintf("%02d", i), in(time.Duration(1+i/30)*time.Second))
			if i%3 == 0 {
				r.Topic = "invoices"
			}
			records = append(records, r)
		}
		s.do(records...)
		s.do(s.cancel("01"), s.cancel("02"))
		s.deliver(t0 + 2000)
		for _, f := range []look.ListFilter{{}, {Ended: true}, {Topic: target}, {Topic: target, Ended: true}, {Topic: "invoices"}, {IDPrefix: "1", Ended: true}, {State: "cancelled"}} {
			f.Limit = 1000
			whole, err := look.New(s.Store).List(s.ctx, f)
			require.NoError(t, err)
			require.NotEmpty(t, whole.Tasks, "%+v", f)
			require.Nil(t, whole.More)
			for _, limit := range []int{1, 7, 30} {
				f.Limit, f.After = limit, nil
				var got []look.View
				for range 200 {
					page, err := look.New(s.Store).List(s.ctx, f)
					require.NoError(t, err)
					require.LessOrEqual(t, len(page.Tasks), limit)
					got = append(got, page.Tasks...)
					if f.After = page.More; page.More == nil {
						break
					}
				}
				require.Equal(t, whole.Tasks, got, "%+v by %d", f, limit)
			}
		}
		_, err := look.New(s.Store).List(s.ctx, look.ListFilter{State: "lost"})
		require.ErrorIs(t, err, look.ErrState)
	})
}

func TestListFilters(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("order-1", in(time.Second)), s.schedule("order-2", in(2*time.Second)), s.schedule("other", in(3*time.Second)))
		ids := func(f look.ListFilter) (out []string) {
			page, err := look.New(s.Store).List(s.ctx, f)
			require.NoError(t, err)
			for _, v := range page.Tasks {
				out = append(out, v.ID)
				require.Equal(t, f.Body, len(v.Body) > 0)
			}
			return out
		}
		require.Equal(t, []string{"order-1", "order-2"}, ids(look.ListFilter{IDPrefix: "order-"}))
		require.Equal(t, []string{"order-2", "other"}, ids(look.ListFilter{From: t0 + 1001}))
		require.Equal(t, []string{"order-1"}, ids(look.ListFilter{To: t0 + 2000}))
		require.Equal(t, []string{"order-1", "order-2", "other"}, ids(look.ListFilter{Body: true, State: "pending"}))
		require.Empty(t, ids(look.ListFilter{State: "delivered"}))
		require.Empty(t, ids(look.ListFilter{Allowed: func(topic string) bool { return topic != target }}))
	})
}

// An id alone is looked for under the names of all targets, in whatever state its tasks are.
func TestFindOfEveryTarget(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		var all []any
		for i := range 150 {
			r := s.schedule("4711", in(time.Duration(1+i)*time.Second))
			r.Topic = fmt.Sprintf("t%03d", i)
			all = append(all, r)
			for n := range 5 {
				r := s.schedule(fmt.Sprint("other-", n))
				r.Topic = fmt.Sprintf("t%03d", i)
				all = append(all, r)
			}
		}
		s.do(all...)
		gone := s.cancel("4711")
		gone.Topic = "t001"
		s.do(gone)
		s.deliver(t0 + 1000)

		found, err := look.New(s.Store).Find(s.ctx, "4711", nil)
		require.NoError(t, err)
		require.Len(t, found, 150)
		for i, v := range found {
			require.Equal(t, fmt.Sprintf("t%03d", i), v.Topic)
			require.Equal(t, map[int]string{0: "delivered", 1: "cancelled"}[i], map[bool]string{true: v.State}[i < 2])
		}
		found, err = look.New(s.Store).Find(s.ctx, "4711", func(topic string) bool { return topic == "t077" })
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "pending", found[0].State)
		found, err = look.New(s.Store).Find(s.ctx, "471", nil)
		require.NoError(t, err)
		require.Empty(t, found)
	})
}
