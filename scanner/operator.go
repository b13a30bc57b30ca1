package scanner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// States of an intake partition, as an operator sees it.
const (
	StateOK          = "ok"
	StateNew         = "new"         // nothing of it is stored
	StateDiverged    = "diverged"    // the log lost records that are stored; scanners do not read it any further
	StateUnsure      = "unsure"      // Kafka does not know the leader epoch of what is stored
	StateStands      = "stands"      // a scanner has tried one batch of it for a minute, or waits that long for a producer to end a transaction
	StateExpired     = "expired"     // records were deleted before they were stored
	StateMissing     = "missing"     // Kafka does not have the partition
	StateUnreachable = "unreachable" // it has no leader
)

// Partition is where an intake partition stands, in the database and in Kafka. -1: not known.
type Partition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	State     string `json:"state"`
	Detail    string `json:"detail,omitempty"`
	Next      int64  `json:"next_offset"` // the first offset that is not stored
	Start     int64  `json:"log_start"`
	End       int64  `json:"log_end"`
	Lag       int64  `json:"lag"`
	// SameUpTo is the offset below which a diverged log and the stored records are the same.
	SameUpTo *int64 `json:"same_up_to,omitempty"`
	Restarts int    `json:"restarts"`

	source  intake.Source // ID 0: there is none. Its generation is the restarts that anybody knows
	topicID [16]byte
}

// ErrRefused means that an operator's request does not fit where the partition stands.
var ErrRefused = errors.New("refused")

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// Operator looks at the intake's partitions from outside, and moves them. Scanners notice soon.
type Operator struct {
	Kafka  *kgo.Client
	Store  *store.Store
	Topics []string // intake and reports
	Group  string   // of the scanners
	Quick  bool     // leaves out the comparison with last stored records, which reads a batch of each partition
	Name   string   // who it is, for what is left behind
}

// Partitions returns where all partitions stand, in order of topic names.
func (o *Operator) Partitions(ctx context.Context) ([]Partition, error) {
	noted, err := o.noted(ctx) // before the database is asked, which knows of a restart first
	if err != nil {
		return nil, err
	}
	known, err := intake.New(o.Store).Sources(ctx) // before Kafka is asked for logs, which only grow
	if err != nil {
		return nil, err
	}
	ids, err := kafka.TopicIDs(ctx, o.Kafka, o.Topics...)
	if err != nil {
		return nil, err
	}
	parts, err := kafka.Partitions(ctx, o.Kafka, o.Topics...)
	if err != nil {
		return nil, err
	}
	all := map[partitionKey]intake.Source{}
	for topic, numbers := range parts {
		for _, part := range numbers {
			all[partitionKey{topic, part}] = intake.Source{Topic: topic, TopicID: ids[topic], Partition: part, Epoch: intake.Epoch{Number: -1}, Proof: intake.Proof{At: -1}}
		}
	}
	for _, src := range intake.InUse(known) {
		if id, there := ids[src.Topic]; slices.Contains(o.Topics, src.Topic) && (!there || id == src.TopicID) {
			all[partitionKey{src.Topic, src.Partition}] = src
		}
	}
	sources := slices.Collect(maps.Values(all))
	logs, err := extents(ctx, o.Kafka, sources)
	if err != nil {
		return nil, err
	}
	decompressor, err := kafka.InspectionDecompressor()
	if err != nil {
		return nil, err
	}
	out := make([]Partition, 0, len(sources))
	for _, src := range sources {
		log, there := logs[src.Topic][src.Partition]
		p := stand(src, log, there)
		if p.Start >= 0 && src.Proof.At >= p.Start && !o.Quick {
			if err := p.prove(ctx, prover{o.Kafka, decompressor}); err != nil {
				return nil, err
			}
		}
		p.remember(noted[src.Topic][src.Partition])
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

// stand says how a partition stands. Source id 0: nothing of the partition is stored.
func stand(src intake.Source, log kafka.Extent, there bool) Partition {
	p := Partition{Topic: src.Topic, Partition: src.Partition, State: StateOK, Next: src.Next, Start: -1, End: -1, Lag: -1, Restarts: src.Generation, source: src, topicID: src.TopicID}
	switch {
	case !there:
		p.State, p.Detail = StateMissing, "Kafka does not have it"
		return p
	case log.Err != nil:
		p.State, p.Detail = StateUnreachable, log.Err.Error()
		return p
	}
	p.Start, p.End = log.Start, log.End
	if src.ID == 0 {
		p.State, p.Next, p.Lag = StateNew, -1, log.End-log.Start
		return p
	}
	p.Lag = max(log.End-src.Next, 0)
	switch result, same := judge(src, log); {
	case result == diverged:
		p.State, p.SameUpTo = StateDiverged, &same
		p.Detail = lostFrom(same)
	case src.Next < log.Start:
		p.State, p.Detail = StateExpired, fmt.Sprintf("%d offsets were deleted before they were stored", log.Start-src.Next)
	case src.Stands != "":
		p.State, p.Detail = StateStands, src.Stands
	case result == unsure:
		p.State, p.Detail = StateUnsure, fmt.Sprintf("Kafka does not know leader epoch %d, of which the last stored record is", src.Epoch.Number)
	}
	return p
}

// noted returns what scanners have committed. Without a group, without the right to see it, and for
// a quick look, that is nothing.
func (o *Operator) noted(ctx context.Context) (map[string]map[int32]kafka.Committed, error) {
	if o.Group == "" || o.Quick {
		return nil, nil
	}
	out, err := kafka.GroupOffsets(ctx, o.Kafka, o.Group, o.Topics...)
	if errors.Is(err, kerr.GroupAuthorizationFailed) {
		return nil, nil
	}
	return out, err
}

// remember compares the restarts that the database knows with those that scanners noted. A log that
// ends before what they committed has lost records since, and is restarted once more.
func (p *Partition) remember(noted kafka.Committed) {
	of := noted.Restarts()
	if of.N <= p.source.Generation || of.TopicID != p.topicID || p.source.ID == 0 || p.End < 0 {
		return
	}
	if p.State != StateDiverged {
		same := min(p.Next, p.End)
		p.State, p.Detail, p.SameUpTo = StateDiverged, "", &same
	}
	p.Detail = strings.TrimPrefix(p.Detail+"; "+forgotten(p.source.Generation, of.N), "; ")
	p.source.Generation = of.N - 1
	if p.End < noted.At {
		p.source.Generation = of.N
	}
}

func lostFrom(same int64) string {
	return fmt.Sprintf("the log lost what is stored from offset %d on: nothing more is read of it", same)
}

// prove compares the last stored record, and finds where a log parted whose leaders do not tell.
func (p *Partition) prove(ctx context.Context, by prover) error {
	src, same := p.source, min(p.Next, p.End)
	switch {
	case p.State != StateDiverged:
		result, why, err := by.prove(ctx, src)
		if err != nil && p.State == StateOK {
			p.State, p.Detail = StateUnsure, err.Error()
		}
		if err != nil || result != diverged {
			return nil
		}
		p.State, p.Detail = StateDiverged, why+"; "
	case *p.SameUpTo < same: // by the numbers of leaders
		return nil
	default:
		p.Detail = ""
	}
	// All that another log took came after what was stored.
	later, err := kafka.Since(ctx, by.client, time.UnixMilli(src.Proof.Time+1), p.Topic)
	if first, known := later[p.Topic][p.Partition]; known {
		same = max(min(same, first), p.Start)
		p.SameUpTo = &same
		p.Detail += lostFrom(same)
		return nil
	}
	return err
}

func (o *Operator) partition(ctx context.Context, topic string, part int32) (Partition, error) {
	if !slices.Contains(o.Topics, topic) {
		return Partition{}, refuse("%s is not an intake topic; there are %q", topic, o.Topics)
	}
	all, err := o.Partitions(ctx)
	if err != nil {
		return Partition{}, err
	}
	for _, p := range all {
		if p.Topic == topic && p.Partition == part {
			return p, nil
		}
	}
	return Partition{}, refuse("%s has no partition %d", topic, part)
}

// moved explains a change that came too late.
func moved(p Partition, err error) error {
	if errors.Is(err, store.ErrFenced) {
		return refuse("%s/%d has moved while this looked at it: nothing was changed, look again", p.Topic, p.Partition)
	}
	return err
}

// Restarted says where a partition goes on.
type Restarted struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`       // where it goes on
	StoredTo  int64  `json:"stored_to"`  // up to where the earlier log was stored, which stays stored
	OldSource int    `json:"old_source"` // whose events, letters and tasks are those of the earlier log
	NewSource int    `json:"new_source"`
}

// Restart has a diverged partition go on at the divergence, or at offset from. Stored records stay.
// A stored record that is also in the log from there on is stored again, as another request.
func (o *Operator) Restart(ctx context.Context, topic string, part int32, from *int64) (Restarted, error) {
	p, err := o.partition(ctx, topic, part)
	if err != nil {
		return Restarted{}, err
	}
	switch {
	case p.State == StateDiverged && p.SameUpTo == nil && from == nil, p.State == StateUnsure && from == nil:
		return Restarted{}, refuse("%s/%d: %s, so it cannot be told where the log diverged, if it did; say from which offset to read it", topic, part, p.Detail)
	case p.State != StateDiverged && p.State != StateUnsure:
		return Restarted{}, refuse("%s/%d is %s, and only a partition whose log diverged is restarted", topic, part, p.State)
	case from == nil:
		from = p.SameUpTo
	case *from < p.Start || *from > p.End:
		return Restarted{}, refuse("offset %d is not in the log of %s/%d, which has those from %d up to %d", *from, topic, part, p.Start, p.End)
	}
	audited := admin.Auditing(ctx, admin.AuditEntry{What: "intake restart", Detail: admin.AuditDetail(map[string]any{
		"intake": topic, "partition": int64(part), "from": *from, "stored_to": p.Next,
	})})
	now, err := intake.New(o.Store).Restart(audited, p.source, *from)
	if err != nil {
		return Restarted{}, moved(p, err)
	}
	return Restarted{Topic: topic, Partition: part, From: *from, StoredTo: p.Next, OldSource: p.source.ID, NewSource: now.ID}, nil
}

// Skipped says which offsets were passed.
type Skipped struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`   // where it goes on
	ID        string `json:"id"`   // of the event and the dead letter that say so
	Left      int64  `json:"left"` // offsets that are still to be stored
}

// Skip passes the offsets [at, to) of a partition that stands at the first. One dead letter and one
// rejected event stand for them.
func (o *Operator) Skip(ctx context.Context, topic string, part int32, at, to int64) (Skipped, error) {
	p, err := o.partition(ctx, topic, part)
	if err != nil {
		return Skipped{}, err
	}
	stands := p.Next
	if p.State == StateNew {
		stands = p.Start
	}
	switch {
	case p.State == StateDiverged || p.State == StateMissing || p.State == StateUnreachable:
		return Skipped{}, refuse("%s/%d is %s: %s", topic, part, p.State, p.Detail)
	case at != stands:
		return Skipped{}, refuse("%s/%d stands at offset %d, not at %d", topic, part, stands, at)
	case to <= at:
		return Skipped{}, refuse("going on at offset %d passes nothing: it stands at %d", to, at)
	case to > p.End:
		return Skipped{}, refuse("the log of %s/%d ends at offset %d, so it cannot go on at %d", topic, part, p.End, to)
	}
	if p.source.ID == 0 {
		if p.source, err = intake.New(o.Store).Source(ctx, topic, p.topicID, part, at); err != nil {
			return Skipped{}, err
		}
	}
	now, err := o.Store.Time(ctx)
	if err != nil {
		return Skipped{}, err
	}
	letter := bareRejection(task.Seq(p.source.ID, at), &kgo.Record{Topic: topic, Partition: part, Offset: at},
		fmt.Sprintf("%s passed the offsets %d to %d of %s/%d without storing them", o.Name, at, to-1, topic, part))
	b := intake.Batch{Advance: []intake.Advance{{Source: p.source.ID, From: at, To: to}}, Changes: []task.Change{{Seq: letter.Seq, Rejected: letter}}}
	b.Skip(p.source.ID, at+1, to)
	audited := admin.Auditing(ctx, admin.AuditEntry{What: "intake skip", Detail: admin.AuditDetail(map[string]any{"intake": topic, "partition": int64(part), "from": at, "to": to})})
	if _, err := intake.New(o.Store).Apply(audited, b, store.At(now.UnixMilli())); err != nil {
		return Skipped{}, moved(p, err)
	}
	return Skipped{Topic: topic, Partition: part, From: at, To: to, ID: letter.TaskID, Left: p.End - to}, nil
}
