package packages

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program builds notyet once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "notyet-packages-")
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", dir, "./cmd/notyet")
	build.Dir = "../.."
	build.Stderr = os.Stderr
	return filepath.Join(dir, "notyet"), build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := program(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// notyet runs the program with no environment but this.
func notyet(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append([]string{"HOME=/"}, environ...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// The settings of each service pass notyet's own check, with the files that the pods mount.
func TestChartSettingsAreValid(t *testing.T) {
	eachForm(t, func(t *testing.T, r release, v values) {
		etc := t.TempDir()
		files(t, etc)
		path := filepath.Join(etc, "notyet.yaml")
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(r.config["notyet"], "/etc/notyet", etc)), 0o600))
		require.Equal(t, strings.TrimSpace(r.config["notyet"]), strings.TrimSpace(r.config["notyet-migrate"]))
		environ := []string{"NOTYET_MYSQL_DSN=notyet:secret@tcp(mysql:3306)/notyet"}
		if v["mysql"] != nil {
			environ = nil // in files
		}
		for _, service := range services(r) {
			require.Contains(t, notyet(t, environ, "config", "check", "--config", path, "--service", service), "valid")
		}
		// Where the topics are Strimzi's, the Job has no certificate for Kafka yet.
		if args := r.pods["migrate"].spec.Containers[0].Args; slices.Contains(args, "--database-only") {
			require.NoError(t, os.RemoveAll(filepath.Join(etc, "kafka")))
			args[1] = "--config=" + path
			require.Contains(t, notyet(t, []string{"NOTYET_MYSQL_DSN=sqlite:" + filepath.Join(etc, "notyet.db")}, args...), "64 slots")
		}
	})
}

// files makes what Secrets hold.
func files(t *testing.T, etc string) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(etc, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	_, entry, found := strings.Cut(notyet(t, nil, "token", "new", "test", "--role", "admin"), "entry:")
	require.True(t, found)
	write("tokens/tokens.yaml", entry)
	for i := range 2 {
		write(fmt.Sprintf("shards/%d/dsn", i), fmt.Sprintf("notyet:secret@tcp(mysql-%d:3306)/notyet\n", i))
	}

	public, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, public, key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	write("kafka/ca.crt", certificate)
	write("kafka/user.crt", certificate)
	write("kafka/user.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})))
}

// The chart is of the release that it installs.
func TestChartVersion(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "Chart.yaml"))
	require.NoError(t, err)
	version := strings.Fields(notyet(t, nil, "--version"))[1]
	release, _, _ := strings.Cut(version, "+")
	require.Contains(t, string(text), "\nappVersion: "+release+"\n")
}
