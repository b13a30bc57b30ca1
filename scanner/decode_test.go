package scanner

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
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
