package check

// judgeSent is I14: every record on a target topic was noted before it was sent, and what was noted as acknowledged is
// there. It is also the other half of I9: who notes an intent under an epoch that is over, does so because of a fault.
func (c *checker) judgeSent() {
	type intent struct {
		log     string
		seq     uint64
		attempt int
	}
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	type noted struct {
		ident
		attempt int
	}
	intents := make(map[intent]noted, len(c.h.Sent)/2)
	expected := make(map[noted]bool, len(c.h.Sent)/2)
	for i := range c.h.Sent {
		if s := &c.h.Sent[i]; !s.Outcome {
			n := noted{ident{s.Topic, s.ID}, s.Attempt}
			intents[intent{s.Log, s.Seq, s.Attempt}], expected[n] = n, true
		}
	}
	there := make(map[place]noted, len(c.h.Deliveries))
	for i := range c.h.Deliveries {
		d := &c.h.Deliveries[i]
		n := noted{ident{d.Topic, d.ID}, d.Attempt}
		there[place{d.Topic, d.Partition, d.Offset}] = n
		if !expected[n] {
			c.find("I14", d.Topic, d.ID, "attempt %d is at %s/%d/%d, and no send log has an intent", d.Attempt, d.Topic, d.Partition, d.Offset)
		}
	}
	for i := range c.h.Sent {
		s := &c.h.Sent[i]
		if !s.Outcome || !s.Acked {
			continue
		}
		n, ok := intents[intent{s.Log, s.Seq, s.Attempt}]
		if !ok {
			c.find("I14", "", "", "%s has an outcome of seq %d, attempt %d, and no intent", s.Log, s.Seq, s.Attempt)
			continue
		}
		if l := c.lives[n.ident]; l != nil && l.ops[0].Mortal {
			continue // its topic may be gone
		}
		if there[place{n.topic, s.Partition, s.Offset}] != n {
			c.find("I14", n.topic, n.id, "%s says that attempt %d was acknowledged at %d/%d, which holds something else", s.Log, s.Attempt, s.Partition, s.Offset)
		}
	}
	c.Figures.Intents = len(intents)
	c.judgeEpochs()
}

// judgeEpochs looks for intents under an epoch below one that was in use for the slot before.
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
