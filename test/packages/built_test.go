package packages

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const dist = "../../dist"

// built returns the files of a kind that scripts/packages made, one of each architecture.
func built(t *testing.T, ending string) map[string]string {
	t.Helper()
	if os.Getenv("PACKAGES_BUILT") == "" { // dist/ may be of another commit
		t.Skip("PACKAGES_BUILT is not set: run make packages")
	}
	out := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		found, err := filepath.Glob(filepath.Join(dist, "notyet_*_linux_"+arch+ending))
		require.NoError(t, err)
		require.Len(t, found, 1, arch+ending)
		out[arch] = found[0]
	}
	return out
}

// tool runs a program of the distribution.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(name + " is not installed")
	}
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	return string(out)
}

// installed are the files of a package with their modes; all belong to root.
var installed = map[string]string{
	"/usr/bin/notyet": "-rwxr-xr-x", "/usr/lib/systemd/system/notyet@.service": "-rw-r--r--", "/usr/lib/sysusers.d/notyet.conf": "-rw-r--r--",
	"/etc/notyet/notyet.yaml": "-rw-r--r--", "/etc/notyet/environment": "-rw-------", "/usr/share/doc/notyet/copyright": "-rw-r--r--", "/usr/share/doc/notyet/NOTICES": "-rw-r--r--",
	"/usr/share/bash-completion/completions/notyet": "-rw-r--r--",
}

// listed reads lists like those of tar and ls: mode first, owner and group as `owner`, the path last.
func listed(t *testing.T, text, owner string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0][0] != '-' {
			continue
		}
		require.Contains(t, line, owner)
		out[strings.TrimPrefix(words[len(words)-1], ".")] = words[0]
	}
	return out
}

func TestBuiltDebianPackages(t *testing.T) {
	for arch, path := range built(t, ".deb") {
		require.Equal(t, installed, listed(t, tool(t, "dpkg-deb", "--contents", path), "root/root"), arch)
		fields := tool(t, "dpkg-deb", "--field", path)
		for _, want := range []string{"Package: notyet\n", "Architecture: " + arch + "\n", "Recommends: ca-certificates\n"} {
			require.Contains(t, fields, want)
		}
		require.Regexp(t, `(?m)^Version: \d+\.\d+\.\d+\+\d{14}\.\S+$`, fields)
		require.NotContains(t, fields, "@", "there is no mailbox")
		dir := t.TempDir()
		tool(t, "dpkg-deb", "--raw-extract", path, dir)
		conffiles, err := os.ReadFile(filepath.Join(dir, "DEBIAN", "conffiles"))
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"/etc/notyet/notyet.yaml", "/etc/notyet/environment"}, strings.Fields(string(conffiles)), "changes of the operator stay")
		works(t, dir, arch)
	}
}

func TestBuiltRPMPackages(t *testing.T) {
	for arch, path := range built(t, ".rpm") {
		require.Contains(t, tool(t, "rpm", "--checksig", "--nosignature", path), "digests OK")
		require.Equal(t, installed, listed(t, tool(t, "rpm", "--query", "--list", "--verbose", "--package", path), "root     root"), arch)
		require.ElementsMatch(t, []string{"/etc/notyet/notyet.yaml", "/etc/notyet/environment"}, strings.Fields(tool(t, "rpm", "--query", "--configfiles", "--package", path)))
		require.Equal(t, map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch], tool(t, "rpm", "--query", "--queryformat", "%{ARCH}", "--package", path))
		require.Contains(t, tool(t, "rpm", "--query", "--scripts", "--package", path), "systemd-sysusers notyet.conf")
	}
}

// works: what a package installs fits together. Settings and unit are those that the unit names.
func works(t *testing.T, dir, arch string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/notyet@.service"))
	require.NoError(t, err)
	for _, name := range []string{"/usr/bin/notyet", "/etc/notyet/notyet.yaml", "/etc/notyet/environment"} {
		require.Contains(t, string(text), name)
		require.Contains(t, installed, name)
	}
	if arch != runtime.GOARCH {
		return
	}
	program := filepath.Join(dir, "usr/bin/notyet")
	require.Regexp(t, `^notyet \d+\.\d+\.\d+\+`, tool(t, program, "version"))
	check := exec.CommandContext(t.Context(), program, "config", "check", "--config", filepath.Join(dir, "etc/notyet/notyet.yaml"))
	check.Env = []string{"HOME=/", "NOTYET_MYSQL_DSN=user:password@tcp(127.0.0.1:3306)/notyet"}
	out, err := check.CombinedOutput()
	require.NoError(t, err, string(out))
}

// TestBuiltBillOfMaterials: the list names the modules that go.mod requires and the program has.
func TestBuiltBillOfMaterials(t *testing.T) {
	for _, path := range built(t, ".cdx.json") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var list struct {
			BOMFormat  string
			Components []struct{ Name, Version, PURL string }
		}
		require.NoError(t, json.Unmarshal(text, &list))
		require.Equal(t, "CycloneDX", list.BOMFormat)
		versions := map[string]string{}
		for _, c := range list.Components {
			versions[c.Name] = c.Version
			require.True(t, c.Name == "std" || strings.HasPrefix(c.PURL, "pkg:golang/"), "%+v", c)
		}
		module, err := os.ReadFile("../../go.mod")
		require.NoError(t, err)
		for _, name := range []string{"github.com/twmb/franz-go", "github.com/go-sql-driver/mysql", "github.com/redis/go-redis/v9", "github.com/alecthomas/kong"} {
			want := regexp.MustCompile(regexp.QuoteMeta(name) + ` (v\S+)`).FindSubmatch(module)
			require.NotNil(t, want, name)
			require.Equal(t, string(want[1]), versions[name], name)
		}
	}
}

func TestBuiltChecksums(t *testing.T) {
	archives := built(t, ".tar.gz")
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = dist
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, 2*4, strings.Count(string(out), ": OK\n"))
	for _, path := range archives {
		require.Equal(t, map[string]string{"notyet": "-rwxr-xr-x", "LICENSE": "-rw-r--r--", "NOTICES": "-rw-r--r--"}, listed(t, tool(t, "tar", "--list", "--verbose", "--gzip", "--numeric-owner", "--file", path), "0/0"))
	}
}
