package scanner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
)

const (
	// checkEvery is the time between two comparisons of partitions with their logs. The same look
	// finds partitions that an operator has moved.
	checkEvery    = 5 * time.Second
	checkPatience = 10 * time.Second
)

// extents asks Kafka about the logs of sources.
func extents(ctx context.Context, client *kgo.Client, sources []intake.Source) (map[string]map[int32]kafka.Extent, error) {
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

// checker compares stored partitions with their logs, and halts those with another log.
type checker struct {
	prover
	lost   *kafka.LostConnections // of the group's client
	intake intake.Intake
	parts  *partitions
	retry  retrier

	metrics *metrics
	log     *zap.Logger
}

func warnForgotten(log *zap.Logger, key partitionKey, forgotten span) {
	log.Warn("the database is older than what was stored before: reading the intake again from where it stands",
		zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("offset", forgotten.from), zap.Int64("offsets_again", forgotten.to-forgotten.from))
}

// check compares the assigned partitions with their logs. It halts a partition whose log lost
// stored records. A halted partition that is intact, or was moved by an operator, is read on.
func (c *checker) check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*checkPatience)
	defer cancel()
	drained, before := c.parts.drained(), c.parts.standings() // before the database is asked, so that it has all of them
	known, err := c.intake.Sources(ctx)
	if err != nil {
		return // Ready reports that the database does not answer
	}
	inUse := intake.InUse(known)
	for key, forgotten := range c.parts.fallBack(before, inUse) {
		c.metrics.reread.Add(float64(forgotten.to - forgotten.from))
		warnForgotten(c.log, key, forgotten)
	}
	mine := slices.DeleteFunc(c.parts.adopt(inUse), func(src intake.Source) bool { return !c.remembered(src) })
	c.parts.readOnNew(drained)
	if len(mine) == 0 {
		return
	}
	logs, err := extents(ctx, c.client, mine)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("comparing the intake's logs with what is stored failed", zap.Error(err))
		}
		return
	}
	for _, src := range mine {
		log, there := logs[src.Topic][src.Partition]
		if !there || log.Err != nil {
			continue
		}
		key := partitionKey{src.Topic, src.Partition}
		result, why, err := c.compare(ctx, src, log)
		switch {
		case err != nil: // asked again before more is stored
		case result == diverged:
			c.halt(key, why)
		case drained[key] && c.parts.halted.mayGoOn(key, result):
			c.log.Info("an intake partition is intact after all, and is read on", zap.String("topic", src.Topic), zap.Int32("partition", src.Partition), zap.Int64("offset", src.Next))
			c.parts.readOn(key, src)
		}
	}
}

// checkBegun halts newly assigned partitions with another log than the stored one. Where Kafka does
// not answer, the partition begins: check asks again, and each record is compared.
func (c *checker) checkBegun(ctx context.Context, sources []intake.Source) {
	for _, src := range sources {
		c.remembered(src)
	}
	if len(sources) == 0 {
		return
	}
	logs, err := extents(ctx, c.client, sources)
	if err != nil {
		c.log.Warn("comparing the intake's logs with what is stored failed", zap.Error(err))
		return
	}
	for _, src := range sources {
		log, there := logs[src.Topic][src.Partition]
		if !there || log.Err != nil {
			continue
		}
		if result, same := judge(src, log); result == diverged {
			c.halt(partitionKey{src.Topic, src.Partition}, halt{source: src.ID, next: src.Next, same: same, end: log.End})
		}
		if lost := log.Start - src.Next; lost > 0 {
			logDeleted(c.log, partitionKey{src.Topic, src.Partition}, src.Next, log.Start)
		}
	}
}

func logDeleted(log *zap.Logger, key partitionKey, next, start int64) {
	log.Error("records of the intake were deleted before they were stored: its retention is too short, or somebody deleted them",
		zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", next), zap.Int64("log_start", start))
}

// remembered halts a partition of which the database has forgotten a restart: false.
func (c *checker) remembered(src intake.Source) bool {
	key := partitionKey{src.Topic, src.Partition}
	_, of := c.parts.source(key)
	if _, until := c.parts.until[key.topic][key.partition]; until || src.Generation >= of.N {
		return true
	}
	c.halt(key, forgot(src, of.N))
	return false
}

func (c *checker) halt(key partitionKey, why halt) {
	if !c.parts.halt(key, why) {
		return
	}
	if why.forgotten {
		c.log.Error("the database has forgotten that an intake partition was restarted, and is older: nothing more is read of it, run `notyet deadletter reconcile`, or `notyet intake restart` (docs/recovery.md)",
			zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", why.next), zap.String("reason", why.why))
		return
	}
	if why.unknown {
		c.log.Warn("an intake partition has another leader, and Kafka does not say whether its log is the one that was stored: nothing more is read of it until it does",
			zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", why.next), zap.String("reason", why.why))
		return
	}
	c.log.Error("an intake partition's log is not the one that was stored: nothing more is read of it, run `notyet intake status`, then `notyet intake restart`",
		zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Int64("next_offset", why.next), zap.Int64("same_up_to", why.same),
		zap.Int64("log_end", why.end), zap.String("reason", why.why))
}

// dataLost halts a partition after the client has reported lost records.
func (c *checker) dataLost(loss *kgo.ErrDataLoss) {
	c.halt(partitionKey{loss.Topic, loss.Partition}, halt{next: loss.ConsumedTo, same: -1, end: -1, why: loss.Error()})
}

// verify asks Kafka about the logs before records of a later leader epoch are stored: a log must
// still have the last record of the epoch before. Of a diverged log, records before the divergence
// are still stored, because Kafka no longer has them. Records behind the divergence are not.
// Without an answer about a partition, verify halts the partition until there is one, so the rest
// of the batch goes on. False: a partition was halted.
func (c *checker) verify(ctx context.Context, covered []coverage) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, checkPatience) // for all of them: they may be of one broker
	defer cancel()
	all := true
	for _, of := range covered {
		for _, ended := range of.ended {
			same, err := c.verifyEpoch(asking, of, ended)
			if ctx.Err() != nil {
				return false, err
			}
			if err != nil {
				c.halt(of.reading.key, halt{source: of.src.ID, next: ended.To, same: -1, end: -1, why: err.Error(), unknown: true})
				of.reading.endAt(0)
			}
			if err != nil || !same {
				all = false
				break
			}
		}
	}
	return all, nil
}

// verifyEpoch halts a partition whose log has lost the last stored record of an ended epoch.
func (c *checker) verifyEpoch(ctx context.Context, of coverage, ended intake.Epoch) (bool, error) {
	src := of.src
	src.Next, src.Epoch = ended.To, ended
	var logs map[string]map[int32]kafka.Extent
	err := c.retry.do(ctx, "asking about a leader epoch", func() (err error) {
		if logs, err = extents(ctx, c.client, []intake.Source{src}); err == nil {
			err = logs[src.Topic][src.Partition].Err
		}
		return err
	})
	if err != nil {
		return false, err
	}
	log, there := logs[src.Topic][src.Partition]
	if result, same := judge(src, log); there && result == diverged {
		c.halt(of.reading.key, halt{source: src.ID, next: ended.To, same: same, end: log.End})
		of.reading.endAt(ended.To)
		return false, nil
	}
	return true, nil
}

// mismatched halts a partition if err says that a record is not of the stored log.
func (c *checker) mismatched(err error) bool {
	bad, ok := errors.AsType[*mismatchError](err)
	if !ok {
		return false
	}
	c.halt(bad.reading.key, halt{source: bad.src.ID, next: bad.src.Next, same: -1, end: -1, why: err.Error(), proven: true})
	bad.reading.endAt(bad.at)
	return true
}
