package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// Each record is judged by the limits that are in force then. An intake that they do not name has the usual ones.
func TestLimitsChangeWhileAScannerRuns(t *testing.T) {
	s := &Scanner{worker: &worker{decoder: newDecoder(Config{}.withDefaults(), nil, nil)}}
	for _, c := range []struct {
		limits map[string]schemas.Limits
		taken  bool
	}{
		{nil, true},
		{map[string]schemas.Limits{schemas.TopicIntake: {AllowedTargets: []string{"bills"}}}, false},
		{map[string]schemas.Limits{schemas.TopicIntake: {AllowedTargets: []string{"bills", "orders"}}}, true},
		{map[string]schemas.Limits{"another": {AllowedTargets: []string{"bills"}}}, true},
	} {
		s.SetLimits(c.limits)
		r := ask("a", 1)
		r.Timestamp = time.Now()
		change, ok := s.worker.decoder.decode(3, r)
		require.True(t, ok)
		require.Equal(t, c.taken, change.Rejected == nil, "%v", c.limits)
	}
}

// A record that is too large becomes a small dead letter, whose reason says where the rest is.
func TestDecodeKeepsAPartOfALargeRecord(t *testing.T) {
	d := newDecoder(Config{}.withDefaults(), nil, nil)
	r := ask("a", 1)
	r.Offset, r.Headers = 7, append(r.Headers, kgo.RecordHeader{Key: "zeros", Value: make([]byte, 20<<20)})
	c, ok := d.decode(3, r)
	require.True(t, ok)
	require.NotNil(t, c.Rejected)
	require.Equal(t, "a", c.Rejected.TaskID)
	require.Regexp(t, `^record headers have \d+ bytes: send at most 65536, .* \(\d+ of its \d+ bytes are kept, the rest is in the intake: notyet\.intake/1/7\)$`, c.Rejected.Reason)
	require.LessOrEqual(t, len(c.Rejected.Body), schemas.MaxRejectedBytes)

	r = ask("a", 1, "notyet-x", "1")
	c, _ = d.decode(3, r)
	require.NotContains(t, c.Rejected.Reason, "kept")
}

func TestADeadLetterKeepsSixtyFourKiBOfARecord(t *testing.T) {
	big := make([]byte, 20<<20)
	header := func(n int) kgo.RecordHeader { return kgo.RecordHeader{Key: "h", Value: big[:n]} }
	for name, r := range map[string]*kgo.Record{
		"key":          {Key: big},
		"value":        {Key: []byte("k"), Value: big},
		"header":       {Headers: []kgo.RecordHeader{header(20 << 20)}},
		"header's key": {Headers: []kgo.RecordHeader{{Key: string(big)}}},
		"many headers": {Headers: slices.Repeat([]kgo.RecordHeader{header(0)}, 500_000)},
		"all of them":  {Key: big[:1<<20], Value: big, Headers: slices.Repeat([]kgo.RecordHeader{header(1000)}, 5000)},
	} {
		d := rejectedRecord(1, r, string(big[:1000]), string(big[:1000]), errors.New(string(big)))
		require.LessOrEqual(t, len(d.Body), schemas.MaxRejectedBytes, name)
		require.LessOrEqual(t, len(d.Reason), maxReason, name)
		require.LessOrEqual(t, len(d.Topic), schemas.MaxTopicLen, name)
		require.LessOrEqual(t, len(d.TaskID), schemas.MaxIDLen, name)
		_, err := schemas.DecodeRejected(d.Body)
		require.NoError(t, err, name)
	}
	small := record("in", 0, "a", "b")
	body, err := schemas.DecodeRejected(schemas.EncodeRejected(small))
	require.NoError(t, err)
	require.Equal(t, small.Headers, body.Headers)
}

// flood has so many records of a partition come each second, for some seconds. It returns how many passed, how
// many were rejected, and how many of these have a dead letter.
func (p *pacer) flood(t *testing.T, perSecond, seconds int64, make func(offset int64) *kgo.Record) (passed, rejected, letters int) {
	t.Helper()
	key := partitionKey{noisy, 0}
	at, began := int64(0), time.Now()
	for time.Since(began) < time.Duration(seconds)*time.Second {
		p.divide()
		var records []*kgo.Record
		for came := perSecond * time.Since(began).Milliseconds() / 1000; at+int64(len(records)) < came && !p.paused()[key]; {
			r := make(at + int64(len(records)))
			r.Topic, r.Offset, r.Timestamp = noisy, at+int64(len(records)), time.Now()
			records = append(records, r)
		}
		p.expect()
		n := p.fit(key, records)
		out := []stretch{}
		if n > 0 {
			s, ok := p.parts.received(records[:n])
			require.True(t, ok)
			out = p.admit(s)
		}
		at += int64(n)
		for _, s := range append(out, p.release()...) {
			if s.beyond == "" {
				passed += len(s.records)
				continue
			}
			rejected += len(s.records)
			letters += s.letters
		}
		time.Sleep(25 * time.Millisecond)
	}
	return passed, rejected, letters
}

// A tenant sends 6,000 requests a second for 25 s, at a quota of 10. The database stores 10 tasks or remembered
// cancels a second, and 10 dead letters. Cancels wait. What can be rejected is rejected at once, behind a cancel
// too.
func TestWhatAFloodLeavesInTheDatabase(t *testing.T) {
	cancel := func(offset int64) *kgo.Record {
		return record(noisy, 0, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprint(offset), schemas.HeaderVersion, "1")
	}
	malformed := func(int64) *kgo.Record { return record(noisy, 0, schemas.HeaderOp, "no-such") }
	task := func(int64) *kgo.Record {
		return record(noisy, 0, schemas.HeaderTopic, "orders", schemas.HeaderDelay, "1h")
	}
	const seconds, rate, all = 25, 10, 25 * 6000
	for name, c := range map[string]struct {
		make     func(int64) *kgo.Record
		quota    Quota
		rejected bool
	}{
		"cancels":           {cancel, Quota{RequestsPerSecond: 2 * rate}, false},
		"malformed":         {malformed, Quota{RequestsPerSecond: 2 * rate}, true},
		"tasks":             {task, Quota{RequestsPerSecond: 2 * rate}, true},
		"a few cancels":     {func(n int64) *kgo.Record { return []func(int64) *kgo.Record{task, cancel}[(n+1)%1000/999](n) }, Quota{RequestsPerSecond: 2 * rate}, true},
		"at pending tasks":  {task, Quota{RequestsPerSecond: 2 * rate, PendingTasks: 20}, true},
		"no quota of those": {task, Quota{PendingTasks: 20}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.quota.Reject = true
				p := pacingAt(c.quota, &database{pending: [5]intake.Size{tasks(10)}})
				p.count(t)
				go loop.Every(t.Context(), pendingLook, func(ctx context.Context) {
					for _, c := range p.countings {
						p.countPending(ctx, c)
					}
				})
				passed, rejected, letters := p.flood(t, all/seconds, seconds, c.make)
				bound := rate * (seconds + 1)
				if c.quota.RequestsPerSecond == 0 {
					bound = lettersPerSecond / 2 * (seconds + 1)
				}
				require.LessOrEqual(t, passed, bound)
				require.LessOrEqual(t, letters, bound)
				require.EqualValues(t, rejected-letters, p.intakes[noisy].unkept.Load())
				if !c.rejected {
					require.Zero(t, rejected)
					require.GreaterOrEqual(t, passed, bound-rate, "they go on at the quota's rate")
					return
				}
				require.Greater(t, passed+rejected, all*8/10, "nearly all have their answer")
				require.GreaterOrEqual(t, letters, bound-2*rate-lettersPerSecond, "as many as the rate allows have a letter")
			})
		})
	}
}

// Rejections beyond their rate have no dead letter, wherever they are decided.
func TestRejectionsBeyondTheirRateHaveNoLetter(t *testing.T) {
	dec := newDecoder(Config{}.withDefaults(), nil, nil)
	var records []*kgo.Record
	for offset := range int64(4) {
		r := record(noisy, 0, schemas.HeaderTopic, "orders", schemas.HeaderDelay, "1h")
		if r.Offset, r.Timestamp = offset, time.Now(); offset%2 > 0 {
			r.Headers = nil
		}
		records = append(records, r)
	}
	for _, beyond := range []string{"", quotaRequests, quotaTasks} {
		head, tail := stretch{records: records, beyond: beyond, letters: 2}.split(1)
		var got []bool
		for _, s := range []stretch{head, tail} {
			decode := refusedRecords{}.decode(dec, s)
			for _, r := range s.records {
				c, ok := decode(3, r)
				require.True(t, ok)
				require.Equal(t, beyond == quotaRequests || r.Offset%2 > 0, c.Rejected != nil)
				got = append(got, c.NoLetter)
			}
		}
		require.Equal(t, []bool{false, false, beyond != "", beyond != ""}, got, beyond)
	}
}
