package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// scripts/check with a go command that only answers for govulncheck.
func TestAnUnreachableVulnerabilityDatabaseIsNotClean(t *testing.T) {
	script, err := os.ReadFile("../../scripts/check")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		says     string
		packages string // the exit code for the list of packages
		code     string // that for calls
		last     string
		exit     int
	}{
		"nothing found": {"No vulnerabilities found.", "0", "9", "check: clean\n", 0},
		"none called":   {"No vulnerabilities found.", "3", "0", "check: clean\n", 0},
		"unreachable":   {"govulncheck: fetching vulnerabilities: dial tcp: no such host", "1", "9", "check: no finding, but not checked: govulncheck (no vulnerability database)\n", 0},
		"found":         {"Vulnerability #1", "3", "3", "check: failed: govulncheck\n", 1},
		"broken":        {"govulncheck: loading packages: no", "1", "9", "check: failed: govulncheck\n", 1},
		"breaks":        {"govulncheck: loading packages: no", "3", "1", "check: failed: govulncheck\n", 1},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{
				"scripts/check":     string(script),
				"scripts/toolchain": "",
				"scripts/retry":     "#!/usr/bin/env bash\n" + `exec "$@"` + "\n",
				"bin/gofmt":         "#!/usr/bin/env bash\n",
				"bin/go":            "#!/usr/bin/env bash\n" + `[[ $* != *GOROOT ]] || pwd; [[ $* != *"-scan package ./..." ]] || CODE=$PACKAGES; [[ $* != *govulncheck* ]] || { echo "$SAYS"; exit "$CODE"; }` + "\n",
			} {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o755))
			}
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "check"))
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"), "SAYS="+c.says, "PACKAGES="+c.packages, "CODE="+c.code)
			out, _ := cmd.CombinedOutput()
			require.Equal(t, c.exit, cmd.ProcessState.ExitCode(), "%s", out)
			require.Contains(t, string(out), c.says)
			require.Regexp(t, `(?s)\n`+regexp.QuoteMeta(c.last)+`$`, string(out))
		})
	}
}
