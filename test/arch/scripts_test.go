package arch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIns take the place of what scripts/test runs. Each call is a line of $CALLS. A line of the status is longer than a pipe holds: a
// reader that stops at the first one leaves the writer with a broken pipe.
var standIns = map[string]string{
	"scripts/need":      `exit 0`,
	"scripts/retry":     `exec "$@"`,
	"scripts/toolchain": ``,

	"scripts/prometheus": `echo of-debian`,
	"scripts/axe":        `echo of-maven`,
	"scripts/servers": `
echo "servers $* set=${SERVERS_DIR##*/} empty=$SERVERS_EMPTY${SERVERS_KAFKA:+ kafka=$SERVERS_KAFKA}" >>"$CALLS"
up=$UP
[[ -z $SERVERS_DIR ]] || up=
case $1 in
  status)
    for name in kafka mariadb redis zookeeper; do
      if [[ " $up " == *" $name "* ]]; then printf '%s up %200000s\n' "$name" .; else printf '%s down %200000s\n' "$name" .; failed=1; fi
    done
    exit "${failed:-0}"
    ;;
  env)
    echo 'export NOTYET_KAFKA_BROKERS=of-the-set'
    [[ -z $SERVERS_DATABASES ]] || echo "export NOTYET_MYSQL_SHARDS='first,second'"
    ;;
esac`,
	"bin/go": `[[ $PROMETHEUS_DIR == of-debian ]] || exit
[[ $* != *-race* ]] || race=" race cgo=$CGO_ENABLED"
[[ $1 == mod ]] || echo "go $1 brokers=$NOTYET_KAFKA_BROKERS${SERVERS_DATABASES:+ dsn=$NOTYET_MYSQL_DSN,$NOTYET_MYSQL_SHARDS}${NOTYET_LONG:+ long=$NOTYET_LONG}$race" >>"$CALLS"`,
}

func TestWhichServersTheTestsUse(t *testing.T) {
	real4 := []string{"NOTYET_KAFKA_BROKERS=mine", "NOTYET_MYSQL_DSN=mine", "NOTYET_REDIS_ADDRS=mine", "NOTYET_ZOOKEEPER_SERVERS=mine"}
	for name, c := range map[string]struct {
		up   string
		env  []string
		args []string
		want []string
	}{
		"all run":    {up: "kafka mariadb redis zookeeper", want: []string{"servers up set= empty=", "go test brokers=of-the-set"}},
		"some run":   {up: "kafka redis", want: []string{"servers up set= empty=", "go test brokers=of-the-set", "servers down mariadb zookeeper set= empty="}},
		"none runs":  {want: []string{"servers up set=servers-test empty=1", "go test brokers=of-the-set", "servers down kafka mariadb redis zookeeper set=servers-test empty="}},
		"others are": {env: real4, want: []string{"go test brokers=mine"}},
		"long": {args: []string{"--long"}, want: []string{"servers up set=servers-test empty=1 kafka=4.3", "go test brokers=of-the-set long=1 race cgo=1",
			"servers down kafka mariadb redis zookeeper set=servers-test empty= kafka=4.3"}},
		"long, and all run": {args: []string{"--long"}, up: "kafka mariadb redis zookeeper", want: []string{"servers up set= empty=", "go test brokers=of-the-set long=1 race cgo=1"}},
		"two databases":     {up: "kafka mariadb redis zookeeper", env: []string{"SERVERS_DATABASES=2", "NOTYET_MYSQL_DSN=mine"}, want: []string{"servers up set= empty=", "go test brokers=of-the-set dsn=first,"}},
		"others' two":       {env: append([]string{"SERVERS_DATABASES=2", "NOTYET_MYSQL_SHARDS=one,two"}, real4[0], real4[2], real4[3]), want: []string{"go test brokers=mine dsn=one,"}},
		"only some":         {env: real4[:3], up: "kafka mariadb redis zookeeper", want: []string{"servers up set= empty=", "go test brokers=of-the-set"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			script, err := os.ReadFile("../../scripts/test")
			require.NoError(t, err)
			write := func(path, text string) {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o755))
			}
			write("scripts/test", string(script))
			for path, text := range standIns {
				write(path, "#!/usr/bin/env bash\n"+text+"\n")
			}
			calls := filepath.Join(root, "calls")
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/test"), append(c.args, "./store")...)
			cmd.Env = append([]string{"HOME=" + root, "PATH=" + root + "/bin:" + os.Getenv("PATH"), "CALLS=" + calls, "UP=" + c.up}, c.env...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			text, err := os.ReadFile(calls)
			require.NoError(t, err)
			var did []string // beside asking
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "servers status") && !strings.HasPrefix(line, "servers env") {
					did = append(did, strings.TrimSpace(line))
				}
			}
			require.Equal(t, c.want, did)
		})
	}
}

func TestEnvironmentOfACluster(t *testing.T) {
	for name, c := range map[string]struct {
		set     []string
		primary string // that was promoted
		want    string
	}{
		"Redis Cluster": {want: `export NOTYET_KAFKA_BROKERS='127.0.0.1:1000,127.0.0.1:1010,127.0.0.1:1020'
export NOTYET_MYSQL_DSN='notyet:notyet@tcp(127.0.0.1:2000)/notyet'
export NOTYET_REDIS_ADDRS='127.0.0.1:3000,127.0.0.1:3010,127.0.0.1:3020,127.0.0.1:3030,127.0.0.1:3040,127.0.0.1:3050'
export NOTYET_ZOOKEEPER_SERVERS='127.0.0.1:4000,127.0.0.1:4010,127.0.0.1:4020'
export NOTYET_REDIS_CLUSTER='true'
`},
		"sentinels, after a promotion": {set: []string{"SERVERS_SENTINEL=1"}, primary: "mariadb-2", want: `export NOTYET_KAFKA_BROKERS='127.0.0.1:1000,127.0.0.1:1010,127.0.0.1:1020'
export NOTYET_MYSQL_DSN='notyet:notyet@tcp(127.0.0.1:2010)/notyet'
export NOTYET_REDIS_ADDRS='127.0.0.1:3005,127.0.0.1:3015,127.0.0.1:3025'
export NOTYET_ZOOKEEPER_SERVERS='127.0.0.1:4000,127.0.0.1:4010,127.0.0.1:4020'
export NOTYET_REDIS_MASTER='notyet'
`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.primary != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "primary"), []byte(c.primary+"\n"), 0o644))
			}
			out, err := servers(t, dir, c.set, "env", "--cluster")
			require.NoError(t, err, out)
			require.Equal(t, c.want, out)
		})
	}
}

// servers runs scripts/servers with a folder, ports and settings of the test's own.
func servers(t *testing.T, dir string, set []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../scripts/servers", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "SERVERS_DIR=" + dir, "SERVERS_KAFKA_PORT=1000", "SERVERS_MYSQL_PORT=2000", "SERVERS_REDIS_PORT=3000", "SERVERS_ZOOKEEPER_PORT=4000"}, set...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestEnvironmentOfSeveralDatabases(t *testing.T) {
	const around = `export NOTYET_KAFKA_BROKERS='127.0.0.1:1000'
export NOTYET_MYSQL_%s
export NOTYET_REDIS_ADDRS='127.0.0.1:3000'
export NOTYET_ZOOKEEPER_SERVERS='127.0.0.1:4000'
`
	for set, want := range map[string]string{
		"":                    "DSN='notyet:notyet@tcp(127.0.0.1:2000)/notyet'",
		"SERVERS_DATABASES=1": "DSN='notyet:notyet@tcp(127.0.0.1:2000)/notyet'",
		"SERVERS_DATABASES=2": "SHARDS='notyet:notyet@tcp(127.0.0.1:2000)/notyet,notyet:notyet@tcp(127.0.0.1:2010)/notyet'",
		"SERVERS_DATABASES=3": "SHARDS='notyet:notyet@tcp(127.0.0.1:2000)/notyet,notyet:notyet@tcp(127.0.0.1:2010)/notyet,notyet:notyet@tcp(127.0.0.1:2020)/notyet'",
	} {
		out, err := servers(t, t.TempDir(), []string{set}, "env")
		require.NoError(t, err, out)
		require.Equal(t, fmt.Sprintf(around, want), out, set)
	}
	for _, set := range []string{"SERVERS_DATABASES=0", "SERVERS_DATABASES=two", "SERVERS_DATABASES=-1", "SERVERS_DATABASES=100"} {
		out, err := servers(t, t.TempDir(), []string{set}, "env")
		require.Error(t, err, set)
		require.Contains(t, out, "SERVERS_DATABASES is ")
	}
	out, err := servers(t, t.TempDir(), []string{"SERVERS_DATABASES=2"}, "env", "--cluster")
	require.Error(t, err)
	require.Contains(t, out, "a cluster has one database")
}

// What an earlier run with more databases has left is stopped with the others, unless a name is given.
func TestDatabasesOfAnEarlierRunAreStopped(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	pidFile := filepath.Join(dir, "mariadb-2", "pid")
	require.NoError(t, os.MkdirAll(filepath.Dir(pidFile), 0o755))
	left := exec.CommandContext(t.Context(), "sh", "-c", "sleep 600 & wait", filepath.Dir(pidFile)+"/")
	left.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	left.Cancel = func() error { return syscall.Kill(-left.Process.Pid, syscall.SIGKILL) }
	require.NoError(t, left.Start())
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-left.Process.Pid, syscall.SIGKILL) })
	require.NoError(t, os.WriteFile(pidFile, []byte(strconv.Itoa(left.Process.Pid)+"\n"), 0o644))

	status, _ := servers(t, dir, []string{"SERVERS_DATABASES=2"}, "status", "mariadb-2")
	require.Contains(t, status, "127.0.0.1:2010   pid "+strconv.Itoa(left.Process.Pid))
	out, err := servers(t, dir, nil, "down", "mariadb")
	require.NoError(t, err, out)
	require.FileExists(t, pidFile)
	for range 2 {
		out, err = servers(t, dir, nil, "down")
		require.NoError(t, err, out)
		require.NoFileExists(t, pidFile)
	}
	require.Error(t, <-ended, "it was asked to stop")
}

// The machine's own Go may be older than that of go.mod, and forbidden to fetch another.
func TestEachScriptAndTheImageUseTheGoOfTheModule(t *testing.T) {
	gomod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	toolchain := regexp.MustCompile(`(?m)^toolchain go((\d+\.\d+)\.\d+)$`).FindSubmatch(gomod)
	require.NotNil(t, toolchain)

	files, err := filepath.Glob("../../scripts/*")
	require.NoError(t, err)
	runsGo, found := regexp.MustCompile(`(?m)^[^#\n]*\bgo (build|run|test|mod|tool|install|env) `), 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && runsGo.Match(text) {
			require.Contains(t, string(text), "\nsource scripts/toolchain\n", file)
			found++
		}
	}
	require.Greater(t, found, 4)
	script := exec.CommandContext(t.Context(), "bash", "-c", "source scripts/toolchain && printenv GOTOOLCHAIN")
	script.Dir = "../.."
	script.Env = append(os.Environ(), "GOTOOLCHAIN=local")
	out, err := script.Output()
	require.NoError(t, err)
	require.Equal(t, "go"+string(toolchain[1])+"\n", string(out))
	makefile := exec.CommandContext(t.Context(), "make", "--no-print-directory", "-f", "Makefile", "-f", "-", "print-toolchain")
	makefile.Dir, makefile.Env = script.Dir, script.Env
	makefile.Stdin = strings.NewReader("print-toolchain:\n\t@printenv GOTOOLCHAIN\n")
	made, err := makefile.Output()
	require.NoError(t, err)
	require.Equal(t, string(out), string(made))

	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	require.Contains(t, string(dockerfile), " golang:"+string(toolchain[2])+"-")
}

func TestKafkaOfTheStackIsThatOfTheTests(t *testing.T) {
	script, err := os.ReadFile("../../scripts/servers.d/kafka.sh")
	require.NoError(t, err)
	compose, err := os.ReadFile("../../docker-compose.yml")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	lists, err := filepath.Glob("../../scripts/servers.d/kafka-*.sha256")
	require.NoError(t, err)
	require.Len(t, lists, 2)
	defaults := 0
	for _, list := range lists {
		release := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(list), "kafka-"), ".sha256")
		sums, err := os.ReadFile(list)
		require.NoError(t, err)
		jar := regexp.MustCompile(`  kafka_2\.13-(` + regexp.QuoteMeta(release) + `\.\d+)\.jar\n`).FindSubmatch(sums)
		require.NotNil(t, jar, list)
		require.Contains(t, string(readme), release)
		if strings.Contains(string(script), "${SERVERS_KAFKA:-"+release+"}") {
			defaults++
			require.Contains(t, string(compose), "image: apache/kafka:"+string(jar[1])+"\n")
		}
	}
	require.Equal(t, 1, defaults)
}
