package consumer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestQueueOf(t *testing.T) {
	r := func(partition int32, key string) *kgo.Record {
		return &kgo.Record{Partition: partition, Key: []byte(key)}
	}
	require.Equal(t, queueOf(r(0, "a")), queueOf(r(0, "a")))
	require.NotEqual(t, queueOf(r(0, "a")), queueOf(r(1, "a")), "another partition, perhaps another member's")
	require.NotEqual(t, queueOf(r(0, "a")), queueOf(r(0, "b")))
	require.NotEqual(t, queueOf(&kgo.Record{}), queueOf(r(0, "")), "an empty key is a key")
	require.NotEqual(t, queueOf(&kgo.Record{}), queueOf(&kgo.Record{Offset: 1}), "without a key there is no order")
}
