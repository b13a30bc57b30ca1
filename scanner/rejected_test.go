package scanner

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
)

func TestADeadLetterKeepsSixtyFourKiBOfARecord(t *testing.T) {
	big := make([]byte, 20<<20)
	header := func(n int) kgo.RecordHeader { return kgo.RecordHeader{Key: "h", Value: big[:n]} }
	for name, r := range map[string]*kgo.Record{
		"key":          {Key: big},
		"value":        {Key: []byte("k"), Value: big},
		"header":       {Headers: []kgo.RecordHeader{header(20 << 20)}},
		"header's key": {Headers: []kgo.RecordHeader{{Key: string(big)}}},
		"many headers": {Headers: slices.Repeat([]kgo.RecordHeader{header(0)}, 500_000)},
		"all of them":  {Key: big[:1<<20], Value: big, Headers: slices.Repeat([]kgo.RecordHeader{header(1000)}, 5000)},
	} {
		d := rejectedRecord(1, r, string(big[:1000]), string(big[:1000]), errors.New(string(big)))
		require.LessOrEqual(t, len(d.Body), schemas.MaxRejectedBytes, name)
		require.LessOrEqual(t, len(d.Reason), maxReason, name)
		require.LessOrEqual(t, len(d.Topic), schemas.MaxTopicLen, name)
		require.LessOrEqual(t, len(d.TaskID), schemas.MaxIDLen, name)
		_, err := schemas.DecodeRejected(d.Body)
		require.NoError(t, err, name)
	}
	small := record("in", 0, "a", "b")
	body, err := schemas.DecodeRejected(schemas.EncodeRejected(small))
	require.NoError(t, err)
	require.Equal(t, small.Headers, body.Headers)
}
