package history

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestBodyHashSeesEveryChange(t *testing.T) {
	key, value := []byte("k"), []byte("v")
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("2")}}
	want := BodyHash(key, value, headers)
	for name, other := range map[string]uint64{
		"key": BodyHash([]byte("x"), value, headers), "value": BodyHash(key, []byte("x"), headers), "a header is dropped": BodyHash(key, value, headers[:1]),
		"the order of headers": BodyHash(key, value, []kgo.RecordHeader{headers[1], headers[0]}),
		"a header's value":     BodyHash(key, value, []kgo.RecordHeader{headers[0], {Key: "b", Value: []byte("3")}}),
	} {
		require.NotEqual(t, want, other, name)
	}
}
