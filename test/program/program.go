// Package program builds the program and runs it as its users do, in a process of its own, for tests.
package program

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// OnFreePorts are arguments of notyet dev.
var OnFreePorts = []string{"--kafka-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"}

// Environ is this process's environment without the settings of real servers, and of Go's collector of garbage.
func Environ() []string {
	var out []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "NOTYET_") && !strings.HasPrefix(kv, "GOGC=") {
			out = append(out, kv)
		}
	}
	return out
}

// Running is a notyet dev at work, until its test ends.
type Running struct {
	Greeting    string // what it printed until it was ready
	Kafka, HTTP string // host:port
}

// Env makes commands find it.
func (r Running) Env() []string {
	return []string{"NOTYET_KAFKA_BROKERS=" + r.Kafka, "NOTYET_HTTP_ADDR=" + r.HTTP}
}

// Dev starts `notyet dev` in the folder that has bin/notyet, and waits until it is ready. A problem is what it printed when it ended
// before that.
func Dev(t testing.TB, dir string, env []string, args ...string) (r Running, problem string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "bin", "notyet"), append([]string{"dev"}, args...)...) //nolint:noctx // ended by a signal
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines, read := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(read)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			lines <- in.Text()
		}
		close(lines)
		_, _ = io.Copy(io.Discard, stdout)
	}()
	deadline := time.After(time.Minute)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				_ = cmd.Wait()
				return r, stderr.String()
			}
			r.greeted(line)
			if strings.Contains(line, "kcat -C") { // its last line
				go func() {
					for range lines { // nobody reads what it prints from now on
					}
				}()
				t.Cleanup(func() { stop(t, cmd, read, &stderr) })
				return r, ""
			}
		case <-deadline:
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			require.Fail(t, "notyet dev is not ready after a minute", stderr.String())
		}
	}
}

// greeted notes a line of the greeting and the address that it tells.
func (r *Running) greeted(line string) {
	r.Greeting += line + "\n"
	words := strings.Fields(line)
	if len(words) < 2 {
		return
	}
	switch words[0] {
	case "Kafka":
		r.Kafka = words[1]
	case "HTTP":
		r.HTTP = strings.TrimPrefix(words[1], "http://")
	}
}

func stop(t testing.TB, cmd *exec.Cmd, read <-chan struct{}, stderr *bytes.Buffer) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-read:
		if err := cmd.Wait(); err != nil {
			t.Errorf("notyet dev ended with %v: %s", err, stderr)
		}
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		t.Error("notyet dev did not stop within 30 s")
	}
}
