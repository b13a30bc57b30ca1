package intake

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/test/lettertest"
)

// Topics and ids are compared byte by byte, on every database: a collation that takes two of these for one would replace, cancel or
// deliver the wrong task.
func TestIdentitiesAreBytes(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		ids := []string{"a", "A", "a ", " a", "a\x00", "a\n", "\u00e9", "e\u0301", "e", "\u00df", "ss", "\u0131", "i", "%", "_", `\`, "'", "\U0001F600"}
		for _, id := range ids {
			require.Equal(t, schemas.StateScheduled, s.answer(s.schedule(id, value(id))), "%q", id)
		}
		require.Equal(t, len(ids), s.count("tasks"))
		upper := s.schedule("a")
		upper.Topic = "Orders"
		require.Equal(t, schemas.StateScheduled, s.answer(upper))
		require.Equal(t, schemas.StateCancelled, s.answer(s.cancel("A")))
		for _, id := range ids {
			want := "pending"
			if id == "A" {
				want = "cancelled"
			} else {
				require.Equal(t, id, string(s.body(id).Value), "%q", id)
			}
			require.Equal(t, want, s.state(id), "%q", id)
		}
		page, err := look.New(s.Store).List(s.ctx, look.ListFilter{Topic: target, IDPrefix: "a"})
		require.NoError(t, err)
		listed := map[string]bool{}
		for _, v := range page.Tasks {
			listed[v.ID] = true
		}
		require.Equal(t, map[string]bool{"a": true, "a ": true, "a\x00": true, "a\n": true}, listed)
	})
}

// A reason is a consumer's text: whatever it is, it is stored once in a dead letter and once in an event, and both can be read.
func TestAReasonMayBeAnything(t *testing.T) {
	for _, fill := range []string{`"`, `\`, "'", "\x00", "<", "\u00e9", "\U0001F600"} {
		each(t, func(t *testing.T, s *fixture) {
			text := ""
			for len(text)+len(fill) <= schemas.MaxReportError {
				text += fill
			}
			awaiting(s)
			rep := says("a", 1, schemas.StatusFail)
			rep.Error = text
			events := s.do(rep)
			require.Len(t, events, 1)
			require.Contains(t, events[0].Reason, text)
			decoded, err := schemas.DecodeEvent(schemas.EncodeEvent("results", events[0]))
			require.NoError(t, err)
			require.Equal(t, events[0], decoded)
			letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
			require.NoError(t, err)
			require.LessOrEqual(t, len(letters[0].Reason), handle.MaxReason)
			require.Contains(t, events[0].Reason, letters[0].Reason, "cut between characters")
		})
	}
}
