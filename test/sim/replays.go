package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/test/recordtest"
)

// replaySeeds is the first seed whose dead letters are replayed.
const replaySeeds = regimeSeeds + 1

// replayedTopic is the target of tasks whose consumers often fail. Its records are judged here, and not by the fault runs' checker.
const replayedTopic = "replayed"

// drawReplays draws how many tasks there are whose letters are replayed. A replay is in no intake, so it is lost with the database's last
// commits.
func (p *plan) drawReplays() {
	if r := rand.New(rand.NewPCG(p.seed, 801)); p.setback.lost == 0 && !p.quota.Reject && !p.forgets && !p.silent && p.hush == hushNone && !p.hostile {
		p.replays = 5 + r.IntN(20)
	}
}

// replay sends the requests, and has two operators replay letters, also at the same time.
func (w *world) replay(begin time.Time) {
	if w.replays == 0 {
		return
	}
	r := rand.New(rand.NewPCG(w.seed, 809))
	for i := range w.replays {
		id, at := fmt.Sprint("replay-", i), begin.Add(time.Duration(r.Int64N(int64(w.load))))
		rec := &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(fmt.Sprint("k", i%5)), Value: []byte(strconv.Itoa(i)), Headers: recordtest.Headers(
			schemas.HeaderTopic, replayedTopic, schemas.HeaderID, id, schemas.HeaderDelay, "10ms", schemas.HeaderAck, "report",
			schemas.HeaderAckTimeout, fmt.Sprint(w.ackTimeout, "ms"), schemas.HeaderMaxAttempts, "1", schemas.HeaderEvents, "all")}
		w.replaying.Go(func() {
			time.Sleep(time.Until(at))
			w.client.Produce(context.Background(), rec, func(_ *kgo.Record, err error) {
				if err != nil {
					w.find("sim", "Kafka did not take a request: %v", err)
				}
			})
		})
	}
	for range 2 {
		filter := letters.Filter{Topic: replayedTopic}
		rate := float64(1 + r.IntN(3)) // so many letters a page, and a second
		var at []time.Duration
		for range 1 + r.IntN(4) {
			at = append(at, time.Duration(r.Int64N(int64(w.load+10*time.Second))))
		}
		for _, at := range at {
			w.replaying.Go(func() {
				time.Sleep(time.Until(begin.Add(at)))
				w.replayOnce(filter, rate)
			})
		}
	}
}

// replayOnce replays all letters, as the API does. A page whose answer is lost is asked for again.
func (w *world) replayOnce(f letters.Filter, rate float64) {
	ctx := context.Background()
	st, err := store.Open(ctx, store.Config{Connector: w.db.of(newProcess("replayer")), MaxConns: 2, Clock: w.db.clock, Life: lifeOf}, zap.NewNop())
	if err != nil {
		w.note("nothing is replayed: %v", err)
		return
	}
	defer func() { _ = st.Close() }()
	pager := deadletter.NewLocal(st, nil, "an operator", zap.NewNop())
	each := func(one intake.Replayed) {
		w.mu.Lock()
		twice := one.Skipped == "" && w.replayed[one.ID]
		w.replayed[one.ID] = w.replayed[one.ID] || one.Skipped == ""
		w.mu.Unlock()
		if twice {
			w.find("replays", "letter %d of %s was replayed twice", one.ID, one.TaskID)
		}
	}
	for {
		done, err := deadletter.Replay(ctx, pager, f, deadletter.Options{Rate: rate, Each: each})
		w.note("%d letters were replayed, %v were not: %v", done.Done, done.Reasons, err)
		if err == nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// reportReplayed is what the consumer does about a delivery: most first lives fail.
func (w *world) reportReplayed(r *kgo.Record) {
	d, _, err := schemas.ParseDelivery(r)
	if err != nil {
		w.find("replays", "a delivery cannot be read: %v", err)
		return
	}
	n, _ := strconv.Atoi(string(r.Value))
	rep := schemas.Report{Topic: r.Topic, ID: d.ID, Attempt: d.Attempt, Status: schemas.StatusOK, RetryAfter: schemas.NoRetryAfter, Delivery: d.Key}
	switch p := rand.New(rand.NewPCG(w.seed^uint64(d.Replay)<<32, uint64(n))).IntN(100); {
	case p < 50:
		rep.Status, rep.Error = schemas.StatusFail, "it is beyond me"
	case p < 60:
		return
	}
	w.client.Produce(context.Background(), schemas.EncodeReport(schemas.TopicReports, rep), nil)
}

// isReplayed tells whether a record is about a task whose letters are replayed.
func isReplayed(r *kgo.Record) bool {
	switch r.Topic {
	case schemas.TopicResults:
		e, err := schemas.DecodeEvent(r)
		return err == nil && e.Topic == replayedTopic
	case schemas.TopicIntake, schemas.TopicReports:
		for _, h := range r.Headers {
			if h.Key == schemas.HeaderTopic {
				return string(h.Value) == replayedTopic
			}
		}
		return false
	}
	return r.Topic == replayedTopic
}

// life of a task ends with a success, or with a letter, whose replay begins the next one.
type lives struct {
	keys      map[int]map[string]bool // the delivery keys of each, from 0
	succeeded bool
	letters   int
	replayed  int // of them
}

// judgeReplays: each letter that was replayed has brought one more delivery, and nothing else has. Each task has succeeded, or has a letter
// that nobody has replayed.
func (w *world) judgeReplays() {
	if w.replays == 0 {
		return
	}
	all := map[string]*lives{}
	for i := range w.replays {
		all[fmt.Sprint("replay-", i)] = &lives{keys: map[int]map[string]bool{}}
	}
	for _, a := range w.seen.all() {
		if !isReplayed(a.r) {
			continue
		}
		switch a.r.Topic {
		case replayedTopic:
			d, _, err := schemas.ParseDelivery(a.r)
			l := all[d.ID]
			if err != nil || l == nil || d.Attempt != 1 {
				w.find("replays", "attempt %d, replay %d, of %s: %v", d.Attempt, d.Replay, d.ID, err)
				continue
			}
			if l.keys[d.Replay] == nil {
				l.keys[d.Replay] = map[string]bool{}
			}
			l.keys[d.Replay][d.Key] = true
		case schemas.TopicResults:
			e, err := schemas.DecodeEvent(a.r)
			if l := all[e.ID]; l != nil && err == nil && e.State == schemas.StateSucceeded {
				l.succeeded = true
			}
		}
	}
	if err := w.countLetters(all); err != nil {
		w.find("sim", "counting letters: %v", err)
		return
	}
	for id, l := range all {
		for n := range l.replayed + 1 {
			if len(l.keys[n]) != 1 {
				w.find("replays", "%s has %d delivery keys of life %d, of %d letters %d were replayed", id, len(l.keys[n]), n, l.letters, l.replayed)
			}
		}
		if len(l.keys) > l.replayed+1 {
			w.find("replays", "%s was delivered in %d lives, and replayed %d times", id, len(l.keys), l.replayed)
		}
		if ended := l.letters - l.replayed; ended > 1 || (ended == 0) != l.succeeded {
			w.find("replays", "%s has %d letters, %d of them replayed, and has succeeded: %v", id, l.letters, l.replayed, l.succeeded)
		}
	}
}

// countLetters counts the letters of each task, and looks that those are marked as replayed whose operator was told so.
func (w *world) countLetters(all map[string]*lives) error {
	rows, err := w.looks.Query("SELECT id, task_id, replayed_at FROM dead_letters WHERE topic = ?", []byte(replayedTopic))
	if err != nil {
		return err
	}
	for rows.Next() {
		var id, at int64
		var task string
		if err := rows.Scan(&id, &task, &at); err != nil {
			return errors.Join(err, rows.Close())
		}
		l := all[task]
		if l == nil {
			w.find("replays", "letter %d is of nobody: %s", id, task)
			continue
		}
		if l.letters++; at > 0 {
			l.replayed++
		} else if w.replayed[id] {
			w.find("replays", "letter %d of %s was said to be replayed, and is not", id, task)
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}
