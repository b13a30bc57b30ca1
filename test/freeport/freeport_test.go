package freeport_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/test/freeport"
)

func TestAddrIsOutOfReachOfOutgoingConnections(t *testing.T) {
	addr, err := freeport.Addr()
	require.NoError(t, err)
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	require.Less(t, l.Addr().(*net.TCPAddr).Port, 32768)
}
