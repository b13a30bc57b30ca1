package service

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store/shards"
)

const (
	// rulesEvery is the time between two looks at the databases' copies.
	rulesEvery = time.Second
	// rulesWithin bounds one look. It is longer than a move, which may have to be taken back.
	rulesWithin = 30 * time.Second
	// rulesFirst is how long a scanner waits for the other databases' rules before it begins.
	rulesFirst = 5 * time.Second
	// followWithin bounds one look at tasks that follow. The next one goes on.
	followWithin = 30 * time.Second
)

// readRules reads the copy of an engine's database, before the API asks that database. Where it
// fails, the next look follows in a second.
func (s *Service) readRules(e *Engine) {
	bound, cancel := context.WithTimeout(e.ctx, time.Second)
	defer cancel()
	if m, err := shards.New(e.store).Map(bound); err == nil {
		s.homes.Learn(&m)
	}
}

// databases returns the databases that are open.
func (s *Service) databases() shards.Databases {
	out := shards.Databases{}
	for _, sh := range s.shards {
		if e := sh.engine.Load(); e != nil {
			out[sh.number] = shards.New(e.store).Hinting(deadletter.NewLocal(e.store, e.index, "", e.log).Hint)
		}
	}
	return out
}

// tendRules reads the copies of the databases that answer, and brings them together.
func (s *Service) tendRules(ctx context.Context) {
	bound, cancel := context.WithTimeout(ctx, rulesWithin)
	defer cancel()
	latest, answer := s.databases().Latest(bound)
	if latest == nil {
		return
	}
	s.homes.Learn(latest)
	if err := answer.Tend(bound); err != nil && ctx.Err() == nil {
		s.log.Warn("the databases' rules about targets cannot be brought together, trying again", zap.Error(err))
	}
}

// follow has the tasks of moved targets follow them, and forgets those that did so long ago.
func (s *Service) follow(ctx context.Context) {
	all := s.databases()
	bound, cancel := context.WithTimeout(ctx, followWithin)
	defer cancel()
	if err := all.TakeUp(bound); err != nil && bound.Err() != nil && ctx.Err() == nil {
		s.log.Info("not all tasks of moved targets have followed yet, going on")
	} else if err != nil && ctx.Err() == nil {
		s.log.Warn("the tasks of moved targets do not follow, trying again", zap.Error(err))
	}
	if time.Since(s.forgot) < time.Minute {
		return
	}
	s.forgot = time.Now()
	// A backup of the new home may be as old as the intake's records.
	if err := all.Forget(ctx, max(s.cfg.Dispatcher.Retention, s.cfg.Migrate.Retention)); err != nil && ctx.Err() == nil {
		s.log.Warn("tasks that have followed their targets are not forgotten, trying again", zap.Error(err))
	}
}

// rulesBefore brings the rules together before a scanner begins: its database may be restored, and
// lack some. It does not wait long for databases that are away.
func (s *Service) rulesBefore(ctx context.Context) {
	if len(s.shards) == 1 {
		return
	}
	bound, cancel := context.WithTimeout(ctx, rulesFirst)
	defer cancel()
	for len(s.databases()) < len(s.shards) && loop.Rest(bound, 50*time.Millisecond) == nil {
	}
	s.tendRules(ctx)
}
