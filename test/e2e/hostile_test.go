package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/recordtest"
)

// The price of a hostile record: the goal of a request behind it, and the memory of a scanner. A busy machine may miss the
// first, so it is logged. The memory is that of the Helm chart, and so is Go's limit: without one the garbage collector
// lets garbage grow to the size of what is in use.
const (
	behindGoal    = 10 * time.Second
	behindBound   = 2 * time.Minute
	scannerMemory = 512 << 20
)

// limitMemory gives processes that are spawned from now on Go's limit as the chart gives it to a scanner.
func (c *cluster) limitMemory() {
	c.env = append(c.env, fmt.Sprintf("GOMEMLIMIT=%d", scannerMemory*9/10))
}

// TestHostileRecordsHoldUpNobody: records that Kafka takes, since they are small while compressed, each on the same partition and
// with a good request behind it. Each ends as a dead letter, each good request is delivered, and the scanner stays small.
func TestHostileRecordsHoldUpNobody(t *testing.T) {
	c := newCluster(t)
	target := c.name + ".target"
	c.topics(1, target)
	c.limitMemory()
	scanner := c.spawn("scanner", "scanner")
	c.spawn("dispatcher", "dispatcher")
	c.warm()
	t.Logf("before: the scanner has needed %d MB", scanner.peak()>>20)

	const partition = 3
	reader := c.reader([]string{target})
	zstd, gzip, snappy := kgo.ZstdCompression(), kgo.GzipCompression().WithLevel(gzip.BestSpeed), kgo.SnappyCompression()
	ask := func(id string, headers ...string) *kgo.Record {
		r := request(c.intake, target, append([]string{schemas.HeaderDelay, "1ms", schemas.HeaderID, id}, headers...)...)
		r.Partition = partition
		return r
	}
	for i, bad := range []struct {
		name   string
		codec  *kgo.CompressionCodec // nil: spoil has published it
		spoil  func(*kgo.Record)
		reason string
	}{
		{"a header of 20 MiB", &zstd, addHeader(20 << 20), "record headers have 20971"},
		{"a header of 20 MiB, gzip", &gzip, addHeader(20 << 20), "record headers have 20971"},
		{"a value of 20 MiB", &zstd, setValue(20 << 20), "record value has 20971520 bytes"},
		{"a value of 20 MiB, gzip", &gzip, setValue(20 << 20), "record value has 20971520 bytes"},
		{"a value of 10 MiB, snappy", &snappy, setValue(10 << 20), "record value has 10485760 bytes"},
		{"10,000 headers", &zstd, addHeaders(10_000), "record headers are 10003 in number"},
		{"a stream of 600 MiB", nil, c.streamZeros(kgo.CodecZstd, 600), "larger than 64 MiB"},
		{"a stream of 600 MiB, gzip", nil, c.streamZeros(kgo.CodecGzip, 600), "larger than 64 MiB"},
	} {
		r := ask(fmt.Sprintf("bad-%d", i))
		bad.spoil(r)
		if bad.codec != nil {
			c.publishCompressed(*bad.codec, r, partition)
		}
		r = ask(fmt.Sprintf("good-%d", i))
		began := time.Now()
		c.publishTo(r)
		c.read(reader, behindBound, func(r *kgo.Record) bool {
			require.NotContains(t, recordtest.Header(r, schemas.HeaderID), "bad")
			return recordtest.Header(r, schemas.HeaderID) == fmt.Sprintf("good-%d", i)
		})
		took := time.Since(began)
		missed := ""
		if took > behindGoal {
			missed = fmt.Sprintf(", beyond the goal of %v", behindGoal)
		}
		t.Logf("%s: the request behind it was delivered after %v%s; the scanner has needed %d MB", bad.name, took.Round(time.Millisecond), missed, scanner.peak()>>20)
		letters := c.lettersOf(letters.Filter{Kind: schemas.KindRejected, Limit: 100})
		require.Len(t, letters, i+1)
		require.Contains(t, letters[i].Reason, bad.reason)
		require.LessOrEqual(t, len(letters[i].Body), schemas.MaxRejectedBytes+4096)
	}
	require.Less(t, scanner.peak(), scannerMemory, "the memory of the scanner")
}

// TestMassesOfHostileRecordsFitIntoMemory: all partitions hold batches of almost 64 MiB, and some above, when a scanner begins.
func TestMassesOfHostileRecordsFitIntoMemory(t *testing.T) {
	c := oneDatabase(t, usualSlots) // each further database has buffers of its own
	target := c.name + ".target"
	c.topics(1, target)
	c.limitMemory()
	partitions := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	fast := kgo.GzipCompression().WithLevel(gzip.BestSpeed)
	batches := []struct {
		codec kgo.CompressionCodec
		size  int
	}{{kgo.ZstdCompression(), 60 << 20}, {fast, 63 << 20}, {fast, 80 << 20}, {kgo.Lz4Compression(), 62 << 20}, {kgo.ZstdCompression(), 80 << 20}}
	for i, b := range batches {
		r := request(c.intake, target, schemas.HeaderDelay, "1ms", schemas.HeaderID, fmt.Sprintf("bad-%d", i))
		r.Value = make([]byte, b.size)
		c.publishCompressed(b.codec, r, partitions...)
	}
	for _, partition := range partitions {
		r := request(c.intake, target, schemas.HeaderDelay, "1ms", schemas.HeaderID, fmt.Sprintf("good-%d", partition))
		r.Partition = partition
		c.publishTo(r)
	}
	scanner := c.spawn("scanner", "scanner")
	c.spawn("dispatcher", "dispatcher")
	began, seen := time.Now(), map[string]bool{}
	c.read(c.reader([]string{target}), 5*time.Minute, func(r *kgo.Record) bool {
		seen[recordtest.Header(r, schemas.HeaderID)] = true
		return len(seen) == len(partitions)
	})
	t.Logf("the requests behind %d such batches were delivered after %v; the scanner has needed %d MB", len(batches)*len(partitions), time.Since(began).Round(time.Millisecond), scanner.peak()>>20)
	letters := c.lettersOf(letters.Filter{Kind: schemas.KindRejected, Limit: 100})
	require.Len(t, letters, len(batches)*len(partitions))
	require.Less(t, scanner.peak(), scannerMemory, "the memory of the scanner")
}

func setValue(n int) func(*kgo.Record) { return func(r *kgo.Record) { r.Value = make([]byte, n) } }

func addHeader(n int) func(*kgo.Record) {
	return func(r *kgo.Record) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "zeros", Value: make([]byte, n)})
	}
}

func addHeaders(n int) func(*kgo.Record) {
	return func(r *kgo.Record) {
		for i := range n {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h" + strconv.Itoa(i), Value: []byte("v")})
		}
	}
}

// streamZeros publishes a record whose value is so many MiB as Java's producer does: the batch does not tell how large it becomes.
// Nothing of this size is ever in the test's memory.
func (s *stack) streamZeros(codec kgo.CompressionCodecType, mib int) func(*kgo.Record) {
	return func(r *kgo.Record) {
		var batch bytes.Buffer
		var w io.WriteCloser
		var err error
		if codec == kgo.CodecZstd {
			w, err = zstd.NewWriter(&batch)
		} else {
			w, err = gzip.NewWriterLevel(&batch, gzip.BestSpeed)
		}
		require.NoError(s.t, err)
		head, chunk, tail := recordtest.Head(r, 0, mib<<20), make([]byte, 1<<20), recordtest.Tail(r)
		parts := [][]byte{binary.AppendVarint(nil, int64(len(head)+mib<<20+len(tail))), head}
		parts = append(append(parts, slices.Repeat([][]byte{chunk}, mib)...), tail)
		for _, part := range parts {
			_, err = w.Write(part)
			require.NoError(s.t, err)
		}
		require.NoError(s.t, w.Close())
		s.publishBatch(r.Topic, codec, batch.Bytes(), r.Partition)
	}
}

// publishTo sends requests to the partitions that they name.
func (s *stack) publishTo(records ...*kgo.Record) {
	client, err := kafka.New(s.kafka, s.log, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, client.ProduceSync(s.t.Context(), records...).FirstErr())
}

// publishCompressed sends a record to partitions as a batch of its own, however large it is before it is compressed.
func (s *stack) publishCompressed(codec kgo.CompressionCodec, r *kgo.Record, partitions ...int32) {
	compressor, err := kgo.DefaultCompressor(codec)
	require.NoError(s.t, err)
	records, kind := compressor.Compress(new(bytes.Buffer), recordtest.EncodedAt(r, 0))
	s.publishBatch(r.Topic, kind, records, partitions...)
}

// publishBatch sends a batch of one record to partitions.
func (s *stack) publishBatch(topic string, codec kgo.CompressionCodecType, records []byte, partitions ...int32) {
	client, err := kafka.New(s.kafka, s.log)
	require.NoError(s.t, err)
	defer client.Close()
	for _, partition := range partitions {
		require.NoError(s.t, recordtest.ProduceBatch(s.t.Context(), client, topic, partition, codec, 1, records))
	}
}

// peak is the most memory that the process has needed so far, in bytes.
func (p *proc) peak() int {
	p.t.Helper()
	n, err := peakOf(p.cmd.Process.Pid)
	require.NoError(p.t, err)
	return n
}

func peakOf(pid int) (int, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(text, "kB")))
			return n << 10, err
		}
	}
	return 0, errors.New("the process has no VmHWM")
}
