package kafka

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func codecs() map[string]kgo.CompressionCodec {
	return map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "lz4": kgo.Lz4Compression(), "snappy": kgo.SnappyCompression(), "zstd": kgo.ZstdCompression()}
}

// A batch at the bound comes out whole, a batch beyond it does not, and neither takes much more memory than the bound.
func TestADecoderTakesNoMoreThanItsBuffer(t *testing.T) {
	const max = 8 << 20
	for name, codec := range codecs() {
		for _, size := range []int{0, 1, 1000, max / 2, max, max + 1, 4 * max} {
			d, err := newDecoder(max)
			require.NoError(t, err)
			plain := bytes.Repeat([]byte("seven77"), size/7+1)[:size]
			c, err := kgo.DefaultCompressor(codec)
			require.NoError(t, err)
			src, kind := c.Compress(new(bytes.Buffer), plain)
			src = bytes.Clone(src)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := d.decompress(src, kind)
			runtime.ReadMemStats(&after)
			if size > max {
				require.ErrorIs(t, err, kgo.ErrMaxDecompress, "%s %d", name, size)
			} else {
				require.NoError(t, err, "%s %d", name, size)
				require.True(t, bytes.Equal(plain, out), "%s %d", name, size)
			}
			// Its buffer (max), a copy of at most half of it, two blocks of 4 MiB that lz4 may need (max), and small change. The library's own
			// buffer takes 4.5 max for half of max.
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(max*3), "%s %d", name, size)
		}
	}
}

// A batch that says its length takes no more than that.
func TestSnappyTakesNoBuffer(t *testing.T) {
	d, err := newDecoder(8 << 20)
	require.NoError(t, err)
	c, err := kgo.DefaultCompressor(kgo.SnappyCompression())
	require.NoError(t, err)
	src, kind := c.Compress(new(bytes.Buffer), make([]byte, 1000))
	out, err := d.decompress(src, kind)
	require.NoError(t, err)
	require.Len(t, out, 1000)
	require.Less(t, cap(out), 2000)
	require.Nil(t, d.spare.Value())
}

// A buffer that was put back is the next one, on whichever processor, until the garbage collector takes the buffer.
func TestADecoderKeepsOneBuffer(t *testing.T) {
	d, err := newDecoder(1 << 20)
	require.NoError(t, err)
	get := func() []byte {
		got := make(chan []byte)
		go func() { got <- d.GetDecompressBytes(nil, kgo.CodecZstd) }()
		return <-got
	}
	first, second := get(), get()
	require.NotSame(t, unsafe.SliceData(first), unsafe.SliceData(second))
	d.PutDecompressBytes(first)
	d.PutDecompressBytes(second)
	third := get()
	require.Same(t, unsafe.SliceData(second), unsafe.SliceData(third))
	require.Empty(t, third)
	require.Equal(t, cap(second), cap(third))
	require.NotSame(t, unsafe.SliceData(third), unsafe.SliceData(get()), "in use")
	d.PutDecompressBytes(make([]byte, 10))
	require.GreaterOrEqual(t, cap(get()), 1<<20, "a buffer that the library has replaced by a smaller one")
	d.PutDecompressBytes(third)
	runtime.KeepAlive(first)
	first, second, third = nil, nil, nil
	runtime.GC()
	require.Nil(t, d.spare.Value())
}

// What was returned stays as it is when the buffer is used again.
func TestWhatADecoderReturnsIsTheCallers(t *testing.T) {
	d, err := newDecoder(1 << 20)
	require.NoError(t, err)
	var outs, wants [][]byte
	for i := range 20 {
		plain := bytes.Repeat([]byte{byte(i)}, 1<<(i+1))
		src, codec := compressed(t, plain)
		out, err := d.decompress(src, codec)
		require.NoError(t, err)
		outs, wants = append(outs, out), append(wants, plain)
	}
	require.Equal(t, wants, outs)
}
