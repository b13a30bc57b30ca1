package scanner

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/shards"
	"github.com/notyet/notyet/task"
)

// worker stores the queue's records, batch after batch. Several goroutines run it at the same time.
// Stretches taken from the queue belong to one goroutine.
type worker struct {
	batch     int    // the most records of a transaction
	group     string // of consumers
	queue     *queue
	parts     *partitions
	kept      func(context.Context) (map[intake.Place]intake.Extent, error) // what Kafka has of the partitions that are read
	undecided func(context.Context, func(seq int64, many task.Cancels) bool) error
	noWord    rest // of what is cancelled: see lookAhead
	decoder   *decoder
	sharer    *sharer
	pacer     *pacer
	targets   *targets
	checker   *checker
	intake    intake.Intake // knows the sources
	applier   applier       // stores batches: the intake, too
	clock     *store.Clock
	retry     retrier
	standing  *standing
	commits   *commits
	announcer announcer
	tracer    *tracing.Tracer
	metrics   *metrics
	log       *zap.Logger
}

// applier stores batches: intake.Intake.
type applier interface {
	Apply(ctx context.Context, b intake.Batch, now func() int64) (intake.Applied, error)
}

// run stores batches until the queue is closed and empty. After ctx has ended, run gives up the
// rest.
func (w *worker) run(ctx context.Context) {
	for {
		stretches := w.queue.take(w.batch)
		if len(stretches) == 0 {
			return
		}
		if left, err := w.storeStretches(ctx, slices.Clone(stretches)); err != nil {
			for _, r := range left {
				w.parts.fail(r)
			}
			w.log.Warn("requests were not stored, and are read again", zap.Int("runs", len(left)), zap.Error(err))
			loop.Rest(ctx, time.Second) // an error that persists must not make this loop spin
		}
		w.queue.done(stretches)
		for _, r := range stretches {
			r.reading.queued.Add(-1)
		}
	}
}

// storeStretches stores stretches, in transactions of at most w.batch records and transactionBytes.
// After an error it returns the stretches that may not be stored completely.
//
// A batch refused because of a record is halved until the record is alone: then a dead letter.
func (w *worker) storeStretches(ctx context.Context, stretches []stretch) ([]stretch, error) {
	most, refused := w.batch, refusedRecords{}
	alone := stretches[0].key().topic == w.queue.alone
	if alone {
		most = 1
	}
	var kept map[intake.Place]intake.Extent
	held := map[partitionKey]bool{} // partitions whose next records wait for tasks of another database
	for limit := most; ; {
		stretches = storable(stretches)
		if len(stretches) == 0 {
			return nil, nil
		}
		batch, covered, rest, err := w.assemble(ctx, stretches, limit, refused, held)
		if w.checker.mismatched(err) {
			continue // the next round leaves out what is not of that log
		}
		if errors.Is(err, errUndecided) {
			clear(held)
			if err = w.sharer.wait(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return stretches, err
		}
		if len(covered) == 0 {
			stretches = rest // all of this batch is stored already, but maybe not the rest
			continue
		}
		if w.holdUp(ctx, batch, covered, held) {
			continue
		}
		if !w.checker.proved(ctx, covered) {
			continue
		}
		if same, err := w.checker.verify(ctx, covered); err != nil {
			return stretches, err
		} else if !same {
			continue
		}
		began := time.Now()
		batch.Kept, batch.Unknown = kept, w.targets.unknown(ctx, batch.Changes, covered)
		err = w.apply(ctx, batch, covered)
		switch {
		case errors.Is(err, intake.ErrLater) && kept == nil:
			if kept, err = w.kept(ctx); err != nil {
				return stretches, err
			}
			continue
		case errors.Is(err, shards.ErrMap):
			w.sharer.forget()
			continue
		case errors.Is(err, store.ErrFenced):
			w.pacer.perhapsStored(covered, batch)
			if err := w.catchUp(ctx, covered); err != nil {
				return stretches, err
			}
			continue // the next round leaves out what turned out to be stored
		case intake.BadRecord(err):
			smaller, ok := refused.isolate(batch.Changes, limit, err)
			if !ok {
				return stretches, err
			}
			if limit = smaller; len(batch.Changes) == 1 {
				w.log.Warn("the database refuses a record, which becomes a dead letter", zap.String("topic", covered[0].reading.key.topic),
					zap.Int32("partition", covered[0].reading.key.partition), zap.Error(err))
			}
			continue
		case err != nil:
			return stretches, err
		}
		covered[0].reading.ahead.decided(batch.Changes)
		w.trace(stretches, batch, covered)
		stretches, limit = rest, min(2*limit, most)
		if alone {
			loop.Rest(ctx, restBehind(batch.Changes, time.Since(began)))
		}
	}
}

// holdUp notes the partitions of a batch whose records cannot be decided yet, and tells whether
// there are some. The next round leaves them out.
func (w *worker) holdUp(ctx context.Context, batch intake.Batch, covered []coverage, held map[partitionKey]bool) bool {
	rules, err := w.sharer.rules(ctx)
	if err != nil || rules == nil || rules.Version != batch.Map {
		return false // the database refuses the batch
	}
	wait := w.sharer.pull(ctx, rules, batch.Changes)
	for _, c := range covered {
		if wait[c.src.ID] || len(wait) > 0 && c.src.Next == c.first { // cancels of many that come before their turn
			held[c.reading.key] = true
		}
	}
	return len(wait) > 0
}

const (
	cancelsRest = 4                     // part of a transaction's time
	cancelTakes = 85 * time.Microsecond // at least: a million takes 85 s
)

// restBehind is for how long a worker rests behind cancels of many: tasks due meanwhile need the
// processors. A rest is no shorter than a part of the cancels' time, and cancels take their time
// even where the database is quick.
func restBehind(changes []task.Change, took time.Duration) time.Duration {
	rest := took / cancelsRest
	for _, c := range changes {
		if c.Cancels != nil {
			rest = max(rest, time.Duration(len(c.Cancels.Tasks))*cancelTakes-took)
		}
	}
	return rest
}

func (w *worker) apply(ctx context.Context, batch intake.Batch, covered []coverage) error {
	began := time.Now()
	w.standing.begin(covered)
	defer w.standing.end(covered)
	var done intake.Applied
	err := w.retry.do(ctx, "storing requests", func() (err error) {
		defer func() { w.standing.failed(covered, err) }()
		if err := faultpoint.At(faultpoint.ScannerPolled); err != nil {
			return err
		}
		if done, err = w.applier.Apply(ctx, batch, w.clock.Latest); err != nil {
			return err
		}
		return faultpoint.At(faultpoint.ScannerStored)
	})
	if err != nil {
		return err
	}
	w.pacer.stored(covered, done.Opened)
	for _, c := range covered {
		w.parts.stored(c.reading.key, c.src)
		c.reading.decide(c.src.Next)
		w.commits.note(c.reading.key, c.src)
	}
	w.metrics.batch(batch, time.Since(began))
	w.announcer.announce(done)
	return nil
}

// transactionBytes limits a transaction too. A worker's statements hold a second copy of records.
const transactionBytes = 8 << 20

// assemble makes the next batch of the stretches, without stored records. It returns the remaining
// stretches, with those of held partitions. A batch cannot leave out an unstored record: see
// coverage.
func (w *worker) assemble(ctx context.Context, stretches []stretch, limit int, refused refusedRecords, held map[partitionKey]bool) (b intake.Batch, covered []coverage, rest []stretch, err error) {
	rules, err := w.sharer.rules(ctx)
	if err != nil {
		return b, nil, nil, err
	}
	if rules != nil {
		b.Map = rules.Version
	}
	undecided := maps.Clone(held)
	at := map[partitionKey]int{}
	bytes := transactionBytes
	b.Epochs, b.Proofs = map[int]intake.Epoch{}, map[int]intake.Proof{}
	for i, r := range stretches {
		room := limit - len(b.Changes)
		if room <= 0 || bytes <= 0 {
			rest = append(rest, stretches[i:]...)
			break
		}
		if undecided[r.key()] {
			rest = append(rest, r)
			continue
		}
		n, seen := at[r.key()]
		if !seen {
			var src intake.Source
			var ok bool
			err := w.retry.do(ctx, "reading the source", func() (err error) { src, ok, err = w.source(ctx, r.reading); return err })
			if err != nil {
				return b, nil, nil, err
			}
			if !ok {
				continue
			}
			n, at[r.key()] = len(covered), len(covered)
			covered = append(covered, coverage{reading: r.reading, src: src, first: src.Next, stored: src})
		}
		w.lookAhead(ctx, r.reading, covered[n].src)
		due, before := r.reading.ahead.before(r, covered[n].src.Next)
		if due != nil {
			if rest = append(rest, stretches[i:]...); len(b.Changes)+len(b.Gaps) > 0 {
				break
			}
			src := covered[n].src
			b.Advance, b.Changes = []intake.Advance{{Source: src.ID, From: src.Next, To: src.Next}}, []task.Change{*due}
			return b, covered[n:], rest, nil
		}
		fits, weighs := r.fit(room, bytes)
		share := w.sharer.of(rules, covered[n].src)
		known := share.before(r, covered[n].src.Next)
		if known < len(r.records) {
			undecided[r.key()] = true
		}
		if known == 0 {
			rest = append(rest, r)
			continue
		}
		fits = min(fits, before, known)
		bytes -= weighs
		cut := fits < len(r.records)
		if cut {
			var tail stretch
			r, tail = r.split(fits)
			rest = append(rest, tail)
		}
		if err := covered[n].extend(&b, r, share.decode(w.decoder.cancels, refused.decode(w.decoder, r))); err != nil {
			return b, nil, nil, err
		}
		if cut && !undecided[r.key()] { // nothing behind it may be stored before its rest
			rest = append(rest, stretches[i+1:]...)
			break
		}
	}
	moved := covered[:0]
	for _, c := range covered {
		if c.src.Next > c.first {
			if c.last != nil {
				c.src.Proof = proofOf(c.last)
				b.Proofs[c.src.ID] = c.src.Proof
			}
			moved = append(moved, c)
			b.Advance = append(b.Advance, intake.Advance{Source: c.src.ID, From: c.first, To: c.src.Next})
			if c.src.Epoch.Number >= 0 {
				b.Epochs[c.src.ID] = c.src.Epoch
			}
		}
	}
	if len(moved) == 0 && len(undecided) > 0 {
		err = errUndecided
	}
	return b, moved, rest, err
}

// errUndecided: it is about to be decided which database has the next records, or their tasks.
var errUndecided = errors.New("the target of the next records moves")

// catchUp reads where the database stands after it refused a batch.
func (w *worker) catchUp(ctx context.Context, covered []coverage) error {
	w.metrics.fenced.Inc()
	for _, c := range covered {
		w.log.Info("another scanner has stored a part of this batch; reading on from where the database stands", zap.String("topic", c.reading.key.topic), zap.Int32("partition", c.reading.key.partition), zap.Int64("offset", c.first))
		err := w.retry.do(ctx, "reading the source", func() error { return w.reread(ctx, c.reading, c.first) })
		if err != nil {
			return err
		}
	}
	return nil
}

// source returns the source of a reading's partition. On first use it makes a source that begins
// where the reading did. False: there is none, and the reading has ended.
func (w *worker) source(ctx context.Context, r *reading) (intake.Source, bool, error) {
	src, of := w.parts.source(r.key)
	if src != nil {
		return *src, true, nil
	}
	if r.ended.Load() {
		return intake.Source{}, false, nil
	}
	made, err := w.intake.SourceAfter(ctx, r.key.topic, of.TopicID, r.key.partition, r.first, of.N)
	if err != nil {
		return intake.Source{}, false, err
	}
	w.parts.set(r.key, made)
	return made, true, nil
}

// reread asks the database where a partition stands, after an answer that it does not stand at. If
// it stands further back, the database was restored from a backup. The intake is then read again
// from there, or from its start, and no record read until now is stored.
func (w *worker) reread(ctx context.Context, r *reading, at int64) error {
	if r.ended.Load() {
		return nil // somebody has seen to it, or it is another scanner's
	}
	_, of := w.parts.source(r.key)
	src, found, err := w.intake.FindSource(ctx, r.key.topic, of.TopicID, r.key.partition)
	if err != nil {
		return err
	}
	if !found {
		w.metrics.reread.Add(float64(at))
		warnForgotten(w.log, r.key, span{0, at})
		w.parts.startOver(r)
		return nil
	}
	if w.parts.replaced(r.key, src) {
		return nil
	}
	w.parts.set(r.key, src)
	if src.Next < at {
		w.metrics.reread.Add(float64(at - src.Next))
		warnForgotten(w.log, r.key, span{src.Next, at})
		w.parts.setBack(r, src.Next)
	}
	return nil
}

// trace makes the spans of a stored batch's records with traced senders.
func (w *worker) trace(stretches []stretch, batch intake.Batch, covered []coverage) {
	if w.tracer == nil {
		return
	}
	stored := time.Now()
	var changes map[int64]*task.Change // made when there is somebody who is traced
	for _, r := range stretches {
		i := slices.IndexFunc(covered, func(c coverage) bool { return c.reading == r.reading })
		if i < 0 {
			continue
		}
		for _, rec := range r.records {
			if rec.Offset < covered[i].first || rec.Offset >= covered[i].src.Next {
				continue
			}
			caller := w.tracer.Caller(rec.Headers)
			if caller == nil {
				continue
			}
			if changes == nil {
				changes = bySeq(batch.Changes)
			}
			s := tracing.Stored{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Group: w.group, Tombstone: rec.Value == nil, Read: r.read, Stored: stored}
			caller.Stored(spanOf(s, changes[task.Seq(covered[i].src.ID, rec.Offset)]))
		}
	}
}

func bySeq(changes []task.Change) map[int64]*task.Change {
	out := make(map[int64]*task.Change, len(changes))
	for i := range changes {
		out[changes[i].Seq] = &changes[i]
	}
	return out
}

// spanOf adds the record's request. nil: an ignored report.
func spanOf(s tracing.Stored, c *task.Change) tracing.Stored {
	switch {
	case c == nil:
		s.Rejected = true
	case c.Rejected != nil:
		s.Rejected, s.Target, s.ID = true, c.Rejected.Topic, c.Rejected.TaskID
	case c.Report != nil:
		s.Op, s.Target, s.ID = "report", c.Report.Topic, c.Report.ID
	case c.Request != nil:
		s.Op, s.Target, s.ID, s.Due = c.Request.Op.String(), c.Request.Topic, c.Request.ID, c.Request.Due
	}
	return s
}
