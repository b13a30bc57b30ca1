package flight

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// Bodies is for the fetch loop.
type Bodies struct{ *machine }

// Batch is a run of claimed tasks, for one reading of bodies.
type Batch struct {
	*machine
	Bytes int // of bodies there is room for
	tasks []*Task
	bySeq map[int64]*Task
}

func newBatch(m *machine, tasks []*Task, bytes int) *Batch {
	b := &Batch{machine: m, Bytes: bytes, tasks: tasks, bySeq: make(map[int64]*Task, len(tasks))}
	for _, t := range tasks {
		b.bySeq[t.seq] = t
	}
	return b
}

// Ready are the tasks of a batch to be sent, with their bodies.
type Ready struct {
	*Batch
	tasks []*Task
}

// Seqs names the tasks.
func (b *Batch) Seqs() []int64 {
	seqs := make([]int64, len(b.tasks))
	for i, t := range b.tasks {
		seqs[i] = t.seq
	}
	return seqs
}

// Next returns tasks whose bodies are to be read, or nil and after which time to ask again. Next
// makes room where room is scarce. The clock says what is due: with little room left, tasks claimed
// ahead and due by now go in the order of time with those that came late. Only the fetch loop calls
// Next.
func (fl Bodies) Next() (*Batch, time.Duration) {
	fl.mu.Lock()
	room, bytes, scarce := fl.bodyRoom()
	fl.mu.Unlock()
	if room <= 0 || bytes <= 0 {
		return nil, time.Second
	}
	until := int64(never)
	if scarce {
		until = fl.clock.Millis() + lead.Milliseconds()
	}
	for {
		tasks, wait := fl.backlog.take(room, until)
		if len(tasks) == 0 {
			return nil, wait
		}
		fl.mu.Lock()
		tasks, again := fl.readable(tasks)
		fl.mu.Unlock()
		if len(tasks) > 0 {
			return newBatch(fl.machine, tasks, bytes), 0
		}
		if again { // there may be many: the release of due tasks gets the lock in between
			return nil, 0
		}
	}
}

// bodyRoom makes scarce room for bodies, and says how much there is.
func (fl Bodies) bodyRoom() (tasks, bytes int, scarce bool) {
	fl.giveWay()
	tasks, bytes = fl.staging.room()
	return tasks, bytes, fl.staging.scarce()
}

// readable leaves out tasks of lost slots, and tasks to be held or put off without their bodies.
// aside says that there were some of the latter.
func (fl Bodies) readable(batch []*Task) (out []*Task, aside bool) {
	out = slices.DeleteFunc(batch, func(t *Task) bool {
		if t.slot.abandoned {
			return true
		}
		goes := fl.gates.diverts(t) || fl.parksAgain(t)
		aside = aside || goes
		return goes
	})
	return out, aside
}

// DeliveryKeys returns the idempotency key of an attempt.
type DeliveryKeys interface {
	DeliveryKey(seq int64, number int) (string, error)
}

// Tenants are the intakes of tasks, as far as they are known.
type Tenants struct {
	bySource atomic.Pointer[map[int]string]
}

// Learn takes the intakes of all sources.
func (ts *Tenants) Learn(intakes map[int]string) { ts.bySource.Store(&intakes) }

// of returns the intake of a task; "" of a timer's run, and of a task with an unknown intake.
func (ts *Tenants) of(seq int64) string {
	if known := ts.bySource.Load(); known != nil {
		source, _ := task.SplitSeq(seq)
		return (*known)[source]
	}
	return ""
}

// Read takes the rows of a batch, and the seqs of tasks for whose bodies there was no room. It
// returns the tasks to be sent: their intents go to the send log next, and then Logged takes them.
func (b *Batch) Read(rows []task.Task, rest []int64, keys DeliveryKeys, tracer *tracing.Tracer) *Ready {
	if len(rest) > 0 {
		rows = b.readAgain(rows, rest)
	}
	b.metrics.Bodies.Add(float64(len(rows)))
	ready := make([]*Task, 0, len(rows))
	contents := make([]content, len(rows)) // one allocation for all
	made := make([]*content, 0, len(rows))
	failed := map[*Task]error{}
	var moved []*Task
	for i := range rows {
		row := &rows[i]
		t := b.bySeq[row.Seq]
		delete(b.bySeq, row.Seq)
		// A report, or a late answer to an earlier sending, may have ended or moved the task after
		// the claim was read and before it entered. To send the task now would deliver twice.
		if row.Slot != t.slot.number || row.Pos != t.pos {
			moved = append(moved, t)
			continue
		}
		if err := b.prepare(t, &contents[i], row, keys, tracer); err != nil {
			failed[t] = err
		}
		ready = append(ready, t)
		made = append(made, &contents[i])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range moved {
		b.gone(t)
		b.kicks.Settle.Now()
	}
	for i, t := range ready {
		t.content = made[i]
	}
	for t, err := range failed {
		b.deadLetter(t, schemas.KindUndeliverable, "no record can be made of it: "+err.Error())
	}
	ready = slices.DeleteFunc(ready, func(t *Task) bool { return failed[t] != nil })
	return &Ready{b, b.parkUnsent(ready)}
}

// gone closes the place of a task that stands elsewhere by now.
func (fl *machine) gone(t *Task) {
	t.status = left
	fl.proofs.forget(t.seq)
}

// readAgain keeps of the rows only those before every unread task: tasks of one key must not
// overtake each other here. The others are read again, in smaller bites, until the first of them
// fits.
func (b *Batch) readAgain(rows []task.Task, rest []int64) []task.Task {
	order := func(a, o *Task) int { return cmp.Or(cmp.Compare(a.pos, o.pos), cmp.Compare(a.seq, o.seq)) }
	unread := make([]*Task, len(rest), len(b.bySeq))
	for i, seq := range rest {
		unread[i] = b.bySeq[seq]
	}
	first := slices.MinFunc(unread, order)
	bite := max(len(rows)/2, 1)
	rows = slices.DeleteFunc(rows, func(row task.Task) bool {
		t := b.bySeq[row.Seq]
		late := order(t, first) > 0
		if late {
			unread = append(unread, t)
		}
		return late
	})
	for _, t := range unread {
		delete(b.bySeq, t.seq)
	}
	slices.SortFunc(unread, order)
	b.backlog.putBack(unread, bite)
	return rows
}

// Doubtful names the tasks that an earlier owner may have sent, if no send log proves it.
func (r *Ready) Doubtful() (seqs []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if t.doubt && !t.slot.abandoned && r.proofs[t.seq] == nil && (t.state == task.StateLine || t.idle) {
			seqs = append(seqs, t.seq)
		}
	}
	return seqs
}

// cancelsWithin is for how long a task that was given back is not claimed again: a scanner
// decides its cancel meanwhile.
const cancelsWithin = 30 * time.Second

// GiveBack puts tasks back that are not to be sent before a cancel of them is decided.
func (r *Ready) GiveBack(seqs []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pos := r.clock.Latest() + cancelsWithin.Milliseconds()
	r.tasks = slices.DeleteFunc(r.tasks, func(t *Task) bool {
		back := slices.Contains(seqs, t.seq)
		if back {
			r.putBack(t, task.StateLine, pos, t.attempt)
			t.dropContent()
		}
		return back
	})
}

// Intents are the attempts about to be made. A task without a record sends nothing and has no
// intent, nor has one of a lost slot.
func (r *Ready) Intents() []sendlog.Intent {
	intents := make([]sendlog.Intent, 0, len(r.tasks))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tasks {
		if t.record != nil && !t.slot.abandoned {
			intents = append(intents, sendlog.Intent{Seq: t.seq, Attempt: t.sendNumber(), Slot: int32(t.slot.number), Epoch: t.slot.epoch,
				Due: t.due, Topic: t.topic, ID: t.id, BodyHash: xxhash.Sum64(t.body)})
		}
	}
	return intents
}

// Logged takes tasks with intents in the send log: they wait for their instant. A task proven
// delivered by the send log is settled instead.
func (r *Ready) Logged() {
	now := r.clock.Millis()
	r.mu.Lock()
	defer r.mu.Unlock()
	// Nobody may remove a claimed row, short of a hand in the database, and of a report on an
	// earlier owner's delivery followed by another task of the same id. Such a task cannot be sent,
	// and must not hold up its slot.
	for _, t := range r.bySeq {
		r.gone(t)
		r.log.Error("a claimed task has no row", zap.Int64("seq", t.seq), zap.Int("slot", t.slot.number), zap.Bool("abandoned", t.slot.abandoned))
	}
	for _, t := range r.tasks {
		if t.slot.abandoned {
			continue
		}
		t.status = staged
		r.gates.keepsTurn(t)
		if t.at < now {
			r.metrics.StagedLate.Inc()
		}
		r.staging.add(t)
		if at, ok := r.proofs.take(t); ok && t.doubt && t.record != nil {
			r.metrics.Proven.Inc()
			t.arrived = true
			r.unsettled.delivered(t)
			r.inbox.concludes(outcome{task: t, at: at, known: true})
			r.kicks.Settle.Now()
			continue
		}
		r.due.push(t)
	}
	r.kicks.Release.Now()
}

// parkUnsent puts off those of the tasks, just read, whose outlets are closed, and returns the
// others. A task that an earlier owner may have sent goes on: the send log may know more.
func (b *Batch) parkUnsent(tasks []*Task) []*Task {
	now := b.clock.Millis()
	return slices.DeleteFunc(tasks, func(t *Task) bool {
		if t.record == nil || t.doubt || t.isProbe || t.slot.abandoned {
			return false
		}
		g := b.outlets.closing(b.outlets.keyOf(t), time.Now())
		if g == nil || g.bar().ReadToAsk(time.Now()) {
			return false
		}
		if bound := t.settings.MaxLateness.Milliseconds(); bound > 0 && now > t.due+bound {
			return false
		}
		t.outletKey = g.outletKey
		b.putOff(t, g)
		t.dropContent()
		return true
	})
}
