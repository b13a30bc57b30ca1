package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/require"
)

const unitFile = "../../deploy/systemd/notyet@.service"

// settings returns the unit's, by section and key.
func settings(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.Open(unitFile)
	require.NoError(t, err)
	defer func() { _ = text.Close() }()
	options, err := unit.DeserializeOptions(text)
	require.NoError(t, err)
	out := map[string][]string{}
	for _, o := range options {
		key := o.Section + "." + o.Name
		out[key] = append(out[key], o.Value)
	}
	return out
}

func TestUnitSettings(t *testing.T) {
	s := settings(t)
	for key, want := range map[string]string{
		"Service.User": "notyet", "Service.StateDirectory": "notyet/%i", "Service.Environment": "NOTYET_SENDLOG_DIR=%S/notyet/%i",
		"Service.ProtectSystem": "strict", "Service.NoNewPrivileges": "yes", "Service.CapabilityBoundingSet": "",
		"Service.ExecReload": "/bin/kill -HUP $MAINPID", "Service.Restart": "on-failure", "Service.RestartPreventExitStatus": "2", "Unit.StartLimitIntervalSec": "0",
	} {
		require.Equal(t, []string{want}, s[key], key)
	}
	require.Equal(t, []string{"-/etc/notyet/environment", "-/etc/notyet/environment-%i"}, s["Service.EnvironmentFile"], "the file of one service counts more")
	stop, err := time.ParseDuration(s["Service.TimeoutStopSec"][0] + "s")
	require.NoError(t, err)
	require.Greater(t, stop, stopTimeout(t), "a service that is killed while it stops hands nothing over")
	users, err := os.ReadFile("../../deploy/systemd/notyet.sysusers")
	require.NoError(t, err)
	require.Regexp(t, `^u `+s["Service.User"][0]+` `, string(users))
}

// stopTimeout is the program's default.
func stopTimeout(t *testing.T) time.Duration {
	t.Helper()
	var printed struct {
		Settings []struct {
			Key   string
			Value any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(notyet(t, nil, "config", "print", "--json")), &printed))
	for _, s := range printed.Settings {
		if s.Key == "stop-timeout" {
			d, err := time.ParseDuration(s.Value.(string))
			require.NoError(t, err)
			return d
		}
	}
	t.Fatal("stop-timeout is not printed")
	return 0
}

// systemd itself finds no mistake, and nearly nothing that the unit may do and need not.
func TestUnitIsAcceptedBySystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	text, err := os.ReadFile(unitFile)
	require.NoError(t, err)
	bin, err := program()
	require.NoError(t, err)
	for _, role := range []string{"all", "scanner", "dispatcher"} {
		path := filepath.Join(t.TempDir(), "notyet@"+role+".service")
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "/usr/bin/notyet", bin)), 0o600))
		for _, args := range [][]string{{"verify", "--man=no", path}, {"security", "--offline=true", "--threshold=15", path}} {
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
			require.NoError(t, err, "%s: %s", args[0], out)
			if args[0] == "verify" {
				require.Empty(t, string(out))
			}
		}
		require.Contains(t, notyet(t, nil, role, "--help"), "Usage: notyet "+role)
	}
}
