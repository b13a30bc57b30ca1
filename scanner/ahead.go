package scanner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// ahead are undecided cancels of many, as of the beginning of a reading. A database that was set
// back has later requests read again. So the worker with the partition decides the cancels between
// the last record before the listing and the next one. The cancels' own record may repeat them.
type ahead struct {
	list   []cancelsAt // by offset
	last   int64       // the seq of the last record that was looked at
	looked bool        // at all of them
}

// cancelsAt are cancels of tasks, listed when the partition was stored up to an offset.
type cancelsAt struct {
	at     int64
	change task.Change
}

const (
	// mostAhead is how many records of cancels a reading holds. Only a restored backup brings more.
	mostAhead = 20
	// aheadPatience limits the wait for cancels: the topic may be unreadable. After a wait in vain,
	// partitions that begin within the same time do not wait.
	aheadPatience = 10 * time.Second
)

// lookAhead reads the cancels ahead of a partition's next records, unless some are at hand.
func (w *worker) lookAhead(ctx context.Context, r *reading, src intake.Source) {
	a := &r.ahead
	if a.looked || len(a.list) > 0 || r.key.topic == w.decoder.reports || r.key.topic == w.decoder.cancels {
		return
	}
	err := errNoWord
	if a.looked = w.noWord.lasts(); !a.looked {
		bound, cancel := context.WithTimeout(ctx, aheadPatience)
		defer cancel()
		err = w.retry.do(bound, "reading cancels of many", func() error {
			a.looked = true
			return w.undecided(bound, func(seq int64, many task.Cancels) bool {
				if at, listed := many.Stored[src.ID]; listed && at >= src.Next && seq > a.last {
					a.last, a.list = seq, append(a.list, cancelsAt{at, task.Change{Seq: seq, Cancels: many.Of(src.ID)}})
				}
				a.looked = len(a.list) < mostAhead
				return a.looked
			})
		})
		slices.SortStableFunc(a.list, func(x, y cancelsAt) int { return cmp.Compare(x.at, y.at) })
		if err != nil {
			a.looked = true
			w.noWord.begin(aheadPatience)
		}
	}
	if err != nil {
		w.log.Warn("cancels of many are decided later than requests that came after them, if the database has forgotten both", zap.String("topic", r.key.topic), zap.Int32("partition", r.key.partition), zap.Error(err))
	}
}

var errNoWord = errors.New("another partition has just waited in vain")

// before returns the cancels before the first unstored record of a stretch; nil: there are none.
// fits is how many records come before further cancels. The partition is stored up to next.
func (a *ahead) before(r stretch, next int64) (due *task.Change, fits int) {
	from := func(offset int64) int {
		return slices.IndexFunc(r.records, func(rec *kgo.Record) bool { return rec.Offset >= offset })
	}
	first, fits := from(next), -1
	if first >= 0 && len(a.list) > 0 {
		if a.list[0].at <= r.records[first].Offset {
			return &a.list[0].change, 0
		}
		fits = from(a.list[0].at)
	}
	if fits < 0 {
		fits = len(r.records)
	}
	return nil, fits
}

// decided takes the cancels of a decided batch out of the list.
func (a *ahead) decided(changes []task.Change) {
	if len(a.list) > 0 && len(changes) > 0 && changes[0].Seq == a.list[0].change.Seq {
		a.list = a.list[1:]
	}
}

// undecided calls f with the published and undecided cancels, until f returns false.
func (s *Scanner) undecided(ctx context.Context, f func(seq int64, many task.Cancels) bool) error {
	topic := s.cfg.Cancels
	ids, err := kafka.TopicIDs(ctx, s.asks, topic)
	if err != nil {
		return err
	}
	starts, err := kafka.Starts(ctx, s.asks, topic)
	if err != nil {
		return err
	}
	ends, err := kafka.Ends(ctx, s.asks, topic)
	if err != nil {
		return err
	}
	sources := map[int32]int{}
	for part, start := range starts[topic] {
		src, known, err := s.worker.intake.FindSource(ctx, topic, ids[topic], part)
		if err == nil && !known && start < ends[topic][part] { // whoever reads the partition comes to need it too
			src, err = s.worker.intake.Source(ctx, topic, ids[topic], part, start)
		}
		if err != nil {
			return err
		}
		sources[part], starts[topic][part] = src.ID, max(start, src.Next)
	}
	return kafka.Scan(ctx, s.deps.Kafka, starts, ends, s.deps.Log, func(r *kgo.Record) bool {
		many, err := task.DecodeCancels(r.Value)
		return err != nil || f(task.Seq(sources[r.Partition], r.Offset), many)
	})
}
