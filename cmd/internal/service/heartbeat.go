package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/command"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/shards"
)

// heartbeat notes in the database that this process lives, the kind of its index, and its intakes'
// targets, until the process leaves. Only the operators' view depends on these notes, and the
// refusal to start a service with other kinds or targets.
type heartbeat struct {
	store   *store.Store
	service admin.Service
	index   string       // the kind of its index
	intakes []api.Intake // that its scanner reads
	log     *zap.Logger
	every   time.Duration // default signsEvery
	figures func() []byte // what it says of its work; nil: nothing
	failing bool          // the last time
}

// signsEvery is the usual time between two notes.
const signsEvery = admin.ServiceLease * time.Millisecond / 3

func newHeartbeat(st *store.Store, kind, http, index string, log *zap.Logger) *heartbeat {
	host, _ := os.Hostname()
	return &heartbeat{store: st, index: index, log: log, service: admin.Service{
		ID: fmt.Sprintf("%s-%d-%s", host, os.Getpid(), uuid.NewString()[:8]), Kind: kind, Version: command.Version(), HTTP: http, Started: st.Clock().Millis(),
	}}
}

// say notes everything once. The service is in the list before its kind of index is noted: the last
// service before it, perhaps about to end, leaves the note to it. ErrRequired: this program is too
// old for the installation.
func (h *heartbeat) say(ctx context.Context) error {
	if err := admin.New(h.store).Beat(ctx, h.service); err != nil {
		return err
	}
	err := withRelease(h.store.CheckRequired(ctx))
	if err == nil && h.service.Databases == 1 {
		err = Joined(ctx, "", h.store, 0, 1)
	}
	if err == nil {
		err = admin.New(h.store).IndexBy(ctx, h.index)
	}
	for i := 0; err == nil && i < len(h.intakes); i++ {
		err = admin.New(h.store).IntakeFor(ctx, h.intakes[i].Topic, h.intakes[i].Limits.Target)
	}
	return err
}

// leaveTimeout limits the last word of a process.
const leaveTimeout = 2 * time.Second

func (h *heartbeat) leave() {
	bound, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := admin.New(h.store).Leave(bound, h.service.ID); err != nil {
		h.log.Debug("leaving the list of services failed; its lease ends soon", zap.Error(err))
	}
}

// run ends early only where this program is too old for the installation, or knows one of several
// databases alone: it may have stood still while the others came.
func (h *heartbeat) run(ctx context.Context) (tooOld error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	beat := func(ctx context.Context) {
		if err := h.beat(ctx); errors.Is(err, store.ErrRequired) || errors.Is(err, shards.ErrOtherShard) {
			tooOld = err
			end()
		}
	}
	beat(ctx)
	loop.Every(ctx, cmp.Or(h.every, signsEvery), beat)
	return tooOld
}

func (h *heartbeat) beat(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, admin.ServiceLease*time.Millisecond/3)
	defer cancel()
	if h.figures != nil {
		h.service.Figures = h.figures()
	}
	err := h.say(bound)
	if err != nil && !h.failing && ctx.Err() == nil {
		h.log.Warn("saying that this process is alive failed, trying again", zap.Error(err))
	}
	h.failing = err != nil
	return err
}
