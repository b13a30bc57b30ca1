package deadletter

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// OtherLog is a partition whose log is not the one that its deliveries came from: Kafka came back
// older as well, or the database has forgotten a restart. Records from From on get delivery keys
// that no lost record had.
type OtherLog struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	Restarts  int    `json:"restarts"`
}

// logs are where the partitions of the intake and of reports begin and end, and what of them is
// committed and stored.
type logs struct {
	starts, ends kafka.Offsets
	committed    map[string]map[int32]kafka.Committed
	ids          map[string][16]byte
	sources      []intake.Source
}

func (l *Local) readLogs(ctx context.Context, client *kgo.Client, r Reconcile) (out logs, err error) {
	topics := slices.Concat(r.Intake, r.Reports)
	if out.committed, err = kafka.GroupOffsets(ctx, client, r.Group, topics...); err != nil { // first: see internal/copies
		return out, err
	}
	if out.sources, err = intake.New(l.store).DeliverySources(ctx); err != nil {
		return out, err
	}
	if out.ids, err = kafka.TopicIDs(ctx, client, topics...); err != nil {
		return out, err
	}
	if out.starts, err = kafka.Starts(ctx, client, topics...); err != nil {
		return out, err
	}
	out.ends, err = kafka.Ends(ctx, client, topics...)
	return out, err
}

// parted is what shows that a partition's log is another one.
type parted struct {
	source intake.Source
	same   int64 // up to here, the log has what was delivered, or what is stored
	other  int64 // the first offset with something else; MaxInt64: none was seen
	others int64 // how many there are
	end    int64 // where it ends
	last   int64 // behind the last offset that was delivered or committed
}

// otherLogs compares what was delivered, by the send logs, and what was committed, with the logs as
// they are. It also returns how many records were seen to be gone.
func (l *Local) otherLogs(ctx context.Context, kcfg kafka.Config, known *evidence, in logs) (out []OtherLog, gone int64, err error) {
	type key struct {
		topic string
		part  int32
	}
	noted, seen, from := known.byOffset(), map[key]*parted{}, kafka.Offsets{}
	for _, src := range intake.InUse(in.sources) {
		end, there := in.ends[src.Topic][src.Partition]
		if !there || src.TopicID != in.ids[src.Topic] || src.Next > end { // that one halts
			continue
		}
		committed := in.committed[src.Topic][src.Partition].At
		last := committed
		for offset := range noted[src.ID] {
			last = max(last, offset+1)
			if offset >= src.Next && offset < end {
				from.Set(src.Topic, src.Partition, max(src.Next, in.starts[src.Topic][src.Partition]))
			}
		}
		seen[key{src.Topic, src.Partition}] = &parted{source: src, same: src.Next, other: math.MaxInt64, end: end, last: last}
		gone += max(last-max(end, committed), 0) // measure counts what was committed
	}
	err = kafka.Scan(ctx, kcfg, from, in.ends, l.log, func(rec *kgo.Record) bool {
		p := seen[key{rec.Topic, rec.Partition}]
		switch of := noted[p.source.ID][rec.Offset]; {
		case of == nil:
		case !slices.ContainsFunc(of, func(d delivered) bool { return d.mayBe(rec) }):
			p.other, p.others = min(p.other, rec.Offset), p.others+1
		case rec.Offset < p.other && slices.ContainsFunc(of, func(d delivered) bool { return d.is(rec) }):
			p.same = rec.Offset + 1
		}
		return true
	})
	if err != nil {
		return nil, 0, err
	}
	for k, p := range seen {
		gone += p.others
		known := in.committed[k.topic][k.part].Restarts()
		restarts := p.source.Generation
		if known.TopicID == p.source.TopicID {
			restarts = max(restarts, known.N)
		}
		if p.last > p.end || p.others > 0 && restarts == p.source.Generation {
			restarts++
		}
		if restarts > p.source.Generation {
			out = append(out, OtherLog{k.topic, k.part, p.same, restarts})
		}
	}
	slices.SortFunc(out, func(a, b OtherLog) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, gone, nil
}

// clocksApart allows for the difference between the clocks of a broker and a dispatcher.
const clocksApart = time.Minute

// mayBe tells whether the sent task may be of a record: it has the id that the caller gave. Of a
// record without an id, it was not sent before the broker took the record. A clock does not
// outweigh an id: it may be wrong by more.
func (s sent) mayBe(rec *kgo.Record) bool {
	for _, h := range rec.Headers {
		if h.Key == schemas.HeaderID {
			return xxhash.Sum64(h.Value) == s.id
		}
	}
	return rec.Attrs.TimestampType() != 1 || s.taken > rec.Timestamp.Add(-clocksApart).UnixMilli()
}

// delivered is a sent task with its name.
type delivered struct {
	sendlog.Subject
	sent
}

// is tells whether the task is surely of a record that it may be of. Without an id the content
// tells, and where that depends on others, the broker's time.
func (d delivered) is(rec *kgo.Record) bool {
	if slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return h.Key == schemas.HeaderID }) {
		return true
	}
	if request, err := schemas.Decode(rec, schemas.Limits{}); err == nil {
		if made := task.Fresh(d.Seq, &request); made != nil {
			return subjectOf(made) == d.Subject
		}
	}
	return rec.Attrs.TimestampType() == 1
}

// byOffset returns what was sent, by source and offset.
func (e *evidence) byOffset() map[int]map[int64][]delivered {
	out := map[int]map[int64][]delivered{}
	for subject, s := range e.tasks {
		source, offset := task.SplitSeq(subject.Seq)
		if out[source] == nil {
			out[source] = map[int64][]delivered{}
		}
		out[source][offset] = append(out[source][offset], delivered{subject, s})
	}
	return out
}

// readAgain stores what is on topics. It reads partitions with another log only up to where the
// logs part, begins another source there, and reads on.
func (l *Local) readAgain(ctx context.Context, r Reconcile, topics []string, others []OtherLog) error {
	left, err := l.restart(ctx, topics, others, false)
	if err == nil && len(left) > 0 {
		if err = r.CatchUp(ctx, topics, left); err == nil { // the log has what is stored
			_, err = l.restart(ctx, topics, others, true)
		}
	}
	if err != nil {
		return err
	}
	return r.CatchUp(ctx, topics, nil)
}

// restart begins the sources of partitions with another log that have nothing stored, or were read
// up to there. It returns where the others part.
func (l *Local) restart(ctx context.Context, topics []string, others []OtherLog, read bool) (left kafka.Offsets, err error) {
	in := intake.New(l.store)
	all, err := in.Sources(ctx)
	left = kafka.Offsets{}
	for _, src := range intake.InUse(all) {
		for _, o := range others {
			if src.Topic != o.Topic || src.Partition != o.Partition || src.Generation >= o.Restarts || !slices.Contains(topics, src.Topic) {
				continue
			}
			if o.From > 0 && !read {
				left.Set(o.Topic, o.Partition, o.From)
				continue
			}
			src.Generation = o.Restarts - 1
			if _, err := in.Restart(ctx, src, o.From); err != nil {
				return nil, err
			}
		}
	}
	return left, err
}
