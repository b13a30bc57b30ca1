package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
)

// TestOversizedTaskTakesNobodyAlong: one record that its topic refuses becomes a dead letter; tasks
// due with it are delivered.
func TestOversizedTaskTakesNobodyAlong(t *testing.T) {
	onStacks(t, func(t *testing.T, s *stack) {
		target := s.name + ".small"
		s.topics(1, target)
		limit := "2000"
		admin := kadm.NewClient(s.client)
		_, err := admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, target)
		require.NoError(t, err)
		s.scanner()
		s.dispatcher("one")
		at := inMillis(time.Second)
		random := strings.Builder{}
		for random.Len() < 20_000 { // not compressible
			random.WriteString(inMillis(time.Duration(random.Len()) * time.Second * 7919))
		}
		for i := range 10 {
			s.publish(keyed(request(s.intake, target, schemas.HeaderAt, at), "k", strings.Repeat("x", i)))
		}
		s.publish(keyed(request(s.intake, target, schemas.HeaderAt, at, schemas.HeaderID, "large"), "k", random.String()))
		seen := map[int]bool{}
		s.read(s.reader([]string{target}), 2*time.Minute, func(r *kgo.Record) bool {
			seen[len(r.Value)] = true
			return len(seen) == 10
		})
		s.answers(map[string]schemas.State{"large": schemas.StateDead})
		letters := s.lettersOf(letters.Filter{})
		require.Len(t, letters, 1)
		require.Contains(t, letters[0].Reason, "MESSAGE_TOO_LARGE")
		require.Equal(t, schemas.KindUndeliverable, letters[0].Kind)
	})
}
