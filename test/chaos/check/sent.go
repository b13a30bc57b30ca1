package check

import "github.com/notyet/notyet/test/chaos/history"

// judgeSent checks I14: every record on a target topic was noted before it was sent, and what was
// noted as acknowledged is there. It also checks the other half of I9: only a fault explains an
// intent under an epoch that has ended.
func (c *checker) judgeSent() {
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	type noted struct {
		ident
		attempt int
	}
	there := make(map[place]noted, len(c.h.Deliveries))
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		there[place{d.Topic, d.Partition, d.Offset}] = noted{ident{d.Topic, d.ID}, d.Attempt}
	}
	expected := make(map[noted]bool, len(c.h.Sent)/2)
	c.eachOutcome(func(intent, outcome *history.Sent) {
		n := noted{ident{intent.Topic, intent.ID}, intent.Attempt}
		expected[n] = true
		if l := c.lives[n.ident]; outcome == nil || !outcome.Acked || l != nil && l.ops[0].MayDie { // its topic may be gone
			return
		}
		if there[place{n.topic, outcome.Partition, outcome.Offset}] != n {
			c.find("I14", n.topic, n.id, "%s says that attempt %d was acknowledged at %d/%d, which holds something else", intent.Log, n.attempt, outcome.Partition, outcome.Offset)
		}
	})
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		if !expected[noted{ident{d.Topic, d.ID}, d.Attempt}] {
			c.find("I14", d.Topic, d.ID, "attempt %d is at %s/%d/%d, and no send log has an intent", d.Attempt, d.Topic, d.Partition, d.Offset)
		}
	}
	c.judgeEpochs()
}

// eachOutcome calls f with each intent, and again with each of its outcomes. An outcome belongs to
// the newest intent before it.
func (c *checker) eachOutcome(f func(intent, outcome *history.Sent)) {
	type key struct {
		log     string
		seq     int64
		attempt int
	}
	newest := make(map[key]*history.Sent, len(c.h.Sent)/2)
	for i := range c.h.Sent {
		s := &c.h.Sent[i]
		k := key{s.Log, s.Seq, s.Attempt}
		switch intent := newest[k]; {
		case !s.Outcome:
			newest[k] = s
			c.Figures.Intents++
			f(s, nil)
		case intent == nil:
			c.find("I14", "", "", "%s has an outcome of seq %d, attempt %d, and no intent", s.Log, s.Seq, s.Attempt)
		default:
			f(intent, s)
		}
	}
}

// judgeEpochs looks for intents under an epoch below one that was used for the slot earlier.
func (c *checker) judgeEpochs() {
	type use struct {
		epoch, at int64 // when it was first used
	}
	top := map[int][]use{} // by slot: rising epochs
	for i := range c.h.Sent {
		s := &c.h.Sent[i]
		if s.Outcome {
			continue
		}
		uses := top[s.Slot]
		if n := len(uses); n == 0 || s.Epoch > uses[n-1].epoch {
			top[s.Slot] = append(uses, use{s.Epoch, s.At})
		} else if s.Epoch < uses[n-1].epoch && s.At > uses[n-1].at {
			c.Figures.Stragglers++
			if c.cause(s.At, s.At) == nil {
				c.find("I9", s.Topic, s.ID, "slot %d: %s noted an intent at %d under epoch %d, after %d was in use", s.Slot, s.Log, s.At, s.Epoch, uses[n-1].epoch)
			}
		}
	}
}
