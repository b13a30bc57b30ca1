package scanner

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
)

const (
	// checkEvery is how often a scanner compares what is stored of its partitions with their logs, and looks whether an operator
	// has moved one.
	checkEvery = 5 * time.Second
	// checkPatience bounds one comparison.
	checkPatience = 10 * time.Second
)

// extents asks Kafka about the logs of sources.
func extents(ctx context.Context, client *kgo.Client, sources []store.Source) (map[string]map[int32]kafka.Extent, error) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	epochs := map[string]map[int32]int32{}
	for _, src := range sources {
		if epochs[src.Topic] == nil {
			epochs[src.Topic] = map[int32]int32{}
		}
		epochs[src.Topic][src.Partition] = src.Epoch.Number
	}
	return kafka.Extents(ctx, client, epochs)
}

// check compares what is stored of the assigned partitions with their logs. A partition that lost what is stored is halted. One
// that was halted and turns out to be intact, or that an operator has moved, is read on from where the database stands.
func (s *Scanner) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*checkPatience)
	defer cancel()
	drained := s.parts.drained() // before the database is asked, so that it has all of them
	known, err := s.store.Sources(ctx)
	if err != nil {
		return // without the database the scanner is not ready, and says so
	}
	mine := s.parts.adopt(store.InUse(known))
	s.parts.readOnNew(drained)
	if len(mine) == 0 {
		return
	}
	logs, err := extents(ctx, s.producer, mine)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("comparing the intake's logs with what is stored failed", zap.Error(err))
		}
		return
	}
	for _, src := range mine {
		log, there := logs[src.Topic][src.Partition]
		if !there || log.Err != nil {
			continue
		}
		key := partitionKey{src.Topic, src.Partition}
		result, same := judge(src, log)
		switch {
		case result == diverged:
			s.halt(key, halt{source: src.ID, next: src.Next, same: same, end: log.End})
		case drained[key] && s.halted.mayGoOn(key, result):
			s.log.Info("an intake partition is intact after all, and is read on", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
			s.parts.readOn(key, src)
		}
	}
}

// halt has nothing more read of a partition, and says so.
func (s *Scanner) halt(key partitionKey, why halt) {
	if !s.parts.halt(key, why) {
		return
	}
	if why.unknown {
		s.log.Warn("an intake partition has another leader, and Kafka does not say whether its log is the one that was stored: nothing more is read of it until it does",
			zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", why.next), zap.String("reason", why.why))
		return
	}
	s.log.Error("an intake partition's log is not the one that was stored: nothing more is read of it, run `notyet intake status`, then `notyet intake restart`",
		zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", why.next), zap.Int64("same_up_to", why.same),
		zap.Int64("log_end", why.end), zap.String("reason", why.why))
}

// lost halts a partition of which the client says that its log lost records.
func (s *Scanner) lost(loss *kgo.ErrDataLoss) {
	s.halt(partitionKey{loss.Topic, loss.Partition}, halt{next: loss.ConsumedTo, same: -1, end: -1, why: loss.Error()})
}

// verify asks the logs before records of a later leader epoch are stored: they must still have the last record of the epoch
// before. What lies behind a divergence is not stored; what lies before it is, because Kafka has it no longer. A partition about
// which Kafka does not answer is halted until it does, so that the others in the batch go on. It answers false when one was halted.
func (w worker) verify(ctx context.Context, covered []coverage) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, checkPatience) // for all of them: they may be of one broker
	defer cancel()
	all := true
	for _, c := range covered {
		for _, ended := range c.ended {
			same, err := w.verifyEpoch(asking, c, ended)
			if ctx.Err() != nil {
				return false, err
			}
			if err != nil {
				w.s.halt(c.reading.key, halt{source: c.src.ID, next: ended.To, same: -1, end: -1, why: err.Error(), unknown: true})
				c.reading.endAt(0)
			}
			if err != nil || !same {
				all = false
				break
			}
		}
	}
	return all, nil
}

// verifyEpoch says whether the log of a partition still has the last stored record of an epoch that has ended, and halts the partition
// if not.
func (w worker) verifyEpoch(ctx context.Context, c coverage, ended store.Epoch) (bool, error) {
	src := c.src
	src.Next, src.Epoch = ended.To, ended
	var logs map[string]map[int32]kafka.Extent
	err := w.s.retry(ctx, "asking about a leader epoch", func() (err error) {
		if logs, err = extents(ctx, w.s.producer, []store.Source{src}); err == nil {
			err = logs[src.Topic][src.Partition].Err
		}
		return err
	})
	if err != nil {
		return false, err
	}
	log, there := logs[src.Topic][src.Partition]
	if result, same := judge(src, log); there && result == diverged {
		w.s.halt(c.reading.key, halt{source: src.ID, next: ended.To, same: same, end: log.End})
		c.reading.endAt(ended.To)
		return false, nil
	}
	return true, nil
}

// mismatched halts the partition of a batch that could not be made because a record is not of the log that was stored.
func (w worker) mismatched(err error) bool {
	bad, ok := errors.AsType[*mismatchError](err)
	if !ok {
		return false
	}
	w.s.halt(bad.reading.key, halt{source: bad.src.ID, next: bad.src.Next, same: -1, end: -1, why: err.Error(), proven: true})
	bad.reading.endAt(bad.at)
	return true
}
