package browser

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	run "github.com/notyet/notyet/test/program"
)

// tokens of the stack, by role.
var tokens = map[string]string{"read": "token-that-reads", "operate": "token-that-operates", "admin": "token-of-the-admin", "shop": "token-of-the-shop"}

// stack is the built program with everything embedded, and tokens.
type stack struct{ base string }

func startStack(t *testing.T) *stack {
	t.Helper()
	openBrowser(t) // or skip before the build
	dir := t.TempDir()
	run.In(t, dir)
	var entries strings.Builder
	for name, token := range tokens {
		role, topics := name, "*"
		if name == "shop" {
			role, topics = "operate", "shop.*"
		}
		sum := sha256.Sum256([]byte(token))
		fmt.Fprintf(&entries, "- {name: %s, sha256: %s, role: %s, topics: [%q]}\n", name, hex.EncodeToString(sum[:]), role, topics)
	}
	file := filepath.Join(dir, "tokens.yaml")
	require.NoError(t, os.WriteFile(file, []byte(entries.String()), 0o600))
	dev, problem := run.Dev(t, dir, append(run.Environ(), "NOTYET_HTTP_TOKENS="+file), run.OnFreePorts...)
	require.Empty(t, problem)
	return &stack{base: "http://" + dev.HTTP}
}

// call uses the API, as the admin.
func (s *stack) call(t *testing.T, method, path string, body, out any) int {
	t.Helper()
	data, err := json.Marshal(body)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, s.base+"/api/v1"+path, bytes.NewReader(data))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+tokens["admin"])
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	if out != nil {
		require.NoError(t, json.NewDecoder(resp.Body).Decode(out))
	}
	return resp.StatusCode
}

type fields map[string]any

// schedule makes a task, and waits until it is stored.
func (s *stack) schedule(t *testing.T, topic, id string, more fields) {
	t.Helper()
	body := fields{"topic": topic, "id": id, "delay": "1h", "key": "customer-12", "value": `{"order":4711,"total":9.5}`}
	for k, v := range more {
		body[k] = v
	}
	require.Less(t, s.call(t, "POST", "/tasks", body, nil), 300)
	s.stored(t, topic, id)
}

func (s *stack) stored(t *testing.T, topic, id string) {
	t.Helper()
	require.Eventually(t, func() bool { return s.state(t, topic, id) != "" }, bound, 10*time.Millisecond, "%s %s", topic, id)
}

// pause pauses a target, and waits until the dispatcher has heard of it: a probe is held, and cancelled.
func (s *stack) pause(t *testing.T, topic string) {
	t.Helper()
	require.Equal(t, http.StatusOK, s.call(t, "PATCH", "/targets/"+topic, fields{"paused": true}, nil))
	for held := false; !held; {
		s.schedule(t, topic, "probe", fields{"delay": "0s"})
		require.Eventually(t, func() bool {
			var list struct{ Targets []struct{ Held int } }
			require.Equal(t, http.StatusOK, s.call(t, "GET", "/targets?like="+topic, nil, &list))
			held = len(list.Targets) > 0 && list.Targets[0].Held > 0
			return held || s.state(t, topic, "probe") == "delivered"
		}, bound, 10*time.Millisecond)
	}
	require.Equal(t, http.StatusOK, s.call(t, "POST", "/tasks/"+topic+"/probe/cancel?wait=5s", fields{}, nil))
}

// state of a task; "": there is none.
func (s *stack) state(t *testing.T, topic, id string) string {
	t.Helper()
	var task struct {
		State string `json:"state"`
	}
	if s.call(t, "GET", "/tasks/"+url.PathEscape(topic)+"/"+url.PathEscape(id), nil, &task) != http.StatusOK {
		return ""
	}
	return task.State
}

// dead makes so many dead letters: their reports never come.
func (s *stack) dead(t *testing.T, topic string, n int) {
	t.Helper()
	for i := range n {
		require.Less(t, s.call(t, "POST", "/tasks", fields{"topic": topic, "id": fmt.Sprint("dead-", i), "delay": "0s", "value": "v", "ack": "report", "ack_timeout": "100ms", "max_attempts": 1}, nil), 300)
	}
	require.Eventually(t, func() bool { return s.letters(t, topic) == n }, bound, 10*time.Millisecond)
}

// letters is how many dead letters of a topic are kept and not replayed.
func (s *stack) letters(t *testing.T, topic string) int {
	t.Helper()
	var counted struct {
		Count int `json:"count"`
	}
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/deadletters/count?topic="+url.QueryEscape(topic), nil, &counted))
	return counted.Count
}

// due of a task, Unix ms.
func (s *stack) due(t *testing.T, topic, id string) (due int64) {
	t.Helper()
	task := struct{ Due *int64 }{&due}
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/tasks/"+url.PathEscape(topic)+"/"+url.PathEscape(id), nil, &task))
	return due
}

// firstLetter is the id of a dead letter.
func (s *stack) firstLetter(t *testing.T) string {
	t.Helper()
	var page struct {
		Letters []struct{ ID int64 } `json:"deadletters"`
	}
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/deadletters?limit=1", nil, &page))
	require.NotEmpty(t, page.Letters)
	return strconv.FormatInt(page.Letters[0].ID, 10)
}

// audit is who changed what.
func (s *stack) audit(t *testing.T) []any {
	t.Helper()
	var page struct {
		Entries []any `json:"audit"`
	}
	require.Equal(t, http.StatusOK, s.call(t, "GET", "/audit?limit=1000", nil, &page))
	return page.Entries
}
