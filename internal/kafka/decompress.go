package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// maxBatchBytes is how large a batch of records may be in memory: more than the largest allowed
	// records need, and far below a broker's limit, which counts compressed bytes.
	maxBatchBytes = 64 << 20
	// maxHeldBytes is how much the decompressed batches of a client may take before the client
	// decompresses the next one.
	maxHeldBytes = 96 << 20
)

// The library's overhead of a record and a header: a record of seven bytes takes more than 200.
const (
	recordBytes = int(unsafe.Sizeof(kgo.Record{}) + unsafe.Sizeof((*kgo.Record)(nil)))
	headerBytes = int(unsafe.Sizeof(kgo.RecordHeader{})) + 16 // its name is a copy
)

// ErrHeld: earlier decompressed batches take too much memory. The client fetches the batch again.
var ErrHeld = errors.New("the batches that were fetched before are still in memory")

// bounded is a decompressor that bounds one batch, and all decompressed batches that the client
// still holds.
//
// kgo cannot bound the second: it fetches compressed bytes, and a fetch of 1 MiB can hold a hundred
// batches of 60 MiB. When Decompress fails behind a batch of the same fetch, kgo hands over the
// batches before and fetches the rest later.
//
// A batch counts as held until the garbage collector frees it, so nobody has to give it back.
type bounded struct {
	usual    *decoder // tried first
	large    *decoder // for what does not fit into usual
	max      int
	budget   int64
	mu       sync.Mutex // one batch at a time: else each broker's fetch could pass the budget by a batch
	freed    time.Time  // when the garbage collector was last called for
	held     *atomic.Int64
	interval time.Duration // between two such calls
	tooLarge atomic.Int64  // how often a batch could not be read
}

func newBounded(max int, budget int64) (*bounded, error) {
	b := &bounded{max: max, budget: budget, held: new(atomic.Int64), interval: time.Second}
	var err error
	if b.usual, err = newDecoder(min(max, usualBytes)); err != nil {
		return nil, err
	}
	if b.large, err = newDecoder(max); err != nil {
		return nil, err
	}
	return b, nil
}

// Decompress implements kgo.Decompressor. kgo.ErrMaxDecompress means: a batch can never be read,
// because of its size or of damage. ErrHeld means: there is no room now.
//
// The library cannot decompress some batches that Kafka takes: Kafka ignores bytes behind a gzip
// stream, for instance. Only kgo.ErrMaxDecompress is final for the library; with any other error it
// would ask for the batch for ever.
func (b *bounded) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := b.decompress(src, codec)
	if errors.Is(err, kgo.ErrMaxDecompress) {
		b.tooLarge.Add(1)
	}
	return out, err
}

func (b *bounded) decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec == kgo.CodecNone {
		return src, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.room() {
		return nil, ErrHeld
	}
	out, err := b.usual.decompress(src, codec)
	if err != nil {
		out, err = b.large.decompress(src, codec)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	decoded := decodedBytes(out, b.max)
	if decoded > b.max {
		return nil, kgo.ErrMaxDecompress
	}
	if cap(out) >= 64 { // the allocator may share smaller ones, and a cleanup of those may never run
		size := int64(cap(out) - len(out) + decoded)
		b.held.Add(size)
		held := b.held // the cleanup must not hold on to more
		runtime.AddCleanup(unsafe.SliceData(out), func(size int64) { held.Add(-size) }, size)
	}
	return out, nil
}

// room says whether the next batch may be decompressed. Held batches may be garbage, so room first
// calls for the garbage collector, at most once in an interval.
func (b *bounded) room() bool {
	if b.held.Load() < b.budget {
		return true
	}
	if time.Since(b.freed) < b.interval {
		return false
	}
	runtime.GC()
	for range 20 { // cleanups run soon after the collection
		if b.held.Load() < b.budget {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	b.freed = time.Now()
	return false
}

// decodedBytes returns the size of the records in decompressed bytes once decoded, or more than max
// as soon as the excess is certain. Damaged bytes and records of old formats count as they are: the
// library judges them.
func decodedBytes(in []byte, max int) int {
	total := len(in)
	for len(in) > 0 && total <= max {
		length, n := binary.Varint(in)
		if n <= 0 || length <= 0 || int64(len(in)-n) < length {
			break
		}
		headers := headersOf(in[n : n+int(length)])
		total += recordBytes + min(headers, max/headerBytes+1)*headerBytes
		in = in[n+int(length):]
	}
	return total
}

// headersOf returns a record's own count of its headers.
func headersOf(record []byte) int {
	if len(record) == 0 {
		return 0
	}
	record = record[1:] // attributes
	for i := range 4 {  // timestamp, offset, key, value
		v, n := binary.Varint(record)
		if n <= 0 {
			return 0
		}
		record = record[n:]
		if i >= 2 && v > 0 {
			if v > int64(len(record)) {
				return 0
			}
			record = record[v:]
		}
	}
	count, n := binary.Varint(record)
	if n <= 0 || count < 0 || count > int64(len(record)) { // each takes bytes
		return 0
	}
	return int(count)
}
