package flight

import (
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/sendlog"
)

func TestProofIsOfOneTaskAndAttempt(t *testing.T) {
	of := func(id, body string, attempt int) *Task {
		return &Task{seq: 7, content: &content{topic: "orders", id: id, body: []byte(body), attempt: attempt - 1}}
	}
	for name, c := range map[string]struct {
		task *Task
		want int64
	}{
		"it":              {of("a", "body", 2), 20},
		"another attempt": {of("a", "body", 3), 0},
		"another id":      {of("b", "body", 2), 0},
		"another content": {of("a", "other", 2), 0},
	} {
		proven := func(attempt int32) sendlog.Proof {
			return sendlog.Proof{Subject: sendlog.SubjectOf(7, "orders", "a", xxhash.Sum64String("body")), Attempt: attempt}
		}
		p := Proofs{7: {proven(1): 10, proven(2): 20}, 8: {}}
		at, ok := p.take(c.task)
		require.Equal(t, c.want, at, name)
		require.Equal(t, c.want != 0, ok, name)
		require.Len(t, p, 1, "used")
	}
}
