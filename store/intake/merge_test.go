package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

func TestMergePending(t *testing.T) {
	for _, c := range []struct {
		name   string
		mode   schemas.MergeMode
		values []string
		want   string
	}{
		{"last", schemas.MergeLast, []string{"a", "b", "not json"}, "not json"},
		{"last alone", schemas.MergeLast, []string{"a"}, "a"},
		{"sum", schemas.MergeSum, []string{`{"n":1,"o":{"m":2},"s":"x"}`, `{"n":2,"s":"y"}`, `{"n":0.5,"o":{"m":-2}}`}, `{"n":3.5,"o":{"m":0},"s":"y"}`},
		{"sum alone stays as it is", schemas.MergeSum, []string{`{ "n": 1.0 }`}, `{ "n": 1.0 }`},
		{"append", schemas.MergeAppend, []string{`1`, ` {"a": [2]} `, `null`}, `[1,{"a": [2]},null]`},
		{"append alone", schemas.MergeAppend, []string{`"x"`}, `["x"]`},
		{"append arrays", schemas.MergeAppend, []string{`[1]`, `[2]`}, `[[1],[2]]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				want := schemas.StateScheduled
				for i, v := range c.values {
					s.now += 100
					events := s.do(s.schedule("a", merge(c.mode), value(v)))
					require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: want, Due: s.now + 1000, At: s.now}}, events, "request %d", i)
					want = schemas.StateMerged
				}
				require.Equal(t, c.want, string(s.body("a").Value))
				require.EqualValues(t, s.now+1000, s.row("a").Due, "the due time is refreshed")
				require.Equal(t, 1, s.count("tasks"))
			})
		})
	}
}

// One batch may hold all requests for a task: they merge before anything is stored.
func TestMergeInOneBatch(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", merge(schemas.MergeSum), value(`{"n":1}`)), s.schedule("a", merge(schemas.MergeSum), value(`{"n":2}`)))
		s.do(s.schedule("a", merge(schemas.MergeSum), value(`{"n":4}`)), s.schedule("a", merge(schemas.MergeSum), value(`{"n":8}`)))
		require.Equal(t, `{"n":15}`, string(s.body("a").Value))
	})
}

// Key, headers and settings come from the last request; what is merged is the value, and by the newest request's mode.
func TestMergeTakesTheRestFromTheNewest(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", value(`{"n":1}`), maxAttempts(3)))
		s.do(s.schedule("a", merge(schemas.MergeSum), value(`{"n":1}`), key("other"), maxAttempts(5)))
		require.Equal(t, `{"n":2}`, string(s.body("a").Value), "a plain pending task is merged into, too")
		require.Equal(t, "other", string(s.body("a").Key))
		require.Equal(t, 5, s.body("a").Settings.MaxAttempts)

		s.do(s.schedule("a", merge(schemas.MergeAppend), value(`3`)))
		require.Equal(t, `[{"n":2},3]`, string(s.body("a").Value))
		s.do(s.schedule("a", merge(schemas.MergeLast), value(`[4]`)))
		s.do(s.schedule("a", merge(schemas.MergeAppend), value(`5`)))
		require.Equal(t, `[[4],5]`, string(s.body("a").Value), "an array that a caller sent is one value")
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a", value("plain"))))
		require.Equal(t, "plain", string(s.body("a").Value))
	})
}

func TestMergeMaxWait(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		bounded := func(d time.Duration) *schemas.Request {
			return s.schedule("a", merge(schemas.MergeLast), in(d), maxWait(3*time.Second))
		}
		for i, want := range []int64{t0 + 2000, t0 + 3000, t0 + 3000, t0 + 3000} { // asked for at 0, 1500, 3000 and 4500 ms
			s.now = t0 + int64(i)*1500
			events := s.do(bounded(2 * time.Second))
			require.Equal(t, want, s.row("a").Due, "request %d", i)
			require.Equal(t, want, events[0].Due, "request %d", i)
			require.EqualValues(t, t0, s.row("a").Created)
		}
		s.do(s.schedule("a", merge(schemas.MergeLast), in(time.Hour)))
		require.Equal(t, s.now+3_600_000, s.row("a").Due, "the newest request sets no bound")

		s.deliver(s.row("a").Due)
		s.now += 4_000_000
		s.do(bounded(2 * time.Second))
		require.Equal(t, s.now+2000, s.row("a").Due, "a new task is a new first schedule")
		s.deliver(s.row("a").Due)
		s.do(bounded(time.Minute))
		require.Equal(t, s.now+3000, s.row("a").Due, "the first schedule's own due time is bounded as well")
	})
}

// What cannot be merged is rejected and changes nothing.
func TestMergeRejects(t *testing.T) {
	for _, c := range []struct {
		name, pending string
		mode          schemas.MergeMode
		value, reason string
	}{
		{"sum of no JSON", `{"n":1}`, schemas.MergeSum, "no", "is not a JSON object, which notyet-merge sum needs"},
		{"sum of an array", `{"n":1}`, schemas.MergeSum, "[1]", "is not a JSON object"},
		{"sum of two values", `{"n":1}`, schemas.MergeSum, `{"n":1} {}`, "is not a JSON object"},
		{"sum with a pending text", "plain", schemas.MergeSum, `{"n":1}`, "the pending task's value is not a JSON object"},
		{"sum of huge numbers", `{"n":1}`, schemas.MergeSum, `{"n":1e999999999}`, `a number is too large`},
		{"append of no JSON", `[1]`, schemas.MergeAppend, "{", "is not JSON, which notyet-merge append needs"},
		{"append to a pending text", "plain", schemas.MergeAppend, `1`, "the pending task's value is not JSON"},
		{"first sum of no JSON", "", schemas.MergeSum, "no", "is not a JSON object"},
		{"first append of nothing", "", schemas.MergeAppend, "", "is not JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				if c.pending != "" {
					s.do(s.schedule("a", value(c.pending)))
				}
				before := s.rows("a")
				events := s.do(s.schedule("a", merge(c.mode), value(c.value), version(7), tell(schemas.EventsNone)))
				require.Len(t, events, 1, "a rejection is always told")
				require.Equal(t, schemas.StateRejected, events[0].State)
				require.Contains(t, events[0].Reason, c.reason)
				require.Equal(t, before, s.rows("a"))

				letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
				require.NoError(t, err)
				require.Len(t, letters, 1)
				require.Equal(t, schemas.KindRejected, letters[0].Kind)
				require.Equal(t, events[0].Reason, letters[0].Reason)
				body, err := schemas.DecodeBody(letters[0].Body)
				require.NoError(t, err)
				require.Equal(t, c.value, string(body.Value), "the letter keeps what was sent")
			})
		})
	}
}

// What merging makes stays within the limit of the intake that took the request. Beyond it the request is rejected, and the pending
// task stays as it is.
func TestMergedValuesAreBounded(t *testing.T) {
	value := value(`"` + strings.Repeat("x", 700_000) + `"`)
	for limit, want := range map[int][]schemas.State{
		0:                     {schemas.StateScheduled, schemas.StateRejected, schemas.StateRejected}, // the default
		2 << 20:               {schemas.StateScheduled, schemas.StateMerged, schemas.StateRejected},
		schemas.MaxValueBytes: {schemas.StateScheduled, schemas.StateMerged, schemas.StateMerged},
	} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				var before task.Task
				for _, state := range want {
					r := s.schedule("a", merge(schemas.MergeAppend), value)
					r.MaxValue = limit
					require.Equal(t, state, s.answer(r))
					if state == schemas.StateRejected {
						require.Equal(t, before, s.row("a"), "the pending task stays")
						letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
						require.NoError(t, err)
						require.Contains(t, letters[0].Reason, fmt.Sprintf("and %d are allowed", max(limit, schemas.DefaultMaxValueBytes)))
					}
					before = s.row("a")
				}
			})
		})
	}
}
