package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// Reconcile configures the reconciliation of a restored database with the send logs.
type Reconcile struct {
	// Logs are the send log directories of all dispatchers.
	Logs []string
	// Since is the time of the first entries to read. Default an hour before the last claim.
	Since time.Time
	// Topics lets the run search the target topics for deliveries of tasks in doubt.
	Topics bool
	// DryRun only reports, and changes nothing.
	DryRun bool
	// AcceptLoss goes on although Kafka no longer has offsets that the database has not stored.
	AcceptLoss bool
	// CatchUp stores the requests on the topics, from the offsets in the database on, and of some
	// partitions only up to an offset. Required.
	CatchUp func(ctx context.Context, topics []string, until kafka.Offsets) error
	// Intake and Reports are the scanners' topics, read in this order. Required.
	Intake, Reports []string
	// Group is the scanners' group. Required.
	Group string
	// Step is called when each step begins. Default: none.
	Step func(what string)
}

// othersEnd is how long requests are not read after the naming. Processes of other copies look
// every two seconds, wait for an answer as long, and deliver until then.
const othersEnd = 5 * time.Second

// ErrGone means that requests or reports are in neither the database nor Kafka.
var ErrGone = errors.New("the topics no longer have records that the database has not stored, and their requests and reports are lost: look for a newer backup, or go on with --accept-loss")

// Reconciled is the result of a reconciliation.
type Reconciled struct {
	DryRun bool      `json:"dry_run"`
	Since  int64     `json:"since"`
	Logs   []LogRead `json:"logs"`
	// Proven counts the tasks with an answer by Kafka: an acknowledgement or a permanent refusal.
	Proven int `json:"proven"`
	// InDoubt counts the noted tasks without a known answer. Found is how many of those are on
	// target topics.
	InDoubt int `json:"in_doubt"`
	Found   int `json:"found"`
	// Unread counts the intake offsets not stored in the database. UnreadProven is how many hold
	// requests of proven tasks. Reading these requests again settles the tasks.
	Unread       int64 `json:"unread"`
	UnreadProven int   `json:"unread_proven"`
	// Gone counts the offsets that neither the database nor Kafka has: their requests and reports
	// are lost.
	Gone int64 `json:"gone"`
	// OtherLogs are partitions that are read on as other sources.
	OtherLogs []OtherLog `json:"other_logs,omitempty"`
	// Unsent counts the proven tasks still to send, by the database, when the run began.
	Unsent int `json:"unsent"`
	// Left counts the proven tasks still to send at the end: 0, except in a dry run.
	Left int `json:"left"`
	// Again counts the tasks in doubt to be sent once more, with the same delivery key.
	Again int `json:"again"`
}

// Reconcile settles the tasks still to send in a restored, older database although send logs prove
// them sent. No scanner and no dispatcher may run meanwhile. There are four steps. The first reads
// the requests after the backup again and decides each as before, with the preceding deliveries in
// view. The second makes the sent runs of timers again. The third settles the remaining rows of
// proven tasks. The fourth reads the reports again, because their deliveries are known by then.
// Before these, the database gets the name of a new copy: see name. Each step can be interrupted
// and repeated.
func (l *Local) Reconcile(ctx context.Context, kcfg kafka.Config, r Reconcile) (Reconciled, error) {
	out := Reconciled{DryRun: r.DryRun}
	fail := func(err error) (Reconciled, error) { return out, fmt.Errorf("reconciling: %w", err) }
	next, err := l.since(ctx, &r)
	if err != nil {
		return fail(err)
	}
	out.Since = r.Since.UnixMilli()
	known := newEvidence()
	installation, err := l.store.Installation(ctx)
	if err != nil {
		return fail(err)
	}
	for _, dir := range r.Logs {
		r.step("reading " + dir)
		read, err := known.read(ctx, dir, installation, r.Since, l.log)
		if err != nil {
			return fail(err)
		}
		out.Logs = append(out.Logs, read)
	}
	out.InDoubt = len(known.doubtful())
	client, err := kafka.New(kcfg, l.log)
	if err != nil {
		return fail(err)
	}
	defer client.Close()
	if r.Topics {
		r.step("looking in the target topics")
		if out.Found, err = l.lookOnTopics(ctx, client, kcfg, known); err != nil {
			return fail(err)
		}
	}
	out.Proven = len(known.proven())
	if err := l.measure(ctx, client, kcfg, r, known, &out); err != nil {
		return fail(err)
	}
	if out.Gone > 0 && !r.AcceptLoss {
		return out, ErrGone
	}
	if r.DryRun {
		return out, nil
	}
	if err := l.noteReconcile(ctx, r, out); err != nil {
		return fail(err)
	}
	if err := admin.New(l.store).Reconciles(ctx, strconv.FormatInt(next.UnixMilli(), 10)); err != nil {
		return fail(err)
	}
	r.step("giving this copy of the database a name")
	named, err := l.name(ctx, client, r, installation)
	if err != nil {
		return fail(err)
	}
	r.step("waiting until processes of other copies have ended")
	if err := loop.Rest(ctx, othersEnd); err != nil {
		return fail(err)
	}
	intake.New(l.store).SetEvidence(known)
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"reading the intake again", func() error { return l.readAgain(ctx, r, r.Intake, out.OtherLogs) }},
		{"making the runs of timers again that were sent", func() error { return l.restoreRuns(ctx, known) }},
		{"settling what was sent", func() error { return l.settleSent(ctx, known) }},
		{"reading the reports again", func() error { return l.readAgain(ctx, r, r.Reports, out.OtherLogs) }},
		{"looking whether another copy has a name by now", func() error { return r.compareCopies(ctx, client, named) }},
	} {
		r.step(step.what)
		if err := step.do(); err != nil {
			return fail(err)
		}
	}
	l.forgetIndex(ctx)
	if out.Left, err = l.count(ctx, known, seqsOf(known.proven())); err == nil {
		out.Again, err = l.again(ctx, known)
	}
	if err == nil {
		err = admin.New(l.store).Reconciled(ctx)
	}
	if err != nil {
		return fail(err)
	}
	return out, nil
}

func (r *Reconcile) step(what string) {
	if r.Step != nil {
		r.Step(what)
	}
}

// since sets the default of r.Since, and returns that of the next run, should this one be
// interrupted: dispatchers may have claimed until then. A delivery is normally settled within a
// second. An hour leaves room for tasks still unsettled at the backup.
func (l *Local) since(ctx context.Context, r *Reconcile) (next time.Time, err error) {
	before, err := admin.New(l.store).Reconciling(ctx)
	if err != nil {
		return next, err
	}
	if ms, bad := strconv.ParseInt(before, 10, 64); bad == nil {
		next = time.UnixMilli(ms)
	} else {
		slots, err := l.store.Slots(ctx)
		if err != nil {
			return next, err
		}
		last := int64(0)
		for _, s := range slots {
			last = max(last, s.Claimed)
		}
		next = time.UnixMilli(max(last-time.Hour.Milliseconds(), 0))
	}
	switch {
	case r.Since.IsZero():
		r.Since = next
	case r.Since.Before(next):
		next = r.Since
	}
	return next, nil
}

// seqsAtOnce is how many tasks one statement selects: each may have a body of up to a megabyte.
const seqsAtOnce = 500

// unsent calls f with the proven tasks that the database has still to send.
func (l *Local) unsent(ctx context.Context, known intake.Evidence, seqs []int64, f func([]task.Task) error) error {
	for part := range slices.Chunk(seqs, seqsAtOnce) {
		tasks, err := intake.New(l.store).Unsent(ctx, part, known)
		if err == nil && len(tasks) > 0 {
			err = f(tasks)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *Local) count(ctx context.Context, known intake.Evidence, seqs []int64) (n int, err error) {
	err = l.unsent(ctx, known, seqs, func(tasks []task.Task) error { n += len(tasks); return nil })
	return n, err
}

// restoreRuns makes the noted runs of timers after the backup again. Otherwise their timers would
// make these runs anew, with other delivery keys.
func (l *Local) restoreRuns(ctx context.Context, known *evidence) error {
	now, err := l.store.Time(ctx)
	if err != nil {
		return err
	}
	_, err = intake.New(l.store).RestoreRuns(ctx, known.sentRuns(), now.UnixMilli(), known.same)
	return err
}

func (l *Local) settleSent(ctx context.Context, known *evidence) error {
	return l.unsent(ctx, known, seqsOf(known.proven()), func(tasks []task.Task) error {
		now, err := l.store.Time(ctx)
		if err != nil {
			return err
		}
		return intake.New(l.store).SettleProven(ctx, tasks, now.UnixMilli()) // the next scanner publishes the events
	})
}

// measure compares the evidence with the present database.
func (l *Local) measure(ctx context.Context, client *kgo.Client, kcfg kafka.Config, r Reconcile, known *evidence, out *Reconciled) error {
	in, err := l.readLogs(ctx, client, r)
	if err != nil {
		return err
	}
	if out.OtherLogs, out.Gone, err = l.otherLogs(ctx, kcfg, known, in); err != nil {
		return err
	}
	next, stored := map[int]int64{}, kafka.Offsets{}
	for _, src := range in.sources {
		next[src.ID] = src.Next
		if src.Retired == 0 {
			stored.Set(src.Topic, src.Partition, src.Next)
		}
	}
	for topic, parts := range in.ends {
		for part, end := range parts {
			at, first := stored[topic][part], in.starts[topic][part]
			out.Gone += max(first-at, 0) + max(in.committed[topic][part].At-max(end, at), 0)
			out.Unread += max(end-max(first, at), 0)
		}
	}
	unread := func(seqs []int64) (n int) {
		for _, seq := range seqs {
			if src, offset := task.SplitSeq(seq); offset >= next[src] {
				n++
			}
		}
		return n
	}
	out.UnreadProven = unread(seqsOf(known.proven()))
	if out.Unsent, err = l.count(ctx, known, seqsOf(known.proven())); err != nil {
		return err
	}
	out.Left = out.Unsent + out.UnreadProven
	out.Again, err = l.again(ctx, known)
	out.Again += unread(seqsOf(known.doubtful()))
	return err
}

// again counts the tasks in doubt still to send by the database.
func (l *Local) again(ctx context.Context, known *evidence) (int, error) {
	// Suppose a proof for each task in doubt: the tasks settled thereby are still to be sent.
	supposed := *known
	supposed.tasks = map[sendlog.Subject]sent{}
	doubtful := known.doubtful()
	for _, subject := range doubtful {
		s := known.tasks[subject]
		s.proven = s.noted
		supposed.tasks[subject] = s
	}
	return l.count(ctx, &supposed, seqsOf(doubtful))
}

// lookOnTopics reads the target topics from the time of the first doubtful task. Each delivery
// found there counts as acknowledged.
func (l *Local) lookOnTopics(ctx context.Context, client *kgo.Client, kcfg kafka.Config, known *evidence) (found int, err error) {
	sources, err := intake.New(l.store).DeliverySources(ctx)
	if err != nil {
		return 0, err
	}
	byID := map[int]intake.Source{}
	for _, src := range sources {
		byID[src.ID] = src
	}
	wanted, from, topics := map[string]sendlog.Subject{}, time.Now(), map[string]bool{}
	for _, subject := range known.doubtful() {
		id, offset := task.SplitSeq(subject.Seq)
		src, ok := byID[id]
		if !ok {
			continue // its request has not been read again, so its key is not known: it stays in doubt
		}
		s := known.tasks[subject]
		if schemas.IsOrigin(known.topics[s.topic]) {
			continue // no topic has what a callback's receiver got: it stays in doubt
		}
		wanted[src.DeliveryKey(offset, int(s.noted))] = subject
		topics[known.topics[s.topic]] = true
		// A minute allows for the difference between the dispatcher's clock and the broker's.
		if taken := time.UnixMilli(s.taken).Add(-time.Minute); taken.Before(from) {
			from = taken
		}
	}
	if len(wanted) == 0 {
		return 0, nil
	}
	names := slices.Collect(maps.Keys(topics))
	ends, err := kafka.Ends(ctx, client, names...)
	if err != nil {
		return 0, err
	}
	starts, err := kafka.Since(ctx, client, from, names...)
	if err != nil {
		return 0, err
	}
	err = kafka.Scan(ctx, kcfg, starts, ends, l.log, func(r *kgo.Record) bool {
		for _, h := range r.Headers {
			if subject, ok := wanted[string(h.Value)]; ok && h.Key == schemas.HeaderDelivery {
				known.acknowledged(subject, known.tasks[subject].noted, r.Timestamp.UnixMilli())
				delete(wanted, string(h.Value))
				found++
			}
		}
		return len(wanted) > 0
	})
	return found, err
}

// forgetIndex makes dispatchers load the index anew: it is newer than the restored database.
func (l *Local) forgetIndex(ctx context.Context) {
	if l.index == nil {
		return
	}
	slots, err := l.store.Slots(ctx)
	for i := 0; i < len(slots) && err == nil; i++ {
		err = l.index.Clear(ctx, slots[i].Slot)
	}
	if err != nil {
		l.log.Warn("the index was not cleared; dispatchers find out themselves that it is off", zap.Error(err))
	}
}
