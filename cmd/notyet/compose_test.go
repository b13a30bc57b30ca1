package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/config"
)

// composeService is what the tests read of a service in docker-compose.yml.
type composeService struct {
	Image       string
	Command     []string
	Entrypoint  []string
	WorkingDir  string `yaml:"working_dir"`
	Environment map[string]string
	Ports       []string
	Profiles    []string
	Volumes     []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
}

type composeFile struct {
	Services map[string]composeService
	Volumes  map[string]any
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	var f composeFile
	require.NoError(t, yaml.Unmarshal(text, &f))
	return f
}

// The small form needs Kafka and MySQL alone, and does not start with the other one.
func TestComposeSmallForm(t *testing.T) {
	f := readCompose(t)
	for _, name := range []string{"migrate-small", "small-1", "small-2"} {
		s := f.Services[name]
		require.Equal(t, []string{"small"}, s.Profiles, name)
		require.NotContains(t, s.DependsOn, "redis", name)
		require.NotContains(t, s.DependsOn, "zookeeper", name)
		_, err := config.Load(config.Sources{Environ: s.environ(), Require: dispatcherServers})
		require.NoError(t, err, name)
	}
	requireOwnProfiles(t, f)
}

// With two databases, services wait for both, and these share neither data nor a port.
func TestComposeTwoDatabases(t *testing.T) {
	f := readCompose(t)
	for _, name := range []string{"migrate-two", "two-1", "two-2"} {
		s := f.Services[name]
		require.Equal(t, []string{"two"}, s.Profiles, name)
		require.NotContains(t, s.DependsOn, "redis", name)
		require.NotContains(t, s.DependsOn, "zookeeper", name)
		cfg, err := config.Load(config.Sources{Environ: s.environ(), Require: dispatcherServers})
		require.NoError(t, err, name)
		var hosts []string
		for _, shard := range cfg.MySQL.Shards {
			dsn, err := mysql.ParseDSN(shard.DSN)
			require.NoError(t, err)
			host, _, err := net.SplitHostPort(dsn.Addr)
			require.NoError(t, err)
			require.Equal(t, "service_healthy", s.DependsOn[host].Condition, name)
			hosts = append(hosts, host)
		}
		require.Equal(t, []string{"mysql", "mysql-2"}, hosts)
	}
	home, second := f.Services["mysql"], f.Services["mysql-2"]
	require.Equal(t, []string{"two"}, second.Profiles)
	require.NotEqual(t, home.Volumes, second.Volumes)
	require.NotEqual(t, home.Ports, second.Ports)
	home.Profiles, home.Volumes, home.Ports = second.Profiles, second.Volumes, second.Ports
	require.Equal(t, home, second)
}

// requireOwnProfiles: whoever starts always needs nobody of a profile.
func requireOwnProfiles(t *testing.T, f composeFile) {
	t.Helper()
	for name, s := range f.Services {
		for on := range s.DependsOn {
			require.True(t, len(s.Profiles) > 0 || len(f.Services[on].Profiles) == 0, "%s starts %s", name, on)
		}
	}
}

// environ is the service's environment as a process gets it.
func (s composeService) environ() []string {
	var out []string
	for k, v := range s.Environment {
		out = append(out, k+"="+v)
	}
	return out
}

func TestComposeStackIsWhole(t *testing.T) {
	f := readCompose(t)
	ours := 0
	for name, s := range f.Services {
		for on := range s.DependsOn {
			require.Contains(t, f.Services, on, "%s depends on it", name)
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			require.Contains(t, f.Volumes, volume, "%s mounts it", name)
		}
		for _, p := range s.Ports {
			require.True(t, strings.HasPrefix(p, "127.0.0.1:"), "%s publishes %s to everybody", name, p)
		}
		if s.Image != "notyet:local" || s.Environment == nil {
			continue
		}
		ours++
		cfg, err := config.Load(config.Sources{Environ: s.environ()})
		require.NoError(t, err, name)
		require.Len(t, s.Command, 1)
		require.Equal(t, command.ExitDone, notyet(t, nil, "", s.Command[0], "--help").code)
		if len(s.Ports) > 0 {
			s.requireServedOutside(t, cfg)
		}
	}
	require.Equal(t, 11, ours, "migrate, two scanners, two dispatchers; in the small form, and with two databases, migrate and two of all")
}

// requireServedOutside: what a container publishes is reached from outside of it, where only
// callers with a token are served.
func (s composeService) requireServedOutside(t *testing.T, cfg *config.Config) {
	t.Helper()
	host, port, err := net.SplitHostPort(cfg.HTTP.Addr)
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0", host)
	require.True(t, strings.HasSuffix(s.Ports[0], ":"+port))
	require.Contains(t, s.Volumes, "tokens:"+filepath.Dir(cfg.HTTP.Tokens)+":ro")
	require.Equal(t, "service_completed_successfully", s.DependsOn["tokens"].Condition)
}

// The token that the stack makes is the one that its services take, and starting again changes
// nothing.
func TestComposeStackMakesItsToken(t *testing.T) {
	f := readCompose(t)
	s := f.Services["tokens"]
	require.Equal(t, "tokens.yaml", filepath.Base(f.Services["scanner-1"].Environment["NOTYET_HTTP_TOKENS"]))
	require.Contains(t, s.Volumes, "tokens:"+s.WorkingDir)
	require.Equal(t, s.WorkingDir, filepath.Dir(f.Services["scanner-1"].Environment["NOTYET_HTTP_TOKENS"]))

	bin, dir := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(bin, "notyet")))
	start := func() string {
		script := strings.ReplaceAll(s.Command[0], "$$", "$") // as compose reads it
		cmd := exec.CommandContext(t.Context(), s.Entrypoint[0], append(s.Entrypoint[1:], script)...)
		cmd.Dir = dir
		cmd.Env = []string{"HOME=/", "PATH=" + bin + ":" + os.Getenv("PATH"), asProgram + "=1"}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err)
		require.Empty(t, string(out), "the log of the stack does not keep the token")
		token, err := os.ReadFile(filepath.Join(dir, "token"))
		require.NoError(t, err)
		return strings.TrimSpace(string(token))
	}
	// A start that was killed before the rename.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("nyt_half"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "new"), []byte("token: nyt_half\nent"), 0o600))
	token := start()
	require.NotEmpty(t, token)
	require.NotEqual(t, "nyt_half", token)
	require.Equal(t, token, start())

	d := startDev(t, "--set", "http.tokens="+filepath.Join(dir, "tokens.yaml"))
	require.Equal(t, command.ExitFailed, d.cmd(t, "list").code)
	r := d.cmd(t, "list", "--http-token", token)
	require.Equal(t, command.ExitDone, r.code, r.stderr)
}
