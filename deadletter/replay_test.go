package deadletter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
)

func TestReplayOnceAndOnlyWhatCanBe(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a", "boom", []byte("1"))
	g.kill("orders", "b", "boom", []byte("2"))
	g.reject("r")
	g.schedule("orders", "b", []byte("3")) // a newer one is under way

	want := Result{Progress: Progress{Done: 1, Skipped: 2}, Reasons: map[string]int64{
		"a newer task of this topic and id is under way": 1, "it is a rejected request: correct it and publish it again": 1,
	}}
	dry, err := Replay(t.Context(), g.local(nil), letters.Filter{}, Options{DryRun: true})
	require.NoError(t, err)
	require.NotZero(t, dry.Began)
	want.Began = dry.Began
	require.Equal(t, want, dry)
	v, err := look.New(g.Store).Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "dead", v.State, "a dry run changes nothing")

	var told []string
	real, err := Replay(t.Context(), g.local(nil), letters.Filter{}, Options{Each: func(r intake.Replayed) { told = append(told, r.TaskID+":"+r.Skipped) }})
	require.NoError(t, err)
	want.Began = real.Began
	require.Equal(t, want, real, "the rehearsal told what then happened")
	require.Len(t, told, 3)
	require.Equal(t, "a:", told[0])
	v, err = look.New(g.Store).Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "pending", v.State)
	require.Equal(t, 1, v.Replay)

	again, err := Replay(t.Context(), g.local(nil), letters.Filter{Topic: "orders", Replayed: true}, Options{})
	require.NoError(t, err)
	require.Equal(t, int64(0), again.Done)
	require.Equal(t, int64(1), again.Reasons["it has been replayed already"])
}

func TestReplayTellsTheIndex(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a", "boom", nil)
	redis, err := embedded.StartRedis()
	require.NoError(t, err)
	t.Cleanup(redis.Close)
	ix, err := index.New(index.Config{Addrs: []string{redis.Addr()}}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(ix.Close)

	_, err = Replay(t.Context(), g.local(ix), letters.Filter{}, Options{})
	require.NoError(t, err)
	members, err := ix.Members(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, members, 1)
	_, next, err := intake.New(g).Line().Next(t.Context(), []int{0})
	require.NoError(t, err)
	require.Equal(t, next[0].Pos, members[0].Pos)
}

func TestReplayWithoutRedis(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a", "boom", nil)
	ix, err := index.New(index.Config{Addrs: []string{"127.0.0.1:1"}, DialTimeout: 50 * time.Millisecond}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(ix.Close)
	r, err := Replay(t.Context(), g.local(ix), letters.Filter{}, Options{})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Done)
}

// pages returns as many letters as are requested, up to all.
type pages struct {
	all   int64
	sizes []int
	fail  int // at this page; 0: never
}

func (p *pages) ReplayPage(_ context.Context, f letters.Filter, upTo int64, _ bool) (Page, error) {
	if want := int64(99); len(p.sizes) > 0 && upTo != want {
		return Page{}, errors.New("the bound of the first page must go to all others")
	}
	p.sizes = append(p.sizes, f.Limit)
	if len(p.sizes) == p.fail {
		return Page{}, errors.New("gone")
	}
	out := Page{UpTo: 99}
	for id := f.After + 1; id <= min(p.all, f.After+int64(f.Limit)); id++ {
		out.Letters = append(out.Letters, intake.Replayed{ID: id})
	}
	if len(out.Letters) == f.Limit {
		out.Next = f.After + int64(f.Limit)
	}
	return out, nil
}

func (p *pages) PurgePage(ctx context.Context, f letters.Filter, upTo int64) (Purged, error) {
	page, err := p.ReplayPage(ctx, f, upTo, false)
	return Purged{Deleted: int64(len(page.Letters)), Next: page.Next, UpTo: page.UpTo}, err
}

func TestPaging(t *testing.T) {
	for _, c := range []struct {
		all   int64
		limit int
		rate  float64
		want  int64
		sizes []int
	}{
		{all: 0, want: 0, sizes: []int{500}},
		{all: 500, want: 500, sizes: []int{500, 500}},
		{all: 1201, want: 1201, sizes: []int{500, 500, 500}},
		{all: 1201, limit: 600, want: 600, sizes: []int{500, 100}},
		{all: 10, limit: 3, want: 3, sizes: []int{3}},
		{all: 100, rate: 40_000, want: 100, sizes: []int{500}},
	} {
		p := &pages{all: c.all}
		var last Progress
		r, err := Replay(t.Context(), p, letters.Filter{Limit: c.limit}, Options{Rate: c.rate, Progress: func(p Progress) { last = p }})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Done)
		require.Equal(t, r.Progress, last)
		require.Equal(t, c.sizes, p.sizes)
	}
}

func TestReplayAnswersWhatWasDoneBeforeAFailure(t *testing.T) {
	r, err := Replay(t.Context(), &pages{all: 2000, fail: 3}, letters.Filter{}, Options{})
	require.ErrorContains(t, err, "gone")
	require.Equal(t, int64(1000), r.Done)
}

// dyingPager is a Pager whose replayed tasks die again at once.
type dyingPager struct {
	*Local
	g     *fixture
	pages int
}

func (m *dyingPager) ReplayPage(ctx context.Context, f letters.Filter, upTo int64, dryRun bool) (Page, error) {
	m.pages++
	page, err := m.Local.ReplayPage(ctx, f, upTo, dryRun)
	for range page.Letters {
		m.g.reject(fmt.Sprint("new", m.g.next))
	}
	return page, err
}

func TestARunEndsThoughLettersKeepComing(t *testing.T) {
	g := newFixture(t)
	for i := range 5 {
		g.reject(fmt.Sprint(i))
	}
	m := &dyingPager{Local: g.local(nil), g: g}
	r, err := Replay(t.Context(), m, letters.Filter{}, Options{Rate: 2})
	require.NoError(t, err)
	require.Equal(t, int64(5), r.Skipped, "what comes while a run goes on does not belong to it")
	require.Equal(t, 3, m.pages)

	last, err := letters.New(g).Last(t.Context())
	require.NoError(t, err)
	g.reject("unseen")
	purged, err := g.local(nil).PurgePage(t.Context(), letters.Filter{}, last)
	require.NoError(t, err)
	require.Equal(t, Purged{Deleted: 10, UpTo: last}, purged)
	left, _, err := letters.New(g).Count(t.Context(), letters.Filter{}, 0)
	require.NoError(t, err)
	require.Equal(t, int64(1), left)
}
