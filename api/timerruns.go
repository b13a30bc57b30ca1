package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// Bounds of one backfill: runs, and the bytes of all bodies together.
const (
	MostBackfilled = 10_000
	backfillBytes  = 256 << 20
)

// RunTimer asks for one run of a timer.
type RunTimer struct {
	At Instant `json:"at,omitzero" doc:"the instant that names the run: RFC 3339 or Unix ms, not in the future; default now. A request that is repeated with its at makes no second run"`
}

// TimerRun is the resulting run.
type TimerRun struct {
	Topic string `json:"topic"`
	Timer string `json:"timer"`
	ID    string `json:"id"   doc:"of the run's task"`
	At    int64  `json:"at"   doc:"the instant that names the run, Unix ms"`
	Made  bool   `json:"made" doc:"false: the run existed, and nothing was made"`
}

// Backfill asks for the runs of a range.
type Backfill struct {
	From      Instant `json:"from"                doc:"runs at this instant or later: RFC 3339 or Unix ms"`
	To        Instant `json:"to,omitzero"         doc:"runs before this instant; default now"`
	DryRun    bool    `json:"dry_run,omitempty"   doc:"only count, and make nothing"`
	Forgotten bool    `json:"forgotten,omitempty" doc:"also make runs of which nobody remembers whether they were made: see dispatcher.retention"`
}

// Backfilled counts the results for the runs of a range.
type Backfilled struct {
	Made      int   `json:"made"                doc:"runs that did not exist and are made; with dry_run: would be"`
	Existing  int   `json:"existing"            doc:"runs that are there, pending or ended: left alone"`
	Coming    int   `json:"coming"              doc:"runs that the timer has still to make, and future ones: left alone"`
	Forgotten int   `json:"forgotten"           doc:"runs that lie so far back that nobody remembers whether they were made: left alone, unless forgotten is sent"`
	BeforeSet int   `json:"before_set,omitempty" doc:"of those made or existing, runs from before the timer was set"`
	Next      int64 `json:"next,omitempty"      doc:"the first run that was not come to, Unix ms: send the request again, with this from or the one before; absent: all are done"`
}

// RunTimer makes one run of a timer, due now, or returns look.ErrNoTimer.
func (l *Local) RunTimer(ctx context.Context, topic, id string, r RunTimer) (TimerRun, error) {
	topic = schemas.TargetName(topic)
	now, err := l.store.Time(ctx)
	if err != nil {
		return TimerRun{}, err
	}
	at := cmp.Or(r.At.Millis(), now.UnixMilli())
	since, err := intake.New(l.store).Remembered(ctx, now.UnixMilli())
	if err != nil {
		return TimerRun{}, err
	}
	switch {
	case at > now.UnixMilli():
		return TimerRun{}, wrong("at", r.At.String(), "is in the future: leave it out, or schedule a task for it")
	case at < since && r.At != (Instant{}):
		return TimerRun{}, forgottenRun(r, since)
	}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "timer-run", Topic: topic, TaskID: id, Detail: admin.AuditDetail(map[string]any{"at": at})})
	leave, err := l.changes.Take(ctx, access.From(ctx).Account(), 1) // each holds a timer's content in memory
	if err != nil {
		return TimerRun{}, err
	}
	done, err := intake.New(l.store).AskRun(ctx, topic, id, at, now.UnixMilli())
	leave()
	switch {
	case err != nil:
		return TimerRun{}, err
	case done.Forgotten > 0: // while it waited for its turn
		return TimerRun{}, forgottenRun(r, now.UnixMilli())
	}
	l.Hint(ctx, done.Added)
	return TimerRun{Topic: topic, Timer: id, ID: timer.RunID(id, at), At: at, Made: done.Made > 0}, nil
}

func forgottenRun(r RunTimer, since int64) error {
	return wrong("at", r.At.String(), "lies before "+time.UnixMilli(since).UTC().Format(time.RFC3339)+", and nobody remembers whether that run was made: write a later time, or backfill with forgotten")
}

// BackfillTimer makes the missing runs of a timer in a range, the oldest first, or returns
// look.ErrNoTimer. Each piece is in turn with other changes of many tasks, and is followed by a
// rest of the same time. Made runs stay, wherever the call ends: the same request goes on.
func (l *Local) BackfillTimer(ctx context.Context, topic, id string, r Backfill) (out Backfilled, err error) {
	topic = schemas.TargetName(topic)
	now, err := l.store.Time(ctx)
	if err != nil {
		return out, err
	}
	span, err := l.backfillRange(ctx, topic, id, r, now.UnixMilli())
	if err != nil {
		return out, err
	}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "timer-backfill", Topic: topic, TaskID: id, Detail: admin.AuditDetail(map[string]any{
		"from": span.From, "to": span.To, "forgotten": span.Forgotten,
	})})
	ends := time.Now().Add(l.budget(ctx))
	turn := ctx
	for entry := int64(0); ; turn = share.Wait(ctx) {
		leave, err := l.changes.Take(turn, access.From(ctx).Account(), 1)
		if errors.Is(err, share.ErrTurn) && out.Next > 0 {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		began := time.Now()
		done, err := intake.New(l.store).BackfillPiece(ctx, topic, id, span, entry, now.UnixMilli(), r.DryRun)
		leave()
		if err != nil {
			return out, fmt.Errorf("after %d runs were made: %w", out.Made, err)
		}
		l.Hint(ctx, done.Added)
		out.Made, out.Existing, out.Coming, out.Forgotten = out.Made+done.Made, out.Existing+done.Existing, out.Coming+done.Coming, out.Forgotten+done.Forgotten
		out.BeforeSet += done.BeforeSet
		span.From, out.Next, entry = done.Next, done.Next, done.Entry
		if out.Next == 0 || time.Now().After(ends) {
			return out, nil
		}
		if err := loop.Rest(ctx, time.Since(began)); err != nil {
			return out, err
		}
	}
}

// backfillRange finds mistakes and excess.
func (l *Local) backfillRange(ctx context.Context, topic, id string, r Backfill, now int64) (span task.Range, err error) {
	t, from, to, err := l.timerRange(ctx, topic, id, r.From, r.To, now, 0)
	if err != nil {
		return span, err
	}
	s, err := t.Definition.Reaching(from)
	if err != nil {
		return span, err
	}
	refuse := func(problem string) error { return wrong("from", r.From.String(), problem) }
	runs, most := s.Count(from, to, MostBackfilled), MostBackfilled
	if len(t.Body) > 0 {
		most = min(most, max(backfillBytes/len(t.Body), 1))
	}
	switch {
	case runs > most && most < MostBackfilled:
		return span, refuse(fmt.Sprintf("and to hold more than %d runs, which is %d MiB of this timer's content: write a shorter range, and go on with the next", most, backfillBytes>>20))
	case runs > most:
		return span, refuse(fmt.Sprintf("and to hold more than %d runs: write a shorter range, and go on with the next", most))
	case runs > 1 && t.Definition.Alone:
		return span, refuse("and to hold several runs, and the timer's overlap skip drops all that begin while one is unfinished: write a range of one run, and go on when that has finished")
	}
	span = task.Range{From: from, To: to, Forgotten: r.Forgotten}
	span.Remembered, err = intake.New(l.store).Remembered(ctx, now)
	return span, err
}

// timerRange reads a timer, and a range of its runs. Without from, the range is back long, in ms.
func (l *Local) timerRange(ctx context.Context, topic, id string, first, end Instant, now, back int64) (t task.Timer, from, to int64, err error) {
	to = cmp.Or(end.Millis(), now)
	from = cmp.Or(first.Millis(), to-back)
	if to <= from && (first != (Instant{}) || back > 0) {
		return t, from, to, wrong("to", end.String(), "is not after from: write a later time")
	}
	t, err = look.New(l.store).GetTimer(ctx, topic, id)
	return
}

// RunTimer makes one run of a timer, or returns look.ErrNoTimer.
func (c *Client) RunTimer(ctx context.Context, topic, id string, r RunTimer) (TimerRun, error) {
	return post[TimerRun](ctx, c, timerPath(topic, id)+"/run", r, look.ErrNoTimer)
}

// BackfillTimer makes the missing runs of a timer in a range, or returns look.ErrNoTimer.
func (c *Client) BackfillTimer(ctx context.Context, topic, id string, r Backfill) (Backfilled, error) {
	return post[Backfilled](ctx, c, timerPath(topic, id)+"/backfill", r, look.ErrNoTimer)
}

type runTimerInput struct {
	Waiting // accepted as of other requests: the run exists when the answer comes
	Named
	Body *RunTimer
}

type backfillInput struct {
	Named
	Async
	Body Backfill
}

func (s *server) runTimer(ctx context.Context, in *runTimerInput) (TimerRun, error) {
	if _, err := in.duration(); err != nil {
		return TimerRun{}, err
	}
	if in.Body == nil {
		in.Body = &RunTimer{}
	}
	return s.fleet.RunTimer(ctx, in.Topic, in.ID, *in.Body)
}

func (s *server) backfillTimer(ctx context.Context, in *backfillInput) (Backfilled, error) {
	return s.fleet.BackfillTimer(ctx, in.Topic, in.ID, in.Body)
}

// MostAudited is how many runs one answer has at most.
const MostAudited = 1000

// auditBack is how far an audit without from goes back.
const auditBack = 24 * time.Hour

// TimerAuditFilter selects the runs to audit.
type TimerAuditFilter struct {
	From  Instant `query:"from"  doc:"runs at this instant or later: RFC 3339 or Unix ms; default a day before to"`
	To    Instant `query:"to"    doc:"runs before this instant; default now"`
	Limit int     `query:"limit" default:"1000" maximum:"1000" minimum:"1"` // 0: MostAudited
}

// TimerAudit compares the runs of a timer's expression with the made ones.
type TimerAudit struct {
	Runs     []AuditedRun `json:"runs"`
	Expected int          `json:"expected"       doc:"runs of this answer, but for those that were not expected"`
	Made     int          `json:"made"           doc:"of them, those that have a task, whatever became of it; those that were dropped are missed"`
	Late     int          `json:"late"           doc:"of those made, how many are known to be late"`
	NotKnown int          `json:"late_not_known" doc:"of those made, how many were sent, and nothing says whether late: nothing is written of a plain delivery"`
	Missed   int          `json:"missed"         doc:"runs that were not sent and will not be"`
	Unknown  int          `json:"unknown"        doc:"runs of which nothing says whether they were sent"`
	Coming   int          `json:"coming"         doc:"runs that the timer has still to make"`
	Replaced int64        `json:"replaced,omitempty" doc:"until then, Unix ms, the timer had another definition: runs that only that one had are not in this answer"`
	Next     int64        `json:"next,omitempty" doc:"the first run that this answer does not have, Unix ms: go on with from=next; absent: it has all"`
}

// AuditedRun is one run of a timer's expression.
type AuditedRun struct {
	At       int64  `json:"at"               doc:"when it lies, Unix ms"`
	ID       string `json:"id"               doc:"of its task"`
	State    string `json:"state"            doc:"that of its task; without one, or when it was dropped: coming, missed, not_expected or unknown"`
	Reason   string `json:"reason,omitempty" doc:"missed: misfire, overlap, disabled, dropped (misfire or overlap); not_expected: before_from, after_until, not_set, disabled; unknown: forgotten, replaced, no_trace; pending: jitter; dead: the kind of its dead letter"`
	Due      int64  `json:"due,omitempty"    doc:"due time of its task, with jitter, Unix ms"`
	Late     int64  `json:"late_ms,omitempty" doc:"its task was or is later than due, by this at least"`
	NotKnown bool   `json:"late_not_known,omitempty" doc:"it was sent, and nothing says whether late"`
}

// AuditTimer compares expected runs with made ones, or returns look.ErrNoTimer.
func (l *Local) AuditTimer(ctx context.Context, topic, id string, f TimerAuditFilter) (TimerAudit, error) {
	if f.Limit <= 0 || f.Limit > MostAudited {
		f.Limit = MostAudited
	}
	return listing(ctx, l, func(ctx context.Context) (TimerAudit, error) {
		now, err := l.store.Time(ctx)
		if err != nil {
			return TimerAudit{}, err
		}
		return l.auditTimer(ctx, schemas.TargetName(topic), id, f, now.UnixMilli())
	})
}

func (l *Local) auditTimer(ctx context.Context, topic, id string, f TimerAuditFilter, now int64) (TimerAudit, error) {
	out := TimerAudit{Runs: []AuditedRun{}}
	t, from, to, err := l.timerRange(ctx, topic, id, f.From, f.To, now, auditBack.Milliseconds())
	if err != nil {
		return out, err
	}
	s, err := t.Definition.Expression(from)
	if err != nil {
		return out, err
	}
	if d := t.Definition; d.Set > t.Created && from < d.Set {
		out.Replaced = d.Set
	}
	var ids []string
	for run, ok := s.Next(from - 1); ok && run < to; run, ok = s.Next(run) {
		if len(ids) == f.Limit {
			out.Next = run
			break
		}
		ids = append(ids, timer.RunID(id, run))
		out.Runs = append(out.Runs, AuditedRun{At: run, ID: timer.RunID(id, run)})
	}
	tasks, err := look.New(l.store).GetRuns(ctx, topic, ids)
	if err != nil {
		return out, err
	}
	// In this order: a run forgotten meanwhile is not taken for missed.
	remembered, err := intake.New(l.store).Remembered(ctx, now)
	for i := range out.Runs {
		r := &out.Runs[i]
		if made, ok := tasks[r.ID]; ok {
			r.tell(&t, made, now)
		} else {
			r.State, r.Reason = t.Untold(r.At, now, max(remembered, t.Moved))
		}
		out.count(r)
	}
	return out, err
}

func (r *AuditedRun) tell(t *task.Timer, made look.Run, now int64) {
	r.Due = made.Due
	if made.Dropped {
		r.State, r.Reason = task.RunMissing, t.Dropped(r.At)
		return
	}
	r.State, r.Reason = made.State, made.Dead
	switch {
	case made.State == "pending" && made.Due > now:
		if r.At <= now {
			r.Reason = "jitter"
		}
		return
	case made.State == "cancelled", made.Dead == string(schemas.KindExpired), made.Dead == string(schemas.KindUndeliverable):
		return // it was never sent
	case made.State == "pending" || made.State == "claimed":
		r.Late = max(now-made.Due, 0)
		return
	case made.State == "delivered":
		r.Late = max(made.Place-made.Due, made.Created-made.Due, 0)
	default: // its place is that of another attempt, or of its end
		r.Late = max(made.Created-made.Due, 0)
	}
	r.NotKnown = r.Late == 0
}

func (out *TimerAudit) count(r *AuditedRun) {
	if r.State != task.RunNotExpected {
		out.Expected++
	}
	switch r.State {
	case task.RunNotExpected:
	case task.RunComing:
		out.Coming++
	case task.RunMissing:
		out.Missed++
	case task.RunUnknown:
		out.Unknown++
	default:
		out.Made++
		if r.Late > 0 {
			out.Late++
		}
		if r.NotKnown {
			out.NotKnown++
		}
	}
}

// Add adds the next page.
func (out *TimerAudit) Add(page TimerAudit) {
	out.Runs = append(out.Runs, page.Runs...)
	out.Replaced = max(out.Replaced, page.Replaced)
	for i := range page.Runs {
		out.count(&page.Runs[i])
	}
	out.Next = page.Next
}

// AuditTimer compares expected runs with made ones, or returns look.ErrNoTimer.
func (c *Client) AuditTimer(ctx context.Context, topic, id string, f TimerAuditFilter) (TimerAudit, error) {
	return get[TimerAudit](ctx, c, timerPath(topic, id)+"/audit", f, look.ErrNoTimer)
}

type auditTimerInput struct {
	Named
	TimerAuditFilter
}

func (s *server) auditTimer(ctx context.Context, in *auditTimerInput) (TimerAudit, error) {
	return s.fleet.AuditTimer(ctx, in.Topic, in.ID, in.TimerAuditFilter)
}
