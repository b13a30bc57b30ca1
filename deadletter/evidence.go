package deadletter

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// evidence is what send logs and target topics prove about each task: about 100 bytes a task, and its
// id if it is a run of a timer.
type evidence struct {
	tasks   map[int64]sent
	refused map[int64]string // error text of tasks whose newest answer was a refusal
	topics  []string
	topicAt map[string]uint32
	runs    map[int64]string // ids of runs of timers, which no intake record would make again
}

// sent is what is known of one task's sending.
type sent struct {
	taken  int64 // Unix ms: when it was first noted as about to be sent
	at     int64 // Unix ms: of the newest answer
	proven int32 // the newest attempt with an answer, counted over all replays; 0: none
	noted  int32 // the newest attempt
	topic  uint32
	name   uint64 // of topic and id
	body   uint64
}

func newEvidence() *evidence {
	return &evidence{tasks: map[int64]sent{}, refused: map[int64]string{}, topicAt: map[string]uint32{}, runs: map[int64]string{}}
}

// LogRead is the result of reading one send log.
type LogRead struct {
	Dir     string `json:"dir"`
	Entries int    `json:"entries"`
	Damage  string `json:"damage,omitempty"` // what of it is missing; the tasks noted there are in doubt, or unknown
}

// read adds the entries of a send log from since on. It changes nothing in the log.
func (e *evidence) read(ctx context.Context, dir string, since time.Time, log *zap.Logger) (LogRead, error) {
	out := LogRead{Dir: dir}
	l, err := sendlog.Open(dir, sendlog.Config{Existing: true, Retention: math.MaxInt64}, log)
	if err != nil {
		return out, err
	}
	err = l.Replay(ctx, since, func(entry sendlog.Entry) error {
		out.Entries++
		e.note(entry)
		return nil
	})
	var damage *sendlog.DamageError
	if errors.As(err, &damage) {
		out.Damage, err = damage.Error(), nil
	}
	return out, errors.Join(err, l.Close())
}

func (e *evidence) note(entry sendlog.Entry) {
	if in := entry.Intent; in != nil {
		s, known := e.tasks[in.Seq]
		if !known || entry.At < s.taken {
			s.taken = entry.At
		}
		s.noted = max(s.noted, in.Attempt)
		s.topic, s.name, s.body = e.topic(in.Topic), nameOf(in.Topic, in.ID), in.BodyHash
		e.tasks[in.Seq] = s
		if src, _ := task.SplitSeq(in.Seq); src == task.RunSource {
			e.runs[in.Seq] = in.ID
		}
		return
	}
	if o := entry.Outcome; o.Acked {
		e.acknowledged(o.Seq, o.Attempt, o.At)
	} else if s, ok := e.tasks[o.Seq]; ok && o.Refused && o.Attempt > s.proven {
		s.proven, s.at = o.Attempt, o.At
		e.tasks[o.Seq], e.refused[o.Seq] = s, o.Error
	}
}

// acknowledged notes an answer of Kafka. If its intent is older or damaged, the answer cannot be
// assigned to a task.
func (e *evidence) acknowledged(seq int64, attempt int32, at int64) {
	s, ok := e.tasks[seq]
	_, refused := e.refused[seq]
	if !ok || attempt < s.proven || attempt == s.proven && !refused {
		return
	}
	s.proven, s.at = attempt, at
	e.tasks[seq] = s
	delete(e.refused, seq)
}

func (e *evidence) topic(name string) uint32 {
	at, ok := e.topicAt[name]
	if !ok {
		at = uint32(len(e.topics))
		e.topics, e.topicAt[name] = append(e.topics, name), at
	}
	return at
}

func nameOf(topic, id string) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(topic)
	_, _ = d.Write([]byte{0}) // never part of a topic name
	_, _ = d.WriteString(id)
	return d.Sum64()
}

// Of implements store.Evidence. The task must be the one that was sent, by name and content.
func (e *evidence) Of(t *task.Task) (task.Proof, bool) {
	s := e.tasks[t.Seq]
	if s.proven == 0 || !e.same(t) {
		return task.Proof{}, false
	}
	replay, attempt := task.SplitSendNumber(s.proven)
	return task.Proof{Taken: s.taken, Replay: replay, Attempt: attempt, At: s.at, Refused: e.refused[t.Seq]}, true
}

// same tells whether a task is the one that was noted under its seq, by name and content.
func (e *evidence) same(t *task.Task) bool {
	s, ok := e.tasks[t.Seq]
	return ok && s.name == nameOf(t.Topic, t.ID) && s.body == xxhash.Sum64(t.Body)
}

// sentRuns returns the runs of timers that were noted, in order.
func (e *evidence) sentRuns() []store.SentRun {
	out := make([]store.SentRun, 0, len(e.runs))
	for _, seq := range slices.Sorted(maps.Keys(e.runs)) {
		out = append(out, store.SentRun{Seq: seq, Topic: e.topics[e.tasks[seq].topic], ID: e.runs[seq]})
	}
	return out
}

// doubtful returns the tasks whose newest attempt has no answer, in order.
func (e *evidence) doubtful() []int64 {
	var out []int64
	for seq, s := range e.tasks {
		if s.noted > s.proven {
			out = append(out, seq)
		}
	}
	slices.Sort(out)
	return out
}

// seqs returns the tasks with a proof, in order.
func (e *evidence) seqs() []int64 {
	all := slices.Collect(maps.Keys(e.tasks))
	all = slices.DeleteFunc(all, func(seq int64) bool { return e.tasks[seq].proven == 0 })
	slices.Sort(all)
	return all
}
