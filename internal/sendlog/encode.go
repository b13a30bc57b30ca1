package sendlog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A value is
//
//	crc32c u32 | number u64 | at i64 | kind u8 | count uvarint | count entries
//
// with fixed-width integers little-endian and the checksum over everything behind. Numbers in
// entries are varints (zigzag where negative ones are possible). A string is its length plus 1,
// then the bytes; a length of 0 repeats the string of the entry before, as for most topics.
const (
	headerSize = 4 + 8 + 8

	kindIntents  = 1
	kindOutcomes = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type header struct {
	crc    uint32
	number uint64
	at     int64
}

func decodeHeader(v []byte) (header, bool) {
	if len(v) < headerSize {
		return header{}, false
	}
	return header{
		crc:    binary.LittleEndian.Uint32(v),
		number: binary.LittleEndian.Uint64(v[4:]),
		at:     int64(binary.LittleEndian.Uint64(v[12:])),
	}, true
}

func fillHeader(v []byte, number uint64, at int64) {
	binary.LittleEndian.PutUint64(v[4:], number)
	binary.LittleEndian.PutUint64(v[12:], uint64(at))
	binary.LittleEndian.PutUint32(v, crc32.Checksum(v[4:], castagnoli))
}

func appendIntents(b []byte, intents []Intent) []byte {
	b = append(b, kindIntents)
	b = binary.AppendUvarint(b, uint64(len(intents)))
	topic := ""
	for i := range intents {
		e := &intents[i]
		b = binary.AppendUvarint(b, uint64(e.Seq))
		b = binary.AppendVarint(b, int64(e.Attempt))
		b = binary.AppendVarint(b, int64(e.Slot))
		b = binary.AppendVarint(b, e.Epoch)
		b = binary.AppendVarint(b, e.Due)
		b = appendString(b, e.Topic, topic)
		b = appendString(b, e.ID, "")
		b = binary.LittleEndian.AppendUint64(b, e.BodyHash)
		topic = e.Topic
	}
	return b
}

func appendOutcomes(b []byte, outcomes []Outcome) []byte {
	b = append(b, kindOutcomes)
	b = binary.AppendUvarint(b, uint64(len(outcomes)))
	reason := ""
	for i := range outcomes {
		e := &outcomes[i]
		b = binary.AppendUvarint(b, uint64(e.Seq))
		b = binary.AppendVarint(b, int64(e.Attempt))
		b = append(b, verdict(e))
		b = binary.AppendVarint(b, int64(e.Partition))
		b = binary.AppendVarint(b, e.Offset)
		b = binary.AppendVarint(b, e.At)
		b = appendString(b, e.Error, reason)
		reason = e.Error
	}
	return b
}

func appendString(b []byte, s, before string) []byte {
	if s == before {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(s))+1)
	return append(b, s...)
}

// Verdicts of an outcome.
const (
	unanswered = 0
	acked      = 1
	refused    = 2
)

func verdict(o *Outcome) byte {
	switch {
	case o.Acked:
		return acked
	case o.Refused:
		return refused
	}
	return unanswered
}

var errMalformed = errors.New("malformed batch")

// decode checks a value against its number and calls f for each entry.
func decode(number uint64, v []byte, f func(Entry) error) error {
	h, ok := decodeHeader(v)
	if !ok || h.number != number || h.crc != crc32.Checksum(v[4:], castagnoli) {
		return errMalformed
	}
	r := reader{b: v[headerSize:]}
	kind, count := r.byte(), r.uvarint()
	if kind != kindIntents && kind != kindOutcomes {
		return errMalformed
	}
	var intent Intent
	var outcome Outcome
	for range count {
		e := Entry{At: h.at}
		if kind == kindIntents {
			intent = r.intent(intent.Topic)
			e.Intent = &intent
		} else {
			outcome = r.outcome(outcome.Error)
			e.Outcome = &outcome
		}
		if r.bad {
			return errMalformed
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

// reader takes values off b; after the first unfitting one, bad is set and all are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) intent(topicBefore string) Intent {
	return Intent{
		Seq: int64(r.uvarint()), Attempt: int32(r.varint()), Slot: int32(r.varint()),
		Epoch: r.varint(), Due: r.varint(),
		Topic: r.string(topicBefore), ID: r.string(""), BodyHash: r.uint64(),
	}
}

func (r *reader) outcome(errorBefore string) Outcome {
	o := Outcome{Seq: int64(r.uvarint()), Attempt: int32(r.varint())}
	verdict := r.byte()
	o.Acked, o.Refused = verdict == acked, verdict == refused
	o.Partition, o.Offset, o.At = int32(r.varint()), r.varint(), r.varint()
	o.Error = r.string(errorBefore)
	return o
}

func (r *reader) fail() { r.b, r.bad = nil, true }

func (r *reader) byte() byte {
	if len(r.b) < 1 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint64() uint64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) uvarint() uint64 { return number(r, binary.Uvarint) }

func (r *reader) varint() int64 { return number(r, binary.Varint) }

func number[N int64 | uint64](r *reader, decode func([]byte) (N, int)) N {
	v, n := decode(r.b)
	if n <= 0 { // v is 0
		r.fail()
		return v
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) string(before string) string {
	n := r.uvarint()
	if n == 0 {
		return before
	}
	if n--; n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
