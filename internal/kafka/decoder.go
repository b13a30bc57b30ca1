package kafka

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"
	"weak"

	"github.com/twmb/franz-go/pkg/kgo"
)

// usualBytes is a size that a decompressed batch rarely exceeds.
const usualBytes = 4 << 20

// decoder decompresses batches of at most max bytes, into buffers of this size from the start, by
// implementing kgo.PoolDecompressBytes for the library's own decompressor.
//
// Otherwise the library reads a stream of unknown length (gzip, lz4, zstd as Java's producer writes
// it) into a growing buffer. Each growth leaves garbage: several times the batch, before anybody
// knows that the batch is too large. Snappy tells the length first, and needs no such buffer.
//
// A decoder is used by one goroutine at a time, and keeps one spare buffer. A sync.Pool would keep
// one for each processor, out of the others' reach.
type decoder struct {
	inner kgo.Decompressor
	size  int                // of a buffer
	spare weak.Pointer[byte] // to a buffer that nobody uses; the garbage collector may take the buffer
}

// newDecoder takes the library's bounded decompressor from a never connected client.
func newDecoder(max int) (*decoder, error) {
	d := &decoder{size: max + bytes.MinRead + 1} // the library looks for the end behind the bound
	client, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(max), kgo.WithPools(d))
	if err != nil {
		return nil, fmt.Errorf("making a decompressor: %w", err)
	}
	defer client.Close()
	inner, ok := client.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, errors.New("making a decompressor: the library has none")
	}
	d.inner = inner
	return d, nil
}

// decompress returns src decompressed, as the caller's own.
func (d *decoder) decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := d.inner.Decompress(src, codec)
	if err != nil { // the library has put the buffer back
		return nil, err
	}
	if codec == kgo.CodecSnappy || len(out) > d.size/2 { // a copy would take more than it saves
		return out, nil
	}
	own := bytes.Clone(out)
	d.PutDecompressBytes(out)
	return own, nil
}

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (d *decoder) GetDecompressBytes(_ []byte, codec kgo.CompressionCodecType) []byte {
	if codec == kgo.CodecSnappy {
		return nil
	}
	if first := d.spare.Value(); first != nil {
		d.spare = weak.Pointer[byte]{}
		return unsafe.Slice(first, d.size)[:0]
	}
	return make([]byte, 0, d.size)
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (d *decoder) PutDecompressBytes(b []byte) {
	if cap(b) >= d.size {
		d.spare = weak.Make(unsafe.SliceData(b))
	}
}
