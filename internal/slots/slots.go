// Package slots maps a task to its slot. A target topic, a record key and a task id go in; a slot
// number comes out.
//
// The mapping must never change: tasks stored years ago must be found in the slot named by this
// code. Neither the hash, nor the separators, nor the order of the hashed parts may change. The
// golden values in the test check this.
package slots

import (
	"github.com/cespare/xxhash/v2"
)

// Kafka topic names consist of [a-zA-Z0-9._-], so neither separator can occur in one. The strings
// hashed for (topic, key) and (topic, id) therefore never collide, whatever bytes the key and the
// id hold.
const (
	keySeparator = "\x00"
	idSeparator  = "\x01"
)

// Of returns the slot, in [0, n), of a task for topic.
//
// Tasks of one topic and key share a slot, in order of due time. A nil key has no order, so its
// tasks are spread by id. An empty key that is not nil is a normal key. An n below 1 counts as 1.
//
// Growing from n to m slots moves only (m-n)/m of the tasks, all of them to the new slots (jump
// consistent hash, Lamping and Veach 2014).
func Of(topic string, key []byte, id string, n int) int {
	return line(hash(topic, key, id), n)
}

func hash(topic string, key []byte, id string) uint64 {
	var d xxhash.Digest
	d.Reset()
	// A Digest's writes never fail.
	_, _ = d.WriteString(topic)
	if key != nil {
		_, _ = d.WriteString(keySeparator)
		_, _ = d.Write(key)
	} else {
		_, _ = d.WriteString(idSeparator)
		_, _ = d.WriteString(id)
	}
	return d.Sum64()
}

// Part returns the part, in [0, n), of a target. Like Of, it must never change: growing n moves
// only targets to the new parts.
func Part(target string, n int) int {
	return line(xxhash.Sum64String(target), n)
}
