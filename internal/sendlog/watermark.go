package sendlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
)

// watermark remembers the highest batch number that reached the disk. It is written after the batch
// and without a sync of its own. So it can be behind (after a power failure), with a weaker check,
// and never ahead: a log that ends before it has lost something.
type watermark struct {
	file  *os.File
	value uint64
}

// openWatermark reads the file, or starts from 0 when it is absent or torn.
func openWatermark(path string) (*watermark, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the watermark: %w", err)
	}
	w := &watermark{file: f}
	var buf [12]byte
	if n, _ := f.ReadAt(buf[:], 0); n == len(buf) && crc32.Checksum(buf[:8], castagnoli) == binary.LittleEndian.Uint32(buf[8:]) {
		w.value = binary.LittleEndian.Uint64(buf[:])
	}
	return w, nil
}

func (w *watermark) set(value uint64) error {
	var buf [12]byte
	binary.LittleEndian.PutUint64(buf[:], value)
	binary.LittleEndian.PutUint32(buf[8:], crc32.Checksum(buf[:8], castagnoli))
	w.value = value
	_, err := w.file.WriteAt(buf[:], 0)
	return err
}

func (w *watermark) close() error { return w.file.Close() }
