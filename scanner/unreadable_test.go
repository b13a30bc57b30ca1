package scanner

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/recordtest"
)

// publishRaw publishes records as one batch that is not compressed. Kafka compares its length, checksum and count, and nothing else.
func (f *fixture) publishRaw(partition int32, records ...[]byte) {
	f.Helper()
	f.publishBatch(partition, kgo.CodecNone, len(records), slices.Concat(records...))
}

func (f *fixture) publishBatch(partition int32, codec kgo.CompressionCodecType, count int, records []byte) {
	f.Helper()
	require.NoError(f, recordtest.ProduceBatch(f.Context(), f.client, schemas.TopicIntake, partition, codec, count, records))
}

// overlong has the length of a record in more bits than it has.
func overlong(r []byte) []byte {
	n, used := binary.Uvarint(r)
	return append([]byte{byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n>>21) | 0x80, 0x70}, r[used:]...)
}

// A batch can say that its records are where those of others are. Nothing of the others is left out, and the batch is a dead letter.
func TestABatchThatLiesHidesNobody(t *testing.T) {
	one, two := ask("bad one", 0), ask("bad two", 0)
	for name, records := range map[string][][]byte{
		"ahead":            {recordtest.EncodedAt(one, 0), recordtest.EncodedAt(two, 3)},
		"ahead from first": {recordtest.EncodedAt(one, 2), recordtest.EncodedAt(two, 3)},
		"far ahead":        {recordtest.EncodedAt(one, 0), recordtest.EncodedAt(two, 1<<30)},
		"back":             {recordtest.EncodedAt(one, 1), recordtest.EncodedAt(two, 0)},
		"below":            {recordtest.EncodedAt(one, -1), recordtest.EncodedAt(two, 1)},
		"twice":            {recordtest.EncodedAt(one, 0), recordtest.EncodedAt(two, 0)},
		"cannot be read":   {recordtest.EncodedAt(one, 0), overlong(recordtest.EncodedAt(two, 1))},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.publish(ask("before", 0))
			f.publishRaw(0, records...)
			for i := range 5 {
				f.publish(ask(fmt.Sprint("behind ", i), 0))
			}
			f.start(f.store, Config{})
			f.eventually("all is stored", func() bool { return f.sourceOf(0).Next == 8 })
			require.Equal(t, 6, f.tasks(), "the requests of others")
			letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
			require.NoError(t, err)
			require.Len(t, letters, 1, "one for the batch")
			require.Contains(t, letters[0].Reason, "the offsets 1 to 2 cannot be read")
			f.publish(ask("later", 0))
			f.eventually("it goes on", func() bool { return f.tasks() == 7 })
		})
	}
}

// Batches that lie, one behind the other, are passed together.
func TestBatchesThatLieInARowAreOneLetter(t *testing.T) {
	f := newFixture(t)
	for range 200 {
		f.publishRaw(0, recordtest.EncodedAt(ask("bad", 0), 0), recordtest.EncodedAt(ask("bad", 0), 5))
	}
	f.publish(ask("behind", 0))
	f.start(f.store, Config{})
	f.eventually("all is stored", func() bool { return f.sourceOf(0).Next == 401 })
	require.Equal(t, 1, f.tasks())
	letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, letters[0].Reason, "the offsets 0 to 399 cannot be read")
}

// The client makes nothing of a batch that it cannot decode, and asks for it again: no other fits into the same fetch.
func TestABatchThatFillsAFetchHoldsUpNobody(t *testing.T) {
	f := newFixture(t)
	bad, large := ask("bad", 0), ask("behind", 0)
	bad.Value, large.Value = make([]byte, 900_000), make([]byte, 500_000)
	_, _ = rand.Read(large.Value) // so that it does not become small
	f.publishRaw(0, overlong(recordtest.EncodedAt(bad, 0)))
	f.publish(large)
	f.start(f.store, Config{})
	f.eventually("what stands behind it is stored", func() bool { return f.tasks() == 1 && f.sourceOf(0).Next == 2 })
	letters, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Contains(t, letters[0].Reason, "only 0 of its 1 records can be decoded")
}

// Batches that are large once they are decompressed are looked into while as many of them are held as may be.
func TestLargeBatchesThatLieHoldUpNobody(t *testing.T) {
	f := newFixture(t)
	gzip, err := kgo.DefaultCompressor(kgo.GzipCompression())
	require.NoError(t, err)
	large := ask("bad", 0)
	large.Value = make([]byte, 60<<20)
	small, codec := gzip.Compress(new(bytes.Buffer), slices.Concat(recordtest.EncodedAt(large, 0), overlong(recordtest.EncodedAt(ask("bad", 0), 1))))
	for range 4 {
		f.publishBatch(0, codec, 2, small)
	}
	f.publish(ask("behind", 0), ask("other", 1))
	f.start(f.store, Config{})
	f.eventually("all is stored", func() bool { return f.sourceOf(0).Next == 9 && f.sourceOf(1).Next == 1 })
	require.Equal(t, 2, f.tasks())
	require.Positive(t, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// While a gap cannot be looked into, nothing behind it is stored, and nothing is lost.
func TestAGapThatCannotBeLookedIntoIsPolledAgain(t *testing.T) {
	f := newFixture(t)
	var asked, refused atomic.Int32
	refused.Store(3)
	f.cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req := r.(*kmsg.FetchRequest)
		switch {
		case req.SessionEpoch != -1: // a consumer's own
			return nil, nil, false
		case req.MaxBytes == 1: // a look at the last stored record
			return nil, nil, false
		case asked.Add(1) > refused.Load():
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.Version, resp.ErrorCode = req.Version, kerr.UnknownServerError.Code
		return resp, nil, true
	})
	f.publish(ask("before", 0))
	f.publishRaw(0, recordtest.EncodedAt(ask("bad", 0), 0), recordtest.EncodedAt(ask("bad", 0), 3))
	f.publish(asksIn("behind", 5, 0)...)
	f.start(f.store, Config{})
	f.eventually("all is stored", func() bool { return f.sourceOf(0).Next == 8 })
	require.Equal(t, 6, f.tasks())
	require.EqualValues(t, 4, asked.Load())
}

// Offsets that Kafka does not have, and markers of transactions, are passed without a word.
func TestGapsOfHonestBatchesArePassed(t *testing.T) {
	f := newFixture(t)
	f.publish(asksIn("deleted", 3, 0)...)
	require.NoError(t, f.cluster.DeleteRecords(schemas.TopicIntake, 0, 3))
	writer, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("caller"))
	require.NoError(t, err)
	defer writer.Close()
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		require.NoError(t, writer.BeginTransaction())
		require.NoError(t, writer.ProduceSync(t.Context(), asksIn(fmt.Sprint("asked ", i), 2, 0)...).FirstErr())
		require.NoError(t, writer.EndTransaction(t.Context(), end))
	}
	f.publish(ask("behind", 0))
	f.start(f.store, Config{})
	f.eventually("all is stored", func() bool { return f.sourceOf(0).Next == 3+3*3+1 })
	require.Equal(t, 5, f.tasks())
	require.Zero(t, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// A gap may be larger than what can be looked into at once. What was looked into is not looked into
// again, so a large transaction that was given up holds nobody up for good.
func TestALargeGapIsLookedIntoInPieces(t *testing.T) {
	f := newFixture(t)
	f.publish(ask("before", 0))
	writer, err := kafka.New(f.kafka, zap.NewNop(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("caller"))
	require.NoError(t, err)
	defer writer.Close()
	require.NoError(t, writer.BeginTransaction())
	const batches = 6
	for range batches {
		large := ask("given up", 0)
		large.Value = make([]byte, 700_000)
		_, _ = rand.Read(large.Value) // so that each fills a fetch
		require.NoError(t, writer.ProduceSync(t.Context(), large).FirstErr())
	}
	require.NoError(t, writer.EndTransaction(t.Context(), kgo.TryAbort))
	f.publish(ask("behind", 0))
	var asked atomic.Int32
	f.cluster.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		req := r.(*kmsg.FetchRequest)
		if req.SessionEpoch != -1 || req.MaxBytes < 1<<20 || asked.Add(1)%2 == 1 { // a consumer's own, a look at one batch, or one that may succeed
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.Version, resp.ErrorCode = req.Version, kerr.UnknownServerError.Code
		return resp, nil, true
	})
	f.start(f.store, Config{})
	f.eventually("all is stored", func() bool { return f.tasks() == 2 && f.sourceOf(0).Next == 1+batches+2 })
	require.Less(t, asked.Load(), int32(4*batches))
}
