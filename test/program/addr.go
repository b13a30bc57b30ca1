package program

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var nextPort atomic.Int64

// FreeAddr returns an address that stays free while nobody listens there, because it is below the range of automatic ports.
func FreeAddr(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+(int64(os.Getpid())*97+nextPort.Add(1))%12_000)
		if l, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, l.Close())
			return addr
		}
	}
	require.Fail(t, "no port is free")
	return ""
}
