package schemas

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestRejectedKeepsTheRecordAsItCame(t *testing.T) {
	r := &kgo.Record{Key: nil, Value: []byte{}, Headers: []kgo.RecordHeader{{Key: "notyet-priority", Value: []byte("urgent")}, {Key: "", Value: nil}, {Key: "Notyet-X", Value: []byte{0xff}}, {Key: "a", Value: []byte{}}, {Key: "a"}}}
	body, err := DecodeRejected(EncodeRejected(r))
	require.NoError(t, err)
	require.Equal(t, r.Key, body.Key)
	require.Equal(t, r.Value, body.Value)
	require.Equal(t, r.Headers, body.Headers)
}
