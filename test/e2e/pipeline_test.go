package e2e

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

func request(intake, topic string, headers ...string) *kgo.Record {
	return &kgo.Record{Topic: intake, Headers: recordtest.Headers(append([]string{schemas.HeaderTopic, topic}, headers...)...)}
}

// TestDeliversEachOnceAndNotEarly tests the main job: many tasks due over a few seconds, each
// delivered once, complete and in time.
func TestDeliversEachOnceAndNotEarly(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		s.scanner()
		s.dispatcher("one")
		s.deliversEachOnce(t, func() {})
	})
}

// deliversEachOnce sends many tasks and watches them arrive; meanwhile runs once they are stored or on their way.
func (s *stack) deliversEachOnce(t *testing.T, meanwhile func()) {
	const n = 2000
	target := s.name + ".orders"
	s.judging(4, target)
	type want struct {
		due   int64
		value string
	}
	wants := map[string]want{}
	begin := time.Now()
	for i := range n {
		due := begin.Add(time.Duration(rand.IntN(3000)) * time.Millisecond).UnixMilli()
		key := fmt.Sprintf("key-%d", i)
		r := request(s.intake, target, schemas.HeaderAt, strconv.FormatInt(due, 10), "trace", key, "trace", "again")
		r.Key, r.Value = []byte(key), []byte(fmt.Sprintf("body %d", i))
		wants[key] = want{due, string(r.Value)}
		s.client.Produce(t.Context(), r, func(_ *kgo.Record, err error) { require.NoError(t, err) })
	}
	require.NoError(t, s.client.Flush(t.Context()))
	meanwhile()
	got := map[string]int{}
	s.read(s.reader([]string{target}), 2*time.Minute, func(r *kgo.Record) bool {
		w := wants[string(r.Key)]
		require.GreaterOrEqual(t, r.Timestamp.UnixMilli(), w.due, "early")
		require.Equal(t, w.value, string(r.Value))
		require.Equal(t, "trace", r.Headers[0].Key)
		require.Equal(t, "again", string(r.Headers[1].Value))
		require.Equal(t, strconv.FormatInt(w.due, 10), recordtest.Header(r, schemas.HeaderDue))
		require.Equal(t, "1", recordtest.Header(r, schemas.HeaderAttempt))
		got[string(r.Key)]++
		return len(got) == n
	})
	for key, copies := range got {
		require.Equal(t, 1, copies, key)
	}
}
