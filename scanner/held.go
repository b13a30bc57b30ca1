package scanner

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// expect divides the room of each intake among its partitions.
func (p *pacer) expect() {
	if len(p.intakes) == 0 {
		return
	}
	left, mine := p.memory, p.parts.byTopic()
	for _, in := range p.intakes {
		left -= in.bytes
	}
	for topic, in := range p.intakes {
		in.room = (left + in.bytes) / 8
		in.each = in.room / max(len(mine[topic]), 1)
	}
}

// fit returns how many of a partition's polled records can be taken: the ones to pass at once, and
// the ones with room in the partition's part. One record may exceed the part, and an empty intake
// has room for one. But nothing takes room awaited by another partition. The rest is polled again.
func (p *pacer) fit(key partitionKey, records []*kgo.Record) int {
	in := p.intakes[key.topic]
	if in == nil {
		return len(records)
	}
	if p.behind[key].reading != nil { // it would leave a gap
		return 0
	}
	reading, awaited := p.parts.reading(key), false
	if reading == nil { // nothing of it is received
		return len(records)
	}
	for other, m := range p.behind {
		awaited = awaited || m.whole && other.topic == key.topic
	}
	n, kept := 0, 0
	if !in.holds(key) {
		pass := in.passing(reading.paid.Load(), records, false, time.Now())
		n = pass.n()
	}
	for ; n < len(records); n++ {
		first := kept == 0
		kept += weight(records[n])
		if (!first || in.bytes > 0) && in.bytes+kept > in.room || !first && kept > in.each || awaited {
			p.behind[key] = miss{reading, first && !in.holds(key)}
			break
		}
	}
	return n
}

// admit takes a stretch, returns the part to store now, and holds the rest.
func (p *pacer) admit(s stretch) (now []stretch) {
	in := p.intakes[s.key().topic]
	if in == nil {
		return []stretch{s}
	}
	rest := &s
	if last := in.last(s.key()); last == nil {
		now, rest = in.let(s, time.Now())
	} else {
		s.waited = last.waited
	}
	if rest != nil {
		in.hold(*rest)
	}
	return now
}

func (p *pacer) release() (out []stretch) {
	now := time.Now()
	for _, in := range p.intakes {
		held := in.held
		in.held = nil
		for _, s := range held {
			var pass []stretch
			rest := &s
			switch {
			case s.reading.ended.Load(): // it is read again, or is another scanner's
				in.bytes -= weigh([]stretch{s})
				s.reading.queued.Add(-1)
				continue
			case in.holds(s.key()):
			case p.parts.halted.has(s.key()): // what a halted partition has is stored before anybody decides how it goes on
				pass, rest = []stretch{s}, nil
			default:
				pass, rest = in.let(s, now)
			}
			out = append(out, pass...)
			in.bytes -= weigh(pass)
			if rest != nil {
				in.held = append(in.held, *rest)
			}
		}
		in.note()
	}
	p.goBack(now)
	return out
}

// held returns how many bytes all intakes hold, as of their last notes.
func (p *pacer) held() (n int) {
	for _, in := range p.intakes {
		n += int(in.noted.Load())
	}
	return n
}

// goBack polls misfits again, now and then: whole misfits only once their intake holds nothing.
func (p *pacer) goBack(now time.Time) {
	if now.Sub(p.wentBack) < backEvery {
		return
	}
	for key, m := range p.behind {
		if !m.whole || m.reading.ended.Load() || len(p.intakes[key.topic].held) == 0 {
			p.parts.pollAgain(key)
			delete(p.behind, key)
			p.wentBack = now
		}
	}
}

// pause adds the partitions to fetch nothing of. Other partitions may have cancels, which count at
// one quota alone, or records to reject. The caller holds the lock of partitions.
func (p *pacer) pause(partitions map[partitionKey]bool) {
	for key := range p.parts.sources {
		in := p.intakes[key.topic]
		if in != nil && (in.holds(key) || p.behind[key].reading != nil || len(in.held) > 0 && !in.quota.Reject && *in.at.Load() == quotaRequests) {
			partitions[key] = true
		}
	}
}

func (in *paced) holds(key partitionKey) bool { return in.last(key) != nil }

// last returns the last held stretch of a partition; nil: none is held.
func (in *paced) last(key partitionKey) *stretch {
	for i, s := range slices.Backward(in.held) {
		if s.key() == key {
			return &in.held[i]
		}
	}
	return nil
}

// hold keeps copies of the records: a record keeps everything of its fetch in memory.
func (in *paced) hold(s stretch) {
	s.records = slices.Clone(s.records)
	for i, r := range s.records {
		own := *r
		own.Key, own.Value, own.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
		for h := range own.Headers {
			own.Headers[h].Value = bytes.Clone(own.Headers[h].Value)
		}
		s.records[i] = &own
	}
	in.held = append(in.held, s)
	in.bytes += weigh([]stretch{s})
}

func (in *paced) note() {
	in.noted.Store(int64(in.bytes))
	if len(in.held) == 0 {
		in.oldest.Store(0)
		return
	}
	came := in.held[0].records[0].Timestamp
	if came.IsZero() || in.held[0].unreadable != nil {
		came = in.held[0].read
	}
	in.oldest.Store(came.UnixMilli())
}
