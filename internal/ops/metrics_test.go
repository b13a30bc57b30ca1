package ops

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/notyet/notyet/internal/access"
)

// Whoever asks, in whatever form, metrics are gathered, encoded and compressed once a second.
func TestMetricsAreMadeOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gathered, name, value := 0, "a_metric", 0.0
		e := &exposition{answers: map[string]*answer{}, from: promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			gathered++
			value++
			return []*dto.MetricFamily{{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}}}}, nil
		}), promhttp.HandlerOpts{})}
		ask := func(accept, encoding string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
			r.Header.Set("Accept", accept)
			r.Header.Set("Accept-Encoding", encoding)
			w := httptest.NewRecorder()
			e.ServeHTTP(w, r)
			return w
		}
		for i := range 100 {
			w := ask(fmt.Sprint("application/openmetrics-text;version=1.", i), fmt.Sprintf("gzip, x%d", i))
			require.Equal(t, "gzip", w.Header().Get("Content-Encoding"))
			unzipped, err := gzip.NewReader(w.Body)
			require.NoError(t, err)
			text, err := io.ReadAll(unzipped)
			require.NoError(t, err)
			require.Contains(t, string(text), "a_metric 1")
			w = ask("", fmt.Sprint("x", i))
			require.Contains(t, w.Body.String(), "a_metric 2")
			require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
		}
		require.Equal(t, 2, gathered)
		time.Sleep(exposeEvery)
		require.Contains(t, ask("", "").Body.String(), "a_metric 3")
	})
}

// With tokens metrics may be for callers alone; health is not.
func TestMetricsThatNeedAToken(t *testing.T) {
	guard, tokens := guardOf(t, access.Read)
	for needed, want := range map[bool]int{false: 200, true: 401} {
		url := serve(t, Config{Guard: guard, GuardMetrics: needed}, nil)
		code, _ := get(t, url+"/metrics")
		require.Equal(t, want, code)
		code, _ = get(t, url+"/healthz")
		require.Equal(t, 200, code)
		require.Equal(t, 200, getAs(t, url+"/metrics", tokens["read of some"]), "any role, any topics")
	}
	var server *Server
	serve(t, Config{Guard: guard, GuardMetrics: true, OpsAddr: "127.0.0.1:0"}, func(s *Server) { server = s })
	code, _ := get(t, "http://"+server.OpsAddr()+"/metrics")
	require.Equal(t, 200, code, "an address of their own has no tokens")
}

func TestProfilesAreForAdministratorsOfAll(t *testing.T) {
	guard, tokens := guardOf(t, access.Operate, access.Admin)
	var server *Server
	url := serve(t, Config{Pprof: true, Guard: guard}, func(s *Server) { server = s })
	for token, want := range map[string]int{"": 401, "operate of all": 403, "admin of some": 403, "admin of all": 200} {
		for _, profile := range []string{"heap", "goroutine", "cmdline"} {
			require.Equal(t, want, getAs(t, url+"/debug/pprof/"+profile, tokens[token]), "%s of %s", profile, token)
		}
	}
	for _, long := range []string{"profile?seconds=61", "trace?seconds=600", "heap?seconds=1e9"} {
		require.Equal(t, 422, getAs(t, url+"/debug/pprof/"+long, tokens["admin of all"]), long)
	}
	require.NoError(t, server.profiling.Acquire(t.Context(), 1))
	require.Equal(t, 503, getAs(t, url+"/debug/pprof/heap", tokens["admin of all"]), "one at a time")
	server.profiling.Release(1)
}

// guardOf makes tokens of roles, for all topics and for some.
func guardOf(t *testing.T, roles ...access.Role) (*access.Guard, map[string]string) {
	t.Helper()
	tokens, list := map[string]string{}, ""
	for _, role := range roles {
		for of, topics := range map[string]string{"all": "*", "some": "shop.*"} {
			name := role.String() + " of " + of
			token, entry := access.NewToken("x", role, nil)
			tokens[name] = token
			list += fmt.Sprintf("- {topics: ['%s'], name: %s-%s, sha256: %s, role: %s}\n", topics, role, of, entry.SHA256, role)
		}
	}
	guard, err := access.New(access.Config{Tokens: fileWith(t, list)}, zaptest.NewLogger(t))
	require.NoError(t, err)
	return guard, tokens
}

func getAs(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil) //nolint:noctx // a test's
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, resp.Body) // to the end of the handler: one profile at a time
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}
