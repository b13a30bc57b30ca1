package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/program"
)

// callee is a receiver of callbacks that answers by the path, and remembers what came.
type callee struct {
	*httptest.Server
	key []byte

	mu    sync.Mutex
	calls map[string][]calledBack // by id
	wrong []string                // what no callback may be
}

type calledBack struct {
	attempt, key string
	at           time.Time
	body         string
}

func newCallee(t *testing.T) *callee {
	c := &callee{key: []byte("a secret of " + t.Name()), calls: map[string][]calledBack{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	t.Cleanup(c.CloseClientConnections)
	return c
}

func (c *callee) serve(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	body, _ := io.ReadAll(r.Body)
	h := r.Header
	mac := hmac.New(sha256.New, c.key)
	mac.Write([]byte(h.Get("Webhook-Id") + "." + h.Get("Webhook-Timestamp") + "." + string(body)))
	due, _ := strconv.ParseInt(h.Get("Notyet-Due"), 10, 64)
	c.mu.Lock()
	switch id := h.Get("Notyet-Id"); {
	case h.Get("Webhook-Signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)):
		c.wrong = append(c.wrong, id+": its signature does not verify")
	case h.Get("Webhook-Id") != h.Get("Idempotency-Key"), now.UnixMilli() < due:
		c.wrong = append(c.wrong, id+": it is early, or its ids differ")
	default:
		c.calls[id] = append(c.calls[id], calledBack{h.Get("Notyet-Attempt"), h.Get("Idempotency-Key"), now, string(body)})
	}
	first := h.Get("Notyet-Attempt") == "1"
	c.mu.Unlock()
	switch r.URL.Path {
	case "/500-then-200":
		if first {
			w.WriteHeader(http.StatusInternalServerError)
		}
	case "/429":
		if first {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	case "/302":
		http.Redirect(w, r, "/", http.StatusFound)
	case "/hang":
		<-r.Context().Done()
	}
}

func (c *callee) of(id string) []calledBack {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]calledBack(nil), c.calls[id]...)
}

func (c *callee) missing(ids []string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if len(c.calls[id]) == 0 {
			n++
		}
	}
	return n
}

// callBack makes a request for a callback.
func (c *cluster) callBack(url, id, value string, headers ...string) *kgo.Record {
	r := keyed(request(c.intake, "", append(headers, schemas.HeaderID, id)...), id, value)
	r.Headers[0] = kgo.RecordHeader{Key: schemas.HeaderURL, Value: []byte(url)}
	return r
}

// makesCallbacks lets the cluster's processes call receivers on this machine, and signs for them.
func (c *cluster) makesCallbacks(to ...*callee) {
	var secrets strings.Builder
	for _, r := range to {
		fmt.Fprintf(&secrets, "- origin: %s\n  secrets: [whsec_%s]\n", r.URL, base64.StdEncoding.EncodeToString(r.key))
	}
	file := filepath.Join(c.t.TempDir(), "secrets.yaml")
	require.NoError(c.t, os.WriteFile(file, []byte(secrets.String()), 0o600))
	c.env = append(c.env, "NOTYET_CALLBACK_ENABLED=true", "NOTYET_CALLBACK_ALLOW_HTTP=true", "NOTYET_CALLBACK_ALLOWED_NETWORKS=127.0.0.0/8", "NOTYET_CALLBACK_SECRETS="+file)
}

// TestCallbacks: signed, byte for byte, never early, tried again as the answers say, while another origin answers nothing, and while a
// dispatcher is killed.
func TestCallbacks(t *testing.T) {
	c := newCluster(t)
	good, bad := newCallee(t), newCallee(t)
	c.makesCallbacks(good, bad)
	c.spawn("scanner", "scanner")
	first := c.spawn("dispatcher1", "dispatcher")
	c.spawn("dispatcher2", "dispatcher")
	c.warm()

	const n, span = 1000, 10 * time.Second
	value := func(id string) string { return id + "\x00\xff" + strings.Repeat(id, 20) }
	at := func(d time.Duration) []string { return []string{schemas.HeaderAt, inMillis(d)} }
	var records []*kgo.Record
	var ids []string
	due := map[string]int64{}
	for i := range n {
		id := fmt.Sprint("good", i)
		ids = append(ids, id)
		head := 2*time.Second + span*time.Duration(i)/n
		due[id] = time.Now().Add(head).UnixMilli()
		records = append(records, c.callBack(good.URL+"/", id, value(id), at(head)...))
	}
	for i := range 200 {
		records = append(records, c.callBack(bad.URL+"/hang", fmt.Sprint("bad", i), "v", at(2*time.Second)...))
	}
	for _, special := range []string{"500-then-200", "429", "302"} {
		ids = append(ids, special)
		records = append(records, c.callBack(good.URL+"/"+special, special, value(special), append(at(2*time.Second), schemas.HeaderBackoff, "fixed:50ms")...))
	}
	c.publish(records...)
	require.Eventually(t, func() bool { return good.missing(ids) < 2*n/3 }, 2*time.Minute, 20*time.Millisecond, "a third is called before the kill")
	killed := time.Now().UnixMilli()
	first.kill()

	require.Eventually(t, func() bool { return good.missing(ids) == 0 }, 2*time.Minute, 20*time.Millisecond, "all are called, though an origin hangs and a dispatcher is gone")
	require.Eventually(t, func() bool { return len(good.of("500-then-200")) >= 2 && len(good.of("429")) >= 2 }, time.Minute, 20*time.Millisecond)
	require.Empty(t, good.wrong)
	for _, id := range ids {
		calls := good.of(id)
		for _, call := range calls {
			require.Equal(t, value(id), call.body)
		}
		keys := map[string]string{}
		for _, call := range calls {
			if key, again := keys[call.attempt]; again {
				require.Equal(t, key, call.key, "copies of one attempt carry one key: %s", id)
				near := due[id] == 0 || due[id] > killed-4000 && // what hangs holds up its line for a second or two
					due[id] < killed+1000
				require.True(t, near, "%s came twice, and was due %d ms from the kill", id, due[id]-killed)
			}
			keys[call.attempt] = call.key
		}
	}
	limited := good.of("429")
	require.GreaterOrEqual(t, limited[len(limited)-1].at.Sub(limited[0].at), 3*time.Second, "Retry-After is honoured")

	require.Eventually(t, func() bool {
		dead := c.lettersOf(letters.Filter{Topic: good.URL})
		return len(dead) == 1 && dead[0].TaskID == "302" && dead[0].Kind == schemas.KindCallback && strings.Contains(dead[0].Reason, "answered 302")
	}, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		return c.state(good.URL, "good0") == "delivered" && c.state(good.URL, "429") == "delivered"
	}, time.Minute, 20*time.Millisecond)
	require.NotContains(t, []string{"delivered", "dead", "cancelled"}, c.state(bad.URL, "bad0"))
}

// TestCallbackExample runs the commands of examples/callback/README.md, on ports that are free.
func TestCallbackExample(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "examples", "callback", "README.md"))
	require.NoError(t, err)
	_, port, _ := strings.Cut(program.FreeAddr(t), ":")
	var blocks []string
	for _, part := range strings.Split(string(page), "```sh\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, strings.ReplaceAll(block, "8090", port))
	}
	require.Len(t, blocks, 5, "secret, make run, receiver, the one in Python, schedule")
	d := dev{dir: t.TempDir(), env: program.Environ()}
	program.In(t, d.dir)
	built, err := exec.Command("go", "build", "-o", filepath.Join(d.dir, "bin", "receiver"), "github.com/notyet/notyet/examples/callback").CombinedOutput()
	require.NoError(t, err, string(built))
	out, err := d.shell(t, blocks[0]+`echo "$CALLBACK_SECRET"`)
	require.NoError(t, err, out)
	secret := strings.TrimSpace(out)
	require.Contains(t, blocks[1], "NOTYET_CALLBACK_SECRETS=bin/callback-secrets.yaml make run")
	d.env = append(d.env, "CALLBACK_SECRET="+secret, "CALLBACK_ADDR=127.0.0.1:"+port, "NOTYET_CALLBACK_SECRETS=bin/callback-secrets.yaml")
	running, problem := program.Dev(t, d.dir, d.env, program.OnFreePorts...)
	require.Contains(t, running.Greeting, "notyet dev is ready", problem)
	d.env = append(d.env, running.Env()...)
	require.Contains(t, blocks[2], "go run ./examples/callback")

	receiver := exec.Command(filepath.Join(d.dir, "bin", "receiver"))
	receiver.Dir, receiver.Env = d.dir, d.env
	said, err := os.Create(filepath.Join(d.dir, "receiver.log"))
	require.NoError(t, err)
	receiver.Stdout, receiver.Stderr = said, said
	require.NoError(t, receiver.Start())
	t.Cleanup(func() { _ = receiver.Process.Signal(syscall.SIGINT); _ = receiver.Wait() })
	out, err = d.shell(t, blocks[4])
	require.NoError(t, err, out)
	require.Contains(t, out, "succeeded")
	text, err := os.ReadFile(said.Name())
	require.NoError(t, err)
	require.Contains(t, string(text), "reminder-1 is due since ")
	require.Contains(t, string(text), ", attempt 1: call home")
}

// shell runs commands in the folder.
func (d dev) shell(t *testing.T, commands string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-o", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = d.dir, d.env, &out, &out
	err := cmd.Run()
	return out.String(), err
}
