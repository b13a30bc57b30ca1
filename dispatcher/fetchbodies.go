package dispatcher

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/dispatcher/flight"
	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/sendlog"
	"github.com/notyet/notyet/internal/tracing"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// fetcher reads the bodies of claimed tasks while there is room, and notes in the send log that the
// tasks are about to be sent. Only its own loop uses a fetcher.
type fetcher struct {
	*shared
	flight  flight.Bodies
	trust   *trust
	sent    *sendlog.Log
	sources *sources
	tracer  *tracing.Tracer // nil: nobody is traced
}

func newFetcher(sh *shared, fl flight.Bodies, tr *trust, sent *sendlog.Log, tracer *tracing.Tracer) *fetcher {
	return &fetcher{shared: sh, flight: fl, trust: tr, sent: sent, sources: &sources{intake: sh.intake}, tracer: tracer}
}

// run reads bodies while there is room for them, notes the intents, and stages the tasks.
func (f *fetcher) run(ctx context.Context) {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for ctx.Err() == nil {
		batch, wait := f.flight.Next()
		if batch != nil {
			f.fetch(ctx, batch)
			continue
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-f.kicks.Fetch: // something was claimed, or has left memory
		case <-timer.C: // something has come to be due
		}
	}
}

// fetch reads the bodies of a batch and notes their intents, again and again until it succeeds:
// these tasks are claimed.
func (f *fetcher) fetch(ctx context.Context, batch *flight.Batch) {
	began := time.Now()
	var rows []task.Task
	var rest []int64
	f.until(ctx, "reading task bodies", func(ctx context.Context) (err error) {
		rows, rest, err = f.line.Tasks(ctx, batch.Seqs(), batch.Bytes)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	f.until(ctx, "reading the sources of tasks", func(ctx context.Context) error { return f.sources.learn(ctx, rows) })
	if ctx.Err() != nil {
		return
	}
	ready := batch.Read(rows, rest, f.sources, f.tracer)
	for ctx.Err() == nil && !f.trust.trusted() { // others may have taken the slots while the database did not answer
		loop.Rest(ctx, 10*time.Millisecond)
	}
	f.giveBack(ctx, ready)
	f.noteIntents(ctx, ready.Intents())
	if ctx.Err() != nil {
		return
	}
	f.metrics.fetchTime.Observe(time.Since(began).Seconds())
	ready.Logged()
}

// giveBack gives tasks in doubt back that were cancelled before the database was set back.
// Scanners have read the cancels again by now, for the dispatcher is trusted.
func (f *fetcher) giveBack(ctx context.Context, ready *flight.Ready) {
	doubtful := ready.Doubtful()
	if len(doubtful) == 0 {
		return
	}
	f.until(ctx, "looking for cancels of tasks in doubt", func(ctx context.Context) error {
		cancelled, err := f.intake.CancelledAgain(ctx, doubtful)
		if err == nil && len(cancelled) > 0 {
			f.log.Info("tasks that the database has as claimed were cancelled, and are given back", zap.Int("tasks", len(cancelled)))
			ready.GiveBack(cancelled)
		}
		return err
	})
}

// noteIntents writes to the send log, synced, which tasks are about to be sent. It tries again
// until it succeeds or ctx ends: without its intent a task is not staged, and so is never sent.
func (f *fetcher) noteIntents(ctx context.Context, intents []sendlog.Intent) {
	f.until(ctx, "noting intents in the send log", func(ctx context.Context) error {
		if err := f.sent.AppendIntents(ctx, intents); err != nil {
			return err
		}
		return faultpoint.At(faultpoint.DispatcherLogged)
	})
}

// sources returns idempotency keys from intake positions and send numbers.
type sources struct {
	intake  intake.Intake
	tenants *flight.Tenants // is told which intakes they are
	known   map[int]intake.Source
}

// learn reads the sources anew for a task from an unknown one. Sources are only ever added.
func (s *sources) learn(ctx context.Context, rows []task.Task) error {
	for i := range rows {
		src, _ := task.SplitSeq(rows[i].Seq)
		if _, ok := s.known[src]; ok {
			continue
		}
		all, err := s.intake.DeliverySources(ctx)
		if err != nil {
			return err
		}
		s.known = make(map[int]intake.Source, len(all))
		intakes := make(map[int]string, len(all))
		for _, a := range all {
			s.known[a.ID], intakes[a.ID] = a, a.Topic
		}
		s.tenants.Learn(intakes)
		return nil
	}
	return nil
}

func (s *sources) DeliveryKey(seq int64, number int) (string, error) {
	src, offset := task.SplitSeq(seq)
	known, ok := s.known[src]
	if !ok {
		return "", fmt.Errorf("it came from source %d, which table sources does not have", src)
	}
	return known.DeliveryKey(offset, number), nil
}
