package testcert_test

import (
	"crypto/tls"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/testcert"
)

func TestOnlyTheOwnAuthorityIsTrusted(t *testing.T) {
	mine, others := testcert.New(t), testcert.New(t)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", mine.Server(t))
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), mine.Client(t)())
	require.NoError(t, err)
	conn.Close()
	_, err = tls.Dial("tcp", listener.Addr().String(), others.Client(t)())
	require.ErrorContains(t, err, "unknown authority")
}
