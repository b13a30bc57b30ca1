package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/freeport"
)

// ownServer is a server of scripts/servers for one test, or some of one kind, which the test may put
// back to a copy of its folder. A long test alone starts one.
type ownServer struct {
	t    *testing.T
	kind string // kafka, mariadb
	dir  string
	addr string // of the first
	env  []string
	args []string
}

func newOwnServer(t *testing.T, kind string, env ...string) *ownServer {
	s := &ownServer{t: t, kind: kind, env: env}
	s.begin()
	return s
}

func (s *ownServer) begin() {
	s.t.Helper()
	if os.Getenv("NOTYET_LONG") == "" {
		s.t.Skip("NOTYET_LONG=1 runs it: it starts servers of its own")
	}
	s.t.Cleanup(func() { s.down() })
	for tries := 1; ; tries++ {
		s.dir = s.t.TempDir()
		s.moves()
		out, err := s.run("up")
		if err == nil {
			return
		}
		taken := strings.Contains(out, "already in use") || strings.Contains(out, "something else listens")
		require.True(s.t, taken && tries < 4, out) // another test takes a port, Kafka's controller's too, while the server starts
		s.down()
	}
}

// call calls scripts/servers for the servers of these names, or for all.
func (s *ownServer) call(command string, names ...string) {
	s.t.Helper()
	out, err := s.run(command, names...)
	require.NoError(s.t, err, "%s", out)
}

func (s *ownServer) run(command string, names ...string) (out string, err error) {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	if len(names) == 0 {
		names = []string{s.kind}
	}
	cmd := exec.Command("../../scripts/servers", slices.Concat(s.args, []string{command}, names)...) //nolint:noctx // a cleanup runs it too
	setting := map[string]string{"kafka": "KAFKA", "mariadb": "MYSQL"}[s.kind]
	cmd.Env = append(append(os.Environ(), s.env...), "SERVERS_DIR="+s.dir, "SERVERS_"+setting+"_PORT="+port, "SERVERS_EMPTY=", "SERVERS_DATABASES=1")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func (s *ownServer) up(names ...string)   { s.t.Helper(); s.call("up", names...) }
func (s *ownServer) down(names ...string) { s.t.Helper(); s.call("down", names...) }
func (s *ownServer) home() string         { return filepath.Join(s.dir, s.kind) }
func (s *ownServer) data() string         { return filepath.Join(s.home(), "data") }

// moves has the server start at another address from now on.
func (s *ownServer) moves() {
	s.t.Helper()
	var err error
	s.addr, err = freeport.Addr()
	require.NoError(s.t, err)
}

// dsn leads to a database of MariaDB.
func (s *ownServer) dsn(database string) string {
	return "notyet:notyet@tcp(" + s.addr + ")/" + database
}

// client runs a command of MariaDB with an input, and returns what it prints.
func (s *ownServer) client(input, command string, args ...string) string {
	s.t.Helper()
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(s.t, err)
	cmd := exec.CommandContext(s.t.Context(), command, append([]string{"--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--port=" + port, "--user=root"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	require.NoError(s.t, err, "%s: %s", command, &said)
	return string(out)
}
