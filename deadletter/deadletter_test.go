package deadletter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/embedded"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
)

// fixture is a migrated database with one source of requests, and ways to make its tasks dead.
type fixture struct {
	*store.Store
	t      *testing.T
	source store.Source
	next   int64
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, "sqlite:"+t.TempDir()+"/notyet.db")
}

func newFixtureOn(t *testing.T, dsn string) *fixture {
	t.Helper()
	ctx := t.Context()
	st, err := store.Open(ctx, store.Config{DSN: dsn}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Migrate(ctx, 1))
	source, err := st.Source(ctx, "notyet.intake", [16]byte{1}, 0, 0)
	require.NoError(t, err)
	return &fixture{Store: st, t: t, source: source}
}

func (g *fixture) apply(changes ...store.Change) {
	g.t.Helper()
	for i := range changes {
		changes[i].Seq = store.Seq(g.source.ID, g.next+int64(i))
		if changes[i].Rejected != nil {
			changes[i].Rejected.Seq = changes[i].Seq
		}
	}
	to := g.next + int64(len(changes))
	_, err := g.Apply(g.t.Context(), store.Batch{Advance: []store.Advance{{Source: g.source.ID, From: g.next, To: to}}, Changes: changes}, time.Now().UnixMilli())
	require.NoError(g.t, err)
	g.next = to
}

// schedule makes a task that is due in an hour.
func (g *fixture) schedule(topic, id string, value []byte) {
	g.t.Helper()
	now := time.Now().UnixMilli()
	g.apply(store.Change{Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: now + 3_600_000, Accepted: now, Version: schemas.NoVersion, Key: []byte("key"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h", Value: nil}}, Settings: schemas.DefaultSettings(),
	}})
}

// kill makes a dead task with a letter.
func (g *fixture) kill(topic, id, reason string, value []byte) {
	g.t.Helper()
	ctx := g.t.Context()
	g.apply(store.Change{Request: &schemas.Request{
		Topic: topic, ID: id, GivenID: true, Due: time.Now().UnixMilli(), Accepted: time.Now().UnixMilli(), Version: schemas.NoVersion, Key: []byte("key"), Value: value,
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h", Value: nil}}, Settings: schemas.DefaultSettings(),
	}})
	task, err := g.Get(ctx, topic, id)
	require.NoError(g.t, err)
	slots, err := g.Slots(ctx)
	require.NoError(g.t, err)
	epoch := slots[0].Epoch + 1
	_, err = g.Acquire(ctx, []int{0}, epoch, "me")
	require.NoError(g.t, err)
	pos, err := g.Next(ctx, []int{0})
	require.NoError(g.t, err)
	require.Len(g.t, pos, 1)
	require.NoError(g.t, g.Claim(ctx, []int{0}, epoch, pos[0].Pos))
	seq := store.Seq(g.source.ID, g.next-1)
	now := time.Now().UnixMilli()
	_, err = g.Settle(ctx, []store.Done{{Slot: 0, Epoch: epoch, From: slots[0].Done, To: pos[0].Pos}}, []store.Exit{{
		Seq: seq, Slot: 0, Epoch: epoch, State: store.StateDead, Attempt: 1,
		Dead: &store.DeadLetter{Seq: seq, Kind: store.KindDead, Topic: topic, TaskID: id, Due: task.Due, Attempt: 1, Reason: reason, DiedAt: now, Body: task.Body},
	}}, nil, now)
	require.NoError(g.t, err)
}

// reject makes a letter of a rejected request.
func (g *fixture) reject(id string) {
	g.t.Helper()
	record := &kgo.Record{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "notyet-topc", Value: []byte("orders")}}}
	g.apply(store.Change{Rejected: &store.DeadLetter{Kind: store.KindRejected, TaskID: id, Reason: "notyet-topc is not a header", Body: schemas.EncodeRejected(record)}})
}

func (g *fixture) local(ix Index) *Local {
	return NewLocal(g.Store, ix, "test", zaptest.NewLogger(g.t))
}

func TestShowGivesEveryByteBack(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a/ü", "no such topic", []byte{0, 0xfe})
	g.reject("r")

	all, err := List(t.Context(), g.Store, store.DeadFilter{}, false)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Nil(t, all[0].Content)

	l, err := Show(t.Context(), g.Store, all[0].ID)
	require.NoError(t, err)
	require.Equal(t, "a/ü", l.TaskID)
	require.Equal(t, "no such topic", l.Reason)
	key, value, headers, err := l.Bytes()
	require.NoError(t, err)
	require.Equal(t, []byte("key"), key)
	require.Equal(t, []byte{0, 0xfe}, value)
	require.Equal(t, []kgo.RecordHeader{{Key: "h", Value: []byte{0xff}}, {Key: "h"}}, headers)
	data, err := json.Marshal(l)
	require.NoError(t, err)
	require.Contains(t, string(data), `"value":null,"value_base64":"AP4="`)

	l, err = Show(t.Context(), g.Store, all[1].ID)
	require.NoError(t, err)
	require.Equal(t, "notyet-topc", l.Headers[0].Key, "a rejected request is shown as it came")

	_, err = Show(t.Context(), g.Store, 999)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestContentNamesTheFieldThatIsWrong(t *testing.T) {
	x := "x"
	for want, c := range map[string]Content{
		"key_base64":              {KeyBase64: "?"},
		"value_base64":            {Value: &x, ValueBase64: "eA=="},
		"headers[0].value_base64": {Headers: []Header{{Key: "a", ValueBase64: "="}}},
	} {
		_, _, _, err := c.Bytes()
		var fe *FieldError
		require.ErrorAs(t, err, &fe)
		require.Equal(t, want, fe.Field)
	}
}

func TestReplayOnceAndOnlyWhatCanBe(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a", "boom", []byte("1"))
	g.kill("orders", "b", "boom", []byte("2"))
	g.reject("r")
	g.schedule("orders", "b", []byte("3")) // a newer one is under way

	want := Result{Progress: Progress{Done: 1, Skipped: 2}, Reasons: map[string]int64{
		"a newer task of this topic and id is under way": 1, "it is a rejected request: correct it and publish it again": 1,
	}}
	dry, err := Replay(t.Context(), g.local(nil), store.DeadFilter{}, Options{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, want, dry)
	v, err := g.Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "dead", v.State, "a dry run changes nothing")

	var told []string
	real, err := Replay(t.Context(), g.local(nil), store.DeadFilter{}, Options{Each: func(r store.Replayed) { told = append(told, r.TaskID+":"+r.Skipped) }})
	require.NoError(t, err)
	require.Equal(t, want, real, "the rehearsal told what then happened")
	require.Len(t, told, 3)
	require.Equal(t, "a:", told[0])
	v, err = g.Get(t.Context(), "orders", "a")
	require.NoError(t, err)
	require.Equal(t, "pending", v.State)
	require.Equal(t, 1, v.Replay)

	again, err := Replay(t.Context(), g.local(nil), store.DeadFilter{Topic: "orders", Replayed: true}, Options{})
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

	_, err = Replay(t.Context(), g.local(ix), store.DeadFilter{}, Options{})
	require.NoError(t, err)
	members, err := ix.Members(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, members, 1)
	next, err := g.Next(t.Context(), []int{0})
	require.NoError(t, err)
	require.Equal(t, next[0].Pos, members[0].Pos)
}

func TestReplayWithoutRedis(t *testing.T) {
	g := newFixture(t)
	g.kill("orders", "a", "boom", nil)
	ix, err := index.New(index.Config{Addrs: []string{"127.0.0.1:1"}, DialTimeout: 50 * time.Millisecond}, zaptest.NewLogger(t))
	require.NoError(t, err)
	t.Cleanup(ix.Close)
	r, err := Replay(t.Context(), g.local(ix), store.DeadFilter{}, Options{})
	require.NoError(t, err)
	require.Equal(t, int64(1), r.Done)
}

// pages returns as many letters as are requested, up to all.
type pages struct {
	all   int64
	sizes []int
	fail  int // at this page; 0: never
}

func (p *pages) ReplayPage(_ context.Context, f store.DeadFilter, upTo int64, _ bool) (Page, error) {
	if want := int64(99); len(p.sizes) > 0 && upTo != want {
		return Page{}, errors.New("the bound of the first page must go to all others")
	}
	p.sizes = append(p.sizes, f.Limit)
	if len(p.sizes) == p.fail {
		return Page{}, errors.New("gone")
	}
	out := Page{UpTo: 99}
	for id := f.After + 1; id <= min(p.all, f.After+int64(f.Limit)); id++ {
		out.Letters = append(out.Letters, store.Replayed{ID: id})
	}
	if len(out.Letters) == f.Limit {
		out.Next = f.After + int64(f.Limit)
	}
	return out, nil
}

func (p *pages) PurgePage(ctx context.Context, f store.DeadFilter, upTo int64) (Purged, error) {
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
		r, err := Replay(t.Context(), p, store.DeadFilter{Limit: c.limit}, Options{Rate: c.rate, Progress: func(p Progress) { last = p }})
		require.NoError(t, err)
		require.Equal(t, c.want, r.Done)
		require.Equal(t, r.Progress, last)
		require.Equal(t, c.sizes, p.sizes)
	}
}

func TestReplayAnswersWhatWasDoneBeforeAFailure(t *testing.T) {
	r, err := Replay(t.Context(), &pages{all: 2000, fail: 3}, store.DeadFilter{}, Options{})
	require.ErrorContains(t, err, "gone")
	require.Equal(t, int64(1000), r.Done)
}

func TestPurge(t *testing.T) {
	g := newFixture(t)
	for i := range 5 {
		g.kill("orders", fmt.Sprint(i), "boom 100%", nil)
	}
	g.kill("bills", "x", "boom 100 times", nil)
	_, err := Replay(t.Context(), g.local(nil), store.DeadFilter{TaskID: "0"}, Options{})
	require.NoError(t, err)

	n, err := g.CountDead(t.Context(), store.DeadFilter{Reason: "0%"})
	require.NoError(t, err)
	require.Equal(t, int64(4), n, "a % in a reason is a %, and what was replayed is left out")

	n, err = Purge(t.Context(), g.local(nil), store.DeadFilter{Topic: "orders", Limit: 2}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	n, err = Purge(t.Context(), g.local(nil), store.DeadFilter{Topic: "orders"}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2), n)

	left, err := List(t.Context(), g.Store, store.DeadFilter{Replayed: true}, false)
	require.NoError(t, err)
	require.Len(t, left, 2, "the replayed one and that of the other topic")
	v, err := g.Get(t.Context(), "orders", "4")
	require.NoError(t, err)
	require.Equal(t, "dead", v.State, "the task is still remembered")

	p := &pages{all: 2500}
	n, err = Purge(t.Context(), p, store.DeadFilter{}, nil)
	require.NoError(t, err)
	require.Equal(t, int64(2500), n)
	require.Equal(t, []int{1000, 1000, 1000}, p.sizes)
}

func TestExport(t *testing.T) {
	g := newFixture(t)
	for i := range 105 {
		g.reject(fmt.Sprint(i))
	}
	for limit, want := range map[int]int{0: 105, 7: 7, 100: 100, 101: 101, 200: 105} {
		var out bytes.Buffer
		n, err := Export(t.Context(), g.local(nil), store.DeadFilter{Limit: limit}, &out)
		require.NoError(t, err)
		require.Equal(t, want, n)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, want)
		var l Letter
		require.NoError(t, json.Unmarshal([]byte(lines[want-1]), &l))
		require.Equal(t, fmt.Sprint(want-1), l.TaskID)
		require.Equal(t, "v", *l.Value)
	}
}

// dyingPager is a Pager whose replayed tasks die again at once.
type dyingPager struct {
	*Local
	g     *fixture
	pages int
}

func (m *dyingPager) ReplayPage(ctx context.Context, f store.DeadFilter, upTo int64, dryRun bool) (Page, error) {
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
	r, err := Replay(t.Context(), m, store.DeadFilter{}, Options{Rate: 2})
	require.NoError(t, err)
	require.Equal(t, int64(5), r.Skipped, "what comes while a run goes on does not belong to it")
	require.Equal(t, 3, m.pages)

	last, err := g.LastDead(t.Context())
	require.NoError(t, err)
	g.reject("unseen")
	purged, err := g.local(nil).PurgePage(t.Context(), store.DeadFilter{}, last)
	require.NoError(t, err)
	require.Equal(t, Purged{Deleted: 10, UpTo: last}, purged)
	left, err := g.CountDead(t.Context(), store.DeadFilter{})
	require.NoError(t, err)
	require.Equal(t, int64(1), left)
}
