package task

import (
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Ident returns the identity of a task, (topic, id), in 16 bytes: short enough for a unique index,
// and too long to collide. Ids that end in a slash and a number, as default ids do, are ordered by
// that number. Tasks that arrive together are therefore written to few pages of the index; hashes
// alone would scatter them over all of it.
func Ident(topic, id string) [16]byte {
	b := make([]byte, 0, 512)
	b = append(b, topic...)
	b = append(b, 0) // never part of a topic name
	b = append(b, id...)
	sum := sha256.Sum256(b)
	ident := [16]byte(sum[:16])
	if i := strings.LastIndexByte(id, '/'); i >= 0 {
		if n, err := strconv.ParseUint(id[i+1:], 10, 64); err == nil {
			ident[0] = byte(xxhash.Sum64String(id[:i]))
			binary.BigEndian.PutUint32(ident[1:], uint32(n))
		}
	}
	return ident
}
