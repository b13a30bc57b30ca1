package deadletter

import (
	"testing"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

// A broker's clock is five minutes ahead of the dispatchers'. The record with the same id, at the same offset, is the one that was delivered.
func TestABrokersClockDoesNotOutweighAnID(t *testing.T) {
	now := time.Now()
	rec := &kgo.Record{Topic: "intake", Offset: 7, Timestamp: now.Add(5 * time.Minute), Headers: []kgo.RecordHeader{{Key: schemas.HeaderID, Value: []byte("same")}}}
	*(*uint8)(unsafe.Pointer(&rec.Attrs)) = 0b1000 // LogAppendTime
	require.EqualValues(t, 1, rec.Attrs.TimestampType())
	s := sent{taken: now.UnixMilli(), id: xxhash.Sum64String("same")}
	require.True(t, s.mayBe(rec))
}
