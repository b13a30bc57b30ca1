package kafka

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// encoded is a record as a batch has it, with a value and as many empty headers.
func encoded(value []byte, headers int) []byte {
	body := []byte{0, 0, 0, 1} // attributes, time, offset, no key
	body = append(binary.AppendVarint(body, int64(len(value))), value...)
	body = binary.AppendVarint(body, int64(headers))
	for range headers {
		body = append(body, 0, 1)
	}
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func compressed(t *testing.T, plain []byte) ([]byte, kgo.CompressionCodecType) {
	c, err := kgo.DefaultCompressor(kgo.ZstdCompression())
	require.NoError(t, err)
	out, codec := c.Compress(new(bytes.Buffer), plain)
	return bytes.Clone(out), codec
}

// What the records of a batch take counts, and not only the bytes that they came in.
func TestABatchIsBoundedByWhatItsRecordsTake(t *testing.T) {
	const max = 1 << 20
	for name, c := range map[string]struct {
		batch []byte
		fits  bool
	}{
		"some records":              {bytes.Repeat(encoded(make([]byte, 100), 3), 1000), true},
		"large by itself":           {encoded(make([]byte, max+1), 0), false},
		"many tiny records":         {bytes.Repeat(encoded(nil, 0), 10_000), false},
		"many headers":              {encoded(nil, 50_000), false},
		"not records":               {bytes.Repeat([]byte{0}, 100_000), true},
		"a count that is a lie":     {append(encoded(nil, 0)[:5], 0xfe, 0xff, 0xff, 0xff, 0x0f), true},
		"a length beyond the batch": {binary.AppendVarint(nil, 1<<40), true},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newBounded(max, 1<<30)
			require.NoError(t, err)
			src, codec := compressed(t, c.batch)
			out, err := b.Decompress(src, codec)
			if !c.fits {
				require.ErrorIs(t, err, kgo.ErrMaxDecompress)
				require.Zero(t, b.held.Load())
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.batch, out)
		})
	}
}

// What cannot be decompressed today cannot be tomorrow.
func TestABatchThatIsDamagedIsNotAskedForAgain(t *testing.T) {
	b, err := newBounded(1<<20, 1<<30)
	require.NoError(t, err)
	gzip, err := kgo.DefaultCompressor(kgo.GzipCompression())
	require.NoError(t, err)
	good, codec := gzip.Compress(new(bytes.Buffer), encoded([]byte("good"), 0))
	for name, c := range map[string]struct {
		src   []byte
		codec kgo.CompressionCodecType
	}{
		"bytes behind the stream": {append(bytes.Clone(good), "more"...), codec},
		"cut":                     {good[:len(good)-3], codec},
		"another codec":           {good, kgo.CodecZstd},
		"a codec of tomorrow":     {good, 7},
	} {
		_, err := b.Decompress(c.src, c.codec)
		require.ErrorIs(t, err, kgo.ErrMaxDecompress, name)
	}
	require.EqualValues(t, 4, b.tooLarge.Load())
	require.Zero(t, b.held.Load())
	_, err = b.Decompress(good, codec)
	require.NoError(t, err)
}

// What is still in use leaves no room for more; what is no longer in use does.
func TestWhatIsHeldIsBoundedUntilItIsFreed(t *testing.T) {
	b, err := newBounded(1<<20, 2<<20)
	require.NoError(t, err)
	b.interval = 0
	src, codec := compressed(t, encoded(make([]byte, 1<<19), 0))
	var held [][]byte
	for {
		out, err := b.Decompress(src, codec)
		if err != nil {
			require.ErrorIs(t, err, ErrHeld)
			break
		}
		held = append(held, out)
		require.LessOrEqual(t, len(held), 4)
	}
	require.NotEmpty(t, held)
	runtime.KeepAlive(held)
	require.Eventually(t, func() bool { _, err := b.Decompress(src, codec); return err == nil }, time.Minute, time.Millisecond)
}
