package task

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"github.com/notyet/notyet/schemas"
)

// Lane says which tasks take turns when more is due than can be sent at once: 23 bits of the target
// topic's hash, and the class of service. It is part of the (slot, pos) index, so a flood on one
// topic is seen without reading its bodies.
type Lane uint32

// Class orders the lanes of one target: fresh work goes before retried work.
type Class uint8

const (
	ClassHigh Class = iota
	ClassNormal
	ClassLow
	ClassRetried
	Classes = 4
)

// Class returns the lane's class of service.
func (l Lane) Class() Class { return Class(l & 0xff) }

// In returns the lane of the same target in another class.
func (l Lane) In(c Class) Lane { return lane(l.Target(), c) }

// Target tells lanes of different target topics apart.
func (l Lane) Target() uint32 { return uint32(l >> 8) }

func lane(target uint32, c Class) Lane { return Lane(target)<<8 | Lane(c) }

const targetBits = 0x7fffff

// MaxLane is the highest lane that a row may have.
const MaxLane = targetBits<<8 | 0xff

// LaneKey is an installation's key of the hash in its lanes. Without the key, nobody finds a topic
// in another one's lanes.
type LaneKey [16]byte

// Lane returns the lane of a new row.
func (k LaneKey) Lane(topic string, c Class) Lane { return lane(k.target(topic), c) }

// target is the hash under the key. Some names collide in xxhash under every key, and none are
// known for SHA-256. It may be cut without HMAC: a cut hash cannot be extended.
func (k LaneKey) target(topic string) uint32 {
	var room [len(k) + schemas.MaxTopicLen]byte
	sum := sha256.Sum256(append(append(room[:0], k[:]...), topic...))
	return binary.BigEndian.Uint32(sum[:]) & targetBits
}

// Targets returns all Lane.Target of a topic's rows: mostly two, since older lanes are Unkeyed.
func (k LaneKey) Targets(topic string) []uint32 {
	keyed, unkeyed := k.target(topic), Unkeyed(topic, 0).Target()
	if keyed == unkeyed {
		return []uint32{keyed}
	}
	return []uint32{keyed, unkeyed}
}

// Lanes returns all lanes of a topic's rows, each once. Rows of other topics may stand there too.
func (k LaneKey) Lanes(topic string) []Lane {
	out := make([]Lane, 0, 2*Classes)
	for _, target := range k.Targets(topic) {
		for c := range Class(Classes) {
			out = append(out, lane(target, c))
		}
	}
	return out
}

// Unkeyed returns the lane of a row from a program of before keys.
func Unkeyed(topic string, c Class) Lane {
	return lane(uint32(xxhash.Sum64String(topic)&targetBits), c)
}

// ClassOf returns the class of a fresh task.
func ClassOf(p schemas.Priority) Class {
	switch p {
	case schemas.PriorityHigh:
		return ClassHigh
	case schemas.PriorityLow:
		return ClassLow
	}
	return ClassNormal
}
