package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// standIns take the place of what scripts/test runs. Each call is a line of $CALLS. A line of the status is longer than a pipe holds: a
// reader that stops at the first one leaves the writer with a broken pipe.
var standIns = map[string]string{
	"scripts/need":  `exit 0`,
	"scripts/retry": `exec "$@"`,

	"scripts/prometheus": `echo of-debian`,
	"scripts/servers": `
echo "servers $* set=${SERVERS_DIR##*/} empty=$SERVERS_EMPTY" >>"$CALLS"
up=$UP
[[ -z $SERVERS_DIR ]] || up=
case $1 in
  status)
    for name in kafka mariadb redis zookeeper; do
      if [[ " $up " == *" $name "* ]]; then printf '%s up %200000s\n' "$name" .; else printf '%s down %200000s\n' "$name" .; failed=1; fi
    done
    exit "${failed:-0}"
    ;;
  env) echo 'export NOTYET_KAFKA_BROKERS=of-the-set' ;;
esac`,
	"bin/go": `[[ $PROMETHEUS_DIR == of-debian ]] || exit
[[ $1 == mod ]] || echo "go $1 brokers=$NOTYET_KAFKA_BROKERS" >>"$CALLS"`,
}

func TestWhichServersTheTestsUse(t *testing.T) {
	real4 := []string{"NOTYET_KAFKA_BROKERS=mine", "NOTYET_MYSQL_DSN=mine", "NOTYET_REDIS_ADDRS=mine", "NOTYET_ZOOKEEPER_SERVERS=mine"}
	for name, c := range map[string]struct {
		up   string
		env  []string
		want []string
	}{
		"all run":    {up: "kafka mariadb redis zookeeper", want: []string{"servers up set= empty=", "go test brokers=of-the-set"}},
		"some run":   {up: "kafka redis", want: []string{"servers up set= empty=", "go test brokers=of-the-set", "servers down mariadb zookeeper set= empty="}},
		"none runs":  {want: []string{"servers up set=servers-test empty=1", "go test brokers=of-the-set", "servers down kafka mariadb redis zookeeper set=servers-test empty="}},
		"others are": {env: real4, want: []string{"go test brokers=mine"}},
		"only some":  {env: real4[:3], up: "kafka mariadb redis zookeeper", want: []string{"servers up set= empty=", "go test brokers=of-the-set"}},
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
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/test"), "./store")
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
