package ops

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
)

// certify writes a certificate for 127.0.0.1 with the serial number.
func certify(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	return cert, key
}

func TestACertificateIsReplacedWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	cert, key := certify(t, dir, 1)
	url := serve(t, Config{Certificate: cert, Key: key}, nil)
	addr := strings.TrimPrefix(url, "http://")
	serial := func() int64 {
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // looks at the certificate itself
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.Equal(t, int64(1), serial())
	certify(t, dir, 2)
	require.Eventually(t, func() bool { return serial() == 2 }, time.Minute, 50*time.Millisecond)
	require.NoError(t, os.WriteFile(key, []byte("broken"), 0o600))
	require.Equal(t, int64(2), serial())

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as above
	resp, err := client.Get("https://" + addr + "/healthz")                                                    //nolint:noctx // a test's
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	resp, err = http.Get(url + "/healthz") //nolint:noctx // a test's
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 400, resp.StatusCode, "plain HTTP is told that it is wrong here")
}

func TestAMissingCertificateNamesTheSettings(t *testing.T) {
	err := New(Config{Addr: "127.0.0.1:0", Certificate: "/nowhere.pem", Key: "/nowhere.key"}, NewRegistry(), zaptest.NewLogger(t)).Listen()
	require.ErrorContains(t, err, "http.tls.cert and http.tls.key")
}

// Whoever reaches the port can have a handshake fail, and must not fill a disk with the lines about it.
func TestHandshakesThatFailFillNoLog(t *testing.T) {
	var log logged
	cert, key := certify(t, t.TempDir(), 1)
	s := New(Config{Certificate: cert, Key: key}, NewRegistry(), log.logger())
	addr := strings.TrimPrefix(run(t, s), "http://")
	fail := func() {
		c, err := net.Dial("tcp", addr) //nolint:noctx // a test's
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, c) // until the server has given up
		require.NoError(t, err)
	}
	began := time.Now()
	for range 100 {
		fail()
	}
	lines, most := strings.Count(log.String(), "\n"), 2+int(time.Since(began).Seconds())
	require.LessOrEqual(t, lines, most)
	require.Contains(t, log.String(), "client sent an HTTP request to an HTTPS server")
	require.Contains(t, log.String(), "127.0.0.1:")
	require.Eventually(t, func() bool {
		fail()
		return strings.Contains(log.String(), `"failed":`) && strings.Count(log.String(), "\n") > 1
	}, time.Minute, 50*time.Millisecond, "the next line says how many there were")
}
