package store

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/notyet/notyet/test/freeport"
	"github.com/notyet/notyet/test/testcert"
)

// startSecured runs a MariaDB of the test's own, in which one user must come over TLS with a certificate.
func startSecured(t *testing.T, certs testcert.Files) (port string) {
	for _, program := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
	home := t.TempDir()
	options := []string{"--no-defaults", "--datadir=" + filepath.Join(home, "data"), "--user=" + os.Getenv("USER"), "--tmpdir=" + home}
	if os.Geteuid() == 0 {
		options[2] = "--user=root"
	}
	out, err := exec.Command("mariadb-install-db", append(options, "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-flush-method=nosync")...).CombinedOutput()
	require.NoError(t, err, string(out))
	init := filepath.Join(home, "init.sql")
	require.NoError(t, os.WriteFile(init, []byte("CREATE DATABASE notyet;\nCREATE USER 'notyet'@'%' IDENTIFIED BY 'geheim' REQUIRE X509;\nGRANT ALL ON notyet.* TO 'notyet'@'%';\n"), 0o600))
	addr, err := freeport.Addr()
	require.NoError(t, err)
	_, port, _ = net.SplitHostPort(addr)
	cmd := exec.Command("mariadbd", append(options, "--init-file="+init, "--socket=m.sock", "--bind-address=127.0.0.1", "--port="+port,
		"--ssl-ca="+certs.CA, "--ssl-cert="+certs.ServerCert, "--ssl-key="+certs.ServerKey, "--innodb-flush-method=nosync")...)
	cmd.Dir = home
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return port
}

func TestMariaDBOverTLS(t *testing.T) {
	if os.Getenv("NOTYET_MYSQL_DSN") == "" {
		t.Skip("NOTYET_MYSQL_DSN is not set: this machine runs no databases")
	}
	certs := testcert.New(t)
	good := Config{DSN: "notyet:geheim@tcp(localhost:" + startSecured(t, certs) + ")/notyet", TLS: certs.Client(t)}
	connect := func(cfg Config) error {
		s, err := Open(t.Context(), cfg, zap.NewNop())
		if err == nil {
			err = s.Close()
		}
		return err
	}
	require.Eventually(t, func() bool { return connect(good) == nil }, 2*time.Minute, 50*time.Millisecond, "it starts")

	// Certificates are asked for with each connection.
	var now atomic.Pointer[tls.Config]
	now.Store(certs.Client(t)())
	changing := good
	changing.TLS = now.Load
	s, err := Open(t.Context(), changing, zap.NewNop())
	require.NoError(t, err)
	defer s.Close()
	living, err := s.db.Conn(t.Context())
	require.NoError(t, err)
	defer living.Close()
	for _, other := range []testcert.Files{testcert.New(t), testcert.Expired(t)} {
		now.Store(other.Client(t)())
		require.NoError(t, living.PingContext(t.Context()), "open connections go on")
		require.ErrorContains(t, s.Ping(t.Context()), "mysql.tls")
	}
	now.Store(certs.Client(t)())
	require.NoError(t, s.Ping(t.Context()))

	stranger, plain := good, good
	stranger.TLS, plain.TLS = testcert.New(t).Client(t), nil
	require.ErrorContains(t, connect(stranger), "mysql.tls")
	require.ErrorContains(t, connect(plain), "Access denied")
}

// A server, or somebody in between, that says that it speaks no TLS hears no password, whatever the DSN allows.
func TestAServerWithoutTLSHearsNoPassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	heard := make(chan []byte, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		const withoutTLS = 0xffffffff &^ 0x800 &^ 0x20
		hello := "\x0a8.4.0\x00\x01\x00\x00\x0012345678\x00" + string([]byte{withoutTLS & 0xff, withoutTLS >> 8 & 0xff}) + "\x21\x02\x00" +
			string([]byte{withoutTLS >> 16 & 0xff, withoutTLS >> 24}) + "\x15" + strings.Repeat("\x00", 10) + "901234567890\x00mysql_clear_password\x00"
		_, _ = conn.Write([]byte(string([]byte{byte(len(hello)), 0, 0, 0}) + hello))
		said, _ := io.ReadAll(conn)
		heard <- said
	}()
	cfg := Config{
		DSN: "notyet:geheim@tcp(" + listener.Addr().String() + ")/notyet?allowFallbackToPlaintext=true&allowCleartextPasswords=true&readTimeout=5s",
		TLS: testcert.New(t).Client(t),
	}
	_, err = Open(t.Context(), cfg, zap.NewNop())
	require.ErrorContains(t, err, "mysql.tls")
	require.NotContains(t, string(<-heard), "geheim")
}
