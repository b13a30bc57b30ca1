package task

import (
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

// LaneOf returns the lane of a task.
func LaneOf(topic string, c Class) Lane { return Lane(xxhash.Sum64String(topic)&0x7fffff)<<8 | Lane(c) }

// Class returns the lane's class of service.
func (l Lane) Class() Class { return Class(l & 0xff) }

// Target tells lanes of different target topics apart.
func (l Lane) Target() uint32 { return uint32(l >> 8) }

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
