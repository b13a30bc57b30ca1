package watching

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/program"
)

// server is a Prometheus that scrapes one pipeline and evaluates our rules.
type server struct {
	addr  string
	ended chan struct{}
	log   bytes.Buffer // to be read when it has ended
}

const scrapeEvery = 500 * time.Millisecond

// startServer tries another port when somebody else has taken the one that was free a moment ago.
func startServer(t *testing.T, scraped string) *server {
	t.Helper()
	dir := t.TempDir()
	rulesPath, err := filepath.Abs(rulesFile)
	require.NoError(t, err)
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `
global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: 1s}
rule_files: [%[2]q]
scrape_configs:
  - job_name: notyet
    static_configs: [{targets: [%[3]q]}]
`, scrapeEvery, rulesPath, scraped), 0o600))
	for range 5 {
		s := &server{addr: program.FreeAddr(t), ended: make(chan struct{})}
		cmd := exec.Command(prometheus(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), //nolint:noctx // ended by a signal
			"--web.listen-address="+s.addr, "--log.level=warn")
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &s.log, &s.log
		require.NoError(t, cmd.Start())
		go func() { _ = cmd.Wait(); close(s.ended) }()
		t.Cleanup(func() { s.stop(t, cmd) })
		if s.ready(t) {
			return s
		}
		t.Logf("prometheus on %s ended: %s", s.addr, &s.log)
	}
	require.Fail(t, "prometheus does not start")
	return nil
}

func (s *server) stop(t *testing.T, cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-s.ended
		t.Errorf("prometheus did not stop within 30 s")
	}
}

// ready waits until it answers. False: it has ended.
func (s *server) ready(t *testing.T) bool {
	t.Helper()
	ended := false
	require.Eventually(t, func() bool {
		select {
		case <-s.ended:
			ended = true
			return true
		default:
		}
		resp, err := http.Get("http://" + s.addr + "/-/ready") //nolint:noctx // a test's
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	return !ended
}

// sample is one series of an answer, at one instant.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (v sample) number() float64 {
	text, _ := v.Value[1].(string)
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// query asks for an expression now. An error is what Prometheus says is wrong with it.
func (s *server) query(ctx context.Context, expr string) ([]sample, error) {
	var out struct {
		Result []sample `json:"result"`
	}
	return out.Result, s.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr), &out)
}

// ruleHealth is what became of a rule's latest evaluation, by alert.
func (s *server) ruleHealth(ctx context.Context) (map[string]string, error) {
	var out struct {
		Groups []struct {
			Rules []struct {
				Name      string `json:"name"`
				Health    string `json:"health"`
				LastError string `json:"lastError"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := s.get(ctx, "/api/v1/rules", &out); err != nil {
		return nil, err
	}
	health := map[string]string{}
	for _, g := range out.Groups {
		for _, r := range g.Rules {
			health[r.Name] = r.Health + r.LastError
		}
	}
	return health, nil
}

func (s *server) get(ctx context.Context, path string, data any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer := struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   any    `json:"data"`
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}
