package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/internal/kafka"
)

// errStuck means: a part did not stop in time and may still be at work.
var errStuck = errors.New("not done")

type part struct {
	name string
	run  func(ctx context.Context) error
}

// lifecycle runs the parts of a service side by side, and stops the last first, one by one.
type lifecycle struct {
	log         *zap.Logger
	stopTimeout time.Duration // limit for the whole stop
	parts       []part
	stopping    func() // called when the stop begins
}

func (l *lifecycle) add(name string, run func(ctx context.Context) error) {
	l.parts = append(l.parts, part{name, run})
}

type running struct {
	part
	stop context.CancelFunc
	done chan struct{}
}

// run returns after ctx or any part has ended, and all parts have stopped or stopTimeout is over.
// After kafka.ErrOlderCopy it does not wait for them.
func (l *lifecycle) run(ctx context.Context) error {
	var group errgroup.Group
	ended := make(chan error, len(l.parts))
	started := make([]running, 0, len(l.parts))
	for _, p := range l.parts {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		r := running{part: p, stop: stop, done: make(chan struct{})}
		started = append(started, r)
		group.Go(func() error {
			defer close(r.done)
			err := p.run(own)
			if err == nil && own.Err() == nil {
				err = fmt.Errorf("%s ended by itself", p.name)
			} else if err != nil {
				err = fmt.Errorf("%s: %w", p.name, err)
			}
			ended <- err
			return err
		})
	}
	var cause error
	select {
	case <-ctx.Done():
	case cause = <-ended:
	}
	l.log.Info("stopping", zap.Error(cause))
	l.stopping()
	if errors.Is(cause, kafka.ErrOlderCopy) { // nothing more may be sent: nobody drains
		for _, r := range started {
			r.stop()
		}
		return cause
	}
	if err := l.stopAll(started); err != nil {
		return err
	}
	return group.Wait()
}

func (l *lifecycle) stopAll(started []running) error {
	bound := time.NewTimer(l.stopTimeout)
	defer bound.Stop()
	for i, r := range slices.Backward(started) {
		began := time.Now()
		r.stop()
		select {
		case <-r.done:
			l.log.Info("stopped", zap.String("part", r.name), zap.Duration("took", time.Since(began)))
		case <-bound.C:
			for _, left := range started[:i] {
				left.stop()
			}
			return fmt.Errorf("stopping: %s was %w after %s in all (stop-timeout); what it had at hand is left to its successor", r.name, errStuck, l.stopTimeout)
		}
	}
	return nil
}
