package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/recordtest"
)

// What a hostile record may cost: the goal of a request behind it, and the memory of a scanner. A busy machine may miss the
// first, so it is logged; memory is the same on every machine.
const (
	behindGoal    = 10 * time.Second
	behindBound   = 2 * time.Minute
	scannerMemory = 500 << 20
)

// TestHostileRecordsHoldUpNobody: records that Kafka takes, since they are small while compressed, each on the same partition and
// with a good request behind it. Each ends as a dead letter, each good request is delivered, and the scanner stays small.
func TestHostileRecordsHoldUpNobody(t *testing.T) {
	c := newCluster(t)
	target := c.name + ".target"
	c.topics(1, target)
	scanner := c.spawn("scanner", "scanner")
	c.spawn("dispatcher", "dispatcher")
	c.warm()
	t.Logf("before: the scanner has needed %d MB", scanner.peak()>>20)

	const partition = 3
	reader := c.reader([]string{target})
	zstd, gzip, snappy := kgo.ZstdCompression(), kgo.GzipCompression(), kgo.SnappyCompression()
	ask := func(id string, headers ...string) *kgo.Record {
		r := request(c.intake, target, append([]string{schemas.HeaderDelay, "1ms", schemas.HeaderID, id}, headers...)...)
		r.Partition = partition
		return r
	}
	for i, bad := range []struct {
		name   string
		codec  kgo.CompressionCodec
		spoil  func(*kgo.Record)
		reason string
	}{
		{"a header of 20 MiB", zstd, addHeader(20 << 20), "record headers have 20971"},
		{"a header of 20 MiB, gzip", gzip, addHeader(20 << 20), "record headers have 20971"},
		{"a value of 20 MiB", zstd, setValue(20 << 20), "record value has 20971520 bytes"},
		{"a value of 20 MiB, gzip", gzip, setValue(20 << 20), "record value has 20971520 bytes"},
		{"a value of 10 MiB, snappy", snappy, setValue(10 << 20), "record value has 10485760 bytes"},
		{"a value of 600 MiB", zstd, setValue(600 << 20), "larger than 64 MiB"},
		{"a value of 600 MiB, gzip", gzip, setValue(600 << 20), "larger than 64 MiB"},
		{"10,000 headers", zstd, addHeaders(10_000), "record headers are 10003 in number"},
	} {
		id := fmt.Sprintf("bad-%d", i)
		r := ask(id)
		bad.spoil(r)
		c.publishCompressed(bad.codec, r)
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
		letters, err := lettertest.All(t.Context(), letters.New(c.store), letters.Filter{Kind: schemas.KindRejected, Limit: 100})
		require.NoError(t, err)
		require.Len(t, letters, i+1)
		require.Contains(t, letters[i].Reason, bad.reason)
		require.LessOrEqual(t, len(letters[i].Body), schemas.MaxRejectedBytes+4096)
	}
	require.Less(t, scanner.peak(), scannerMemory, "the memory of the scanner")
}

// TestMassesOfHostileRecordsFitIntoMemory: all partitions hold batches of almost 64 MiB, and some above, when a scanner begins.
func TestMassesOfHostileRecordsFitIntoMemory(t *testing.T) {
	c := newCluster(t)
	target := c.name + ".target"
	c.topics(1, target)
	const partitions = 8
	batches := []struct {
		codec kgo.CompressionCodec
		size  int
	}{{kgo.ZstdCompression(), 60 << 20}, {kgo.GzipCompression(), 63 << 20}, {kgo.GzipCompression(), 80 << 20}, {kgo.Lz4Compression(), 62 << 20}, {kgo.ZstdCompression(), 80 << 20}}
	for i := range len(batches) * partitions {
		b := batches[i/partitions]
		r := request(c.intake, target, schemas.HeaderDelay, "1ms", schemas.HeaderID, fmt.Sprintf("bad-%d", i))
		r.Partition, r.Value = int32(i%partitions), make([]byte, b.size)
		c.publishCompressed(b.codec, r)
	}
	for partition := range int32(partitions) {
		r := request(c.intake, target, schemas.HeaderDelay, "1ms", schemas.HeaderID, fmt.Sprintf("good-%d", partition))
		r.Partition = partition
		c.publishTo(r)
	}
	scanner := c.spawn("scanner", "scanner")
	c.spawn("dispatcher", "dispatcher")
	began, seen := time.Now(), map[string]bool{}
	c.read(c.reader([]string{target}), 5*time.Minute, func(r *kgo.Record) bool {
		seen[recordtest.Header(r, schemas.HeaderID)] = true
		return len(seen) == partitions
	})
	t.Logf("the requests behind %d such batches were delivered after %v; the scanner has needed %d MB", len(batches)*partitions, time.Since(began).Round(time.Millisecond), scanner.peak()>>20)
	letters, err := lettertest.All(t.Context(), letters.New(c.store), letters.Filter{Kind: schemas.KindRejected, Limit: 100})
	require.NoError(t, err)
	require.Len(t, letters, len(batches)*partitions)
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

// publishTo sends requests to the partitions that they name.
func (s *stack) publishTo(records ...*kgo.Record) {
	s.publishWith(records)
}

// publishCompressed sends each record as a batch of its own, however large it is before it is compressed.
func (s *stack) publishCompressed(codec kgo.CompressionCodec, records ...*kgo.Record) {
	s.publishWith(records, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(1<<30), kgo.BrokerMaxWriteBytes(1<<30))
}

func (s *stack) publishWith(records []*kgo.Record, opts ...kgo.Opt) {
	client, err := kafka.New(s.kafka, s.log, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	require.NoError(s.t, err)
	defer client.Close()
	require.NoError(s.t, client.ProduceSync(s.t.Context(), records...).FirstErr())
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
