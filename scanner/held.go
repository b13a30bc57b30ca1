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

// fit returns how many of a partition's polled records can be taken: those that pass at once, and those for which there is room in the
// partition's part. One may have more than that part, and where the intake holds nothing there is always room for one. But nothing takes
// the room that is to become free for another partition. The rest is polled again.
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

// admit takes a stretch, and returns the part of it that may be stored now. It holds the rest.
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

// release returns what need not be held any longer.
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

// goBack has what did not fit polled again, now and then: where nothing of a partition did, once all that its intake holds has passed.
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

// pause adds the partitions of which nothing is to be fetched. Others may have cancels, which count at one
// quota alone, or records to reject. The caller holds the lock of partitions.
func (p *pacer) pause(partitions map[partitionKey]bool) {
	for key := range p.parts.sources {
		in := p.intakes[key.topic]
		if in != nil && (in.holds(key) || p.behind[key].reading != nil || len(in.held) > 0 && !in.quota.Reject && *in.at.Load() == quotaRequests) {
			partitions[key] = true
		}
	}
}

func (in *paced) holds(key partitionKey) bool { return in.last(key) != nil }

// last returns the last stretch of a partition that is held. nil: none is.
func (in *paced) last(key partitionKey) *stretch {
	for i, s := range slices.Backward(in.held) {
		if s.key() == key {
			return &in.held[i]
		}
	}
	return nil
}

// hold keeps copies of the records: a record keeps all in memory that was fetched with it.
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

// note notes for how long requests wait.
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
