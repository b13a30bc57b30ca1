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
	// maxBatchBytes is how large a batch of records may be in memory: more than what the largest allowed records need, and
	// far below what a broker lets in, whose limit counts compressed bytes.
	maxBatchBytes = 64 << 20
	// maxHeldBytes is how much the decompressed batches of a client may take before it decompresses the next one.
	maxHeldBytes = 96 << 20
)

// What the library makes of a record and of a header besides their bytes. A record of seven bytes takes more than 200.
const (
	recordBytes = int(unsafe.Sizeof(kgo.Record{}) + unsafe.Sizeof((*kgo.Record)(nil)))
	headerBytes = int(unsafe.Sizeof(kgo.RecordHeader{})) + 16 // its name is a copy
)

// ErrHeld is a fetch's error while what was decompressed before takes too much memory. The client fetches the batch again.
var ErrHeld = errors.New("the batches that were fetched before are still in memory")

// bounded is a decompressor that bounds one batch and all that its client has decompressed and still holds.
//
// kgo cannot bound the second: it fetches compressed bytes, and a fetch of 1 MiB can hold a hundred batches of 60 MiB. When
// Decompress fails behind a batch of the same fetch, kgo hands over what came before and fetches the rest later.
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

// newBounded makes a decompressor.
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

// Decompress implements kgo.Decompressor. It returns kgo.ErrMaxDecompress for a batch that can never be read, because it is too
// large by itself or because it is damaged, and ErrHeld while there is no room.
//
// Kafka takes some batches that the library cannot decompress: it ignores what stands behind a gzip stream, for instance. The
// library knows only too large as what asking again does not change; with any other error it would ask for the batch for ever.
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

// room says whether the next batch may be decompressed. It first calls for the garbage collector, at most once in an interval:
// what is held may be garbage.
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

// decodedBytes returns what the records in decompressed bytes take once they are decoded, or more than max as soon as that is
// certain. Damaged bytes and records of old formats count as they are: the library judges them.
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

// headersOf returns how many headers a record has, as it says itself.
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
