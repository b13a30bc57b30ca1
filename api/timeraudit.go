package api

import (
	"context"
	"net/http"
	"time"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

// MostAudited is how many runs one answer has at most.
const MostAudited = 1000

// auditBack is how far an audit goes back that names no from.
const auditBack = 24 * time.Hour

// TimerAuditFilter selects the runs to audit.
type TimerAuditFilter struct {
	From, To TimeText // "": a day before To, and now
	Limit    int      // 0: MostAudited
}

// TimerAudit compares the runs that a timer's expression has with those that were made.
type TimerAudit struct {
	Runs     []AuditedRun `json:"runs"`
	Expected int          `json:"expected"       doc:"runs of this answer, but for those that were not expected"`
	Made     int          `json:"made"           doc:"of them, those that have a task, whatever became of it; those that were dropped are missed"`
	Late     int          `json:"late"           doc:"of those made, how many are known to be late"`
	Missed   int          `json:"missed"         doc:"runs that were not sent and will not be"`
	Unknown  int          `json:"unknown"        doc:"runs of which nothing says whether they were sent"`
	Coming   int          `json:"coming"         doc:"runs that the timer has still to make"`
	Next     int64        `json:"next,omitempty" doc:"the first run that this answer does not have, Unix ms: go on with from=next; absent: it has all"`
}

// AuditedRun is one run of a timer's expression.
type AuditedRun struct {
	At     int64  `json:"at"               doc:"when it lies, Unix ms"`
	ID     string `json:"id"               doc:"of its task"`
	State  string `json:"state"            doc:"that of its task; without one, or when it was dropped: coming, missed, not_expected or unknown"`
	Reason string `json:"reason,omitempty" doc:"missed: misfire, overlap, disabled, dropped (misfire or overlap); not_expected: before_from, after_until, not_set, disabled; unknown: forgotten, replaced, no_trace; pending: jitter; dead: the kind of its dead letter"`
	Due    int64  `json:"due,omitempty"    doc:"due time of its task, with jitter, Unix ms"`
	Late   int64  `json:"late_ms,omitempty" doc:"its task was or is later than due, by this at least; nothing is written of a plain delivery, so more is not known"`
}

// AuditTimer compares expected runs with made ones, or returns look.ErrNoTimer.
func (l *Local) AuditTimer(ctx context.Context, topic, id string, f TimerAuditFilter) (out TimerAudit, err error) {
	topic = schemas.TargetName(topic)
	if f.Limit <= 0 || f.Limit > MostAudited {
		f.Limit = MostAudited
	}
	err = l.listing(ctx, func(ctx context.Context) error {
		now, err := l.store.Time(ctx)
		if err != nil {
			return err
		}
		out, err = l.auditTimer(ctx, topic, id, f, now.UnixMilli())
		return err
	})
	return out, err
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
	// In this order: what was forgotten meanwhile is not taken for missed.
	remembered, err := intake.New(l.store).Remembered(ctx, now)
	for i := range out.Runs {
		r := &out.Runs[i]
		if made, ok := tasks[r.ID]; ok {
			r.tell(&t, made, now)
		} else {
			r.State, r.Reason = t.Untold(r.At, now, remembered)
		}
		out.count(r)
	}
	return out, err
}

// tell fills in what the run's task says.
func (r *AuditedRun) tell(t *task.Timer, made look.Run, now int64) {
	r.Due = made.Due
	if made.Dropped {
		r.State, r.Reason = task.RunMissing, t.Dropped(r.At)
		return
	}
	r.State, r.Reason = made.State, made.Dead
	switch at := max(made.Place, made.Created); {
	case made.State == "pending" && made.Due > now:
		if r.At <= now {
			r.Reason = "jitter"
		}
	case made.State == "pending" || made.State == "claimed":
		r.Late = max(now-made.Due, 0)
	case made.State == "delivered":
		r.Late = max(at-made.Due, 0)
	}
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
	}
}

// Add adds the next page.
func (out *TimerAudit) Add(page TimerAudit) {
	out.Runs = append(out.Runs, page.Runs...)
	for i := range page.Runs {
		out.count(&page.Runs[i])
	}
	out.Next = page.Next
}

// AuditTimer compares expected runs with made ones, or returns look.ErrNoTimer.
func (c *Client) AuditTimer(ctx context.Context, topic, id string, f TimerAuditFilter) (TimerAudit, error) {
	in := auditTimerInput{From: string(f.From), To: string(f.To), Limit: f.Limit}
	return get[TimerAudit](ctx, c, timerPath(topic, id)+"/audit", in, look.ErrNoTimer)
}

type auditTimerInput struct {
	Topic string `path:"topic"`
	ID    string `path:"id"`
	From  string `query:"from"  doc:"runs at this instant or later: RFC 3339 or Unix ms; default a day before to"`
	To    string `query:"to"    doc:"runs before this instant; default now"`
	Limit int    `query:"limit" default:"1000" maximum:"1000" minimum:"1"`
}

func (in *auditTimerInput) scope(c access.Caller) error { return withinTopics(c, in.Topic) }

func (s *server) auditTimer(ctx ctxType, in *auditTimerInput) (*body[TimerAudit], error) {
	out, err := s.local.AuditTimer(ctx, in.Topic, in.ID, TimerAuditFilter{From: TimeText(in.From), To: TimeText(in.To), Limit: in.Limit})
	return &body[TimerAudit]{out}, problem(err)
}

func (s *server) timerAudits(path string) {
	register(s, access.Read, "audit-timer", http.MethodGet, path+"/audit",
		"Compare the runs that a timer's expression has in a range with those that were made; go on after next", s.auditTimer)
}
