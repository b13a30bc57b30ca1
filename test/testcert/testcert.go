// Package testcert makes certificates for tests: a private authority, a server's certificate for
// 127.0.0.1 and localhost, and a client's. The files are like an operator's.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Files are the PEM files, in a folder of the test's own.
type Files struct {
	CA, ServerCert, ServerKey, ClientCert, ClientKey string
}

// New makes an authority and two certificates by it, valid for a day.
func New(t testing.TB) Files { return until(t, time.Now().Add(24*time.Hour)) }

// Expired makes what New makes, and it was valid until a minute ago.
func Expired(t testing.TB) Files { return until(t, time.Now().Add(-time.Minute)) }

func until(t testing.TB, end time.Time) Files {
	dir := t.TempDir()
	caKey := key(t)
	ca := template("notyet test authority", end)
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign
	caCert, caFile := sign(t, dir, "ca", ca, ca, caKey, caKey)
	issue := func(name string, usage x509.ExtKeyUsage) (certFile, keyFile string) {
		k := key(t)
		cert := template(name, end)
		cert.DNSNames, cert.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		cert.KeyUsage, cert.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{usage}
		_, certFile = sign(t, dir, name, cert, caCert, k, caKey)
		der, err := x509.MarshalPKCS8PrivateKey(k)
		require.NoError(t, err)
		return certFile, write(t, dir, name+".key", "PRIVATE KEY", der)
	}
	f := Files{CA: caFile}
	f.ServerCert, f.ServerKey = issue("server", x509.ExtKeyUsageServerAuth)
	f.ClientCert, f.ClientKey = issue("client", x509.ExtKeyUsageClientAuth)
	return f
}

// Client returns, for each connection, a configuration that trusts the authority and sends the client's certificate.
func (f Files) Client(t testing.TB) func() *tls.Config {
	pair, err := tls.LoadX509KeyPair(f.ClientCert, f.ClientKey)
	require.NoError(t, err)
	pool := f.pool(t)
	return func() *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}
	}
}

// Server returns a configuration that sends the server's certificate and requires a client's.
func (f Files) Server(t testing.TB) *tls.Config {
	pair, err := tls.LoadX509KeyPair(f.ServerCert, f.ServerKey)
	require.NoError(t, err)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: f.pool(t), ClientAuth: tls.RequireAndVerifyClientCert}
}

func (f Files) pool(t testing.TB) *x509.CertPool {
	ca, err := os.ReadFile(f.CA)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	return pool
}

func key(t testing.TB) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return k
}

func template(name string, end time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
	}
}

func sign(t testing.TB, dir, name string, cert, by *x509.Certificate, k, byKey *ecdsa.PrivateKey) (*x509.Certificate, string) {
	der, err := x509.CreateCertificate(rand.Reader, cert, by, &k.PublicKey, byKey)
	require.NoError(t, err)
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return made, write(t, dir, name+".pem", "CERTIFICATE", der)
}

func write(t testing.TB, dir, name, kind string, der []byte) string {
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
