package deadletter

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// evidence is the proof by send logs and target topics about each task: about 100 bytes a task,
// plus the id of a timer's run.
type evidence struct {
	tasks   map[sendlog.Subject]sent
	noted   sendlog.Subjects           // of the log that is being read
	refused map[sendlog.Subject]string // error text of tasks whose newest answer was a refusal
	topics  []string
	topicAt map[string]uint32
	runs    map[int64]intake.SentRun // runs of timers, which no intake record would make again
}

type sent struct {
	taken  int64 // Unix ms: when it was first noted as about to be sent
	at     int64 // Unix ms: of the newest answer
	proven int32 // the newest attempt with an answer, counted over all replays; 0: none
	noted  int32 // the newest attempt
	topic  uint32
	id     uint64 // hash
}

func newEvidence() *evidence {
	return &evidence{tasks: map[sendlog.Subject]sent{}, noted: sendlog.Subjects{}, refused: map[sendlog.Subject]string{}, topicAt: map[string]uint32{}, runs: map[int64]intake.SentRun{}}
}

// LogRead is the result of reading one send log.
type LogRead struct {
	Dir     string `json:"dir"`
	Entries int    `json:"entries"`
	Damage  string `json:"damage,omitempty"` // what of it is missing; the tasks noted there are in doubt, or unknown
}

// read adds the entries of an installation's send log from since on. The log stays unchanged.
func (e *evidence) read(ctx context.Context, dir, installation string, since time.Time, log *zap.Logger) (LogRead, error) {
	out := LogRead{Dir: dir}
	l, err := sendlog.Open(dir, sendlog.Config{Existing: true, Retention: math.MaxInt64, Installation: installation}, log)
	if err != nil {
		return out, err
	}
	e.noted = sendlog.Subjects{}
	defer func() { e.noted = nil }()
	err = l.Replay(ctx, since, func(entry sendlog.Entry) error {
		out.Entries++
		e.note(entry)
		return nil
	})
	if damage, ok := errors.AsType[*sendlog.DamageError](err); ok {
		out.Damage, err = damage.Error(), nil
	}
	return out, errors.Join(err, l.Close())
}

func (e *evidence) note(entry sendlog.Entry) {
	if in := entry.Intent; in != nil {
		subject := e.noted.Note(in)
		s, known := e.tasks[subject]
		if !known || entry.At < s.taken {
			s.taken = entry.At
		}
		s.noted = max(s.noted, in.Attempt)
		s.topic, s.id = e.topic(in.Topic), xxhash.Sum64String(in.ID)
		e.tasks[subject] = s
		if task.IsRun(in.Seq) {
			e.runs[in.Seq] = intake.SentRun{Seq: in.Seq, Topic: in.Topic, ID: in.ID}
		}
		return
	}
	o := entry.Outcome
	subject, ok := e.noted.Of(o)
	if !ok {
		return // its intent is older or damaged: the answer cannot be assigned to a task
	}
	if s := e.tasks[subject]; o.Acked {
		e.acknowledged(subject, o.Attempt, o.At)
	} else if o.Refused && o.Attempt > s.proven {
		s.proven, s.at = o.Attempt, o.At
		e.tasks[subject], e.refused[subject] = s, o.Error
	}
}

func (e *evidence) acknowledged(subject sendlog.Subject, attempt int32, at int64) {
	s := e.tasks[subject]
	if _, refused := e.refused[subject]; attempt < s.proven || attempt == s.proven && !refused {
		return
	}
	s.proven, s.at = attempt, at
	e.tasks[subject] = s
	delete(e.refused, subject)
}

func (e *evidence) topic(name string) uint32 {
	at, ok := e.topicAt[name]
	if !ok {
		at = uint32(len(e.topics))
		e.topics, e.topicAt[name] = append(e.topics, name), at
	}
	return at
}

func subjectOf(t *task.Task) sendlog.Subject {
	return sendlog.SubjectOf(t.Seq, t.Topic, t.ID, xxhash.Sum64(t.Body))
}

// Of implements intake.Evidence. The task must be the sent one, by name and content.
func (e *evidence) Of(t *task.Task) (task.Proof, bool) {
	subject := subjectOf(t)
	s := e.tasks[subject]
	if s.proven == 0 {
		return task.Proof{}, false
	}
	replay, attempt := task.SplitSendNumber(s.proven)
	return task.Proof{Taken: s.taken, Replay: replay, Attempt: attempt, At: s.at, Refused: e.refused[subject]}, true
}

// same tells whether a task was noted in a log, by number, name and content.
func (e *evidence) same(t *task.Task) bool {
	_, ok := e.tasks[subjectOf(t)]
	return ok
}

// sentRuns returns the noted runs of timers, in order.
func (e *evidence) sentRuns() []intake.SentRun {
	out := make([]intake.SentRun, 0, len(e.runs))
	for _, seq := range slices.Sorted(maps.Keys(e.runs)) {
		out = append(out, e.runs[seq])
	}
	return out
}

// doubtful returns the tasks without an answer to the newest attempt, in order.
func (e *evidence) doubtful() []sendlog.Subject {
	return e.subjects(func(s sent) bool { return s.noted > s.proven })
}

// proven returns the tasks with a proof, in order.
func (e *evidence) proven() []sendlog.Subject {
	return e.subjects(func(s sent) bool { return s.proven > 0 })
}

func (e *evidence) subjects(which func(sent) bool) []sendlog.Subject {
	var out []sendlog.Subject
	for subject, s := range e.tasks {
		if which(s) {
			out = append(out, subject)
		}
	}
	slices.SortFunc(out, func(a, b sendlog.Subject) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.What, b.What)) })
	return out
}

func seqsOf(subjects []sendlog.Subject) []int64 {
	out := make([]int64, len(subjects))
	for i, s := range subjects {
		out[i] = s.Seq
	}
	return slices.Compact(out)
}
