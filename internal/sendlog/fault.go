package sendlog

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.uber.org/zap"
)

// ErrBroken says that the disk refused a write, or hung. The log takes no more in this process.
var ErrBroken = errors.New("the send log is broken")

// fault is where pebble's fatal errors end up.
type fault struct {
	log    *zap.Logger
	broken chan struct{} // closed when broken

	once  sync.Once
	cause error
}

func newFault(log *zap.Logger) *fault {
	return &fault{log: log, broken: make(chan struct{})}
}

func (f *fault) breakWith(cause error) {
	f.once.Do(func() {
		f.cause = cause
		f.log.Error("send log is broken until the process restarts", zap.Error(cause))
		close(f.broken)
	})
}

func errSilent(patience time.Duration) error {
	return fmt.Errorf("the disk has not answered for %v", patience)
}

// err is nil until the log breaks.
func (f *fault) err() error {
	select {
	case <-f.broken:
		return fmt.Errorf("%w: %w", ErrBroken, f.cause)
	default:
		return nil
	}
}

func (f *fault) events() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			f.log.Warn("send log writes in the background fail, pebble tries again", zap.Error(err))
		},
		// Otherwise a damaged table would be fatal. Replay reports the damage.
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			f.log.Error("send log table is damaged", zap.String("path", info.Path), zap.Error(info.Details))
		},
		DiskSlow: func(info pebble.DiskSlowInfo) {
			f.log.Warn("send log disk is slow", zap.String("path", info.Path), zap.Duration("took", info.Duration))
		},
		WriteStallBegin: func(info pebble.WriteStallBeginInfo) {
			f.log.Warn("send log appends stall", zap.String("reason", info.Reason))
		},
		WriteStallEnd: func() { f.log.Info("send log appends go on") },
	}
}

type pebbleLog struct{ *fault }

func (p pebbleLog) Infof(format string, args ...any) {
	p.log.Debug("pebble", zap.String("message", fmt.Sprintf(format, args...)))
}

func (p pebbleLog) Errorf(format string, args ...any) {
	p.log.Warn("pebble", zap.String("message", fmt.Sprintf(format, args...)))
}

// Fatalf never returns, as pebble expects: afterwards pebble would report success for unwritten
// batches, and go on in an unforeseen state. It does not end the process either, with other work
// under way.
func (p pebbleLog) Fatalf(format string, args ...any) {
	p.breakWith(fatal(format, args))
	select {}
}

// fatal keeps the error among the arguments for errors.Is.
func fatal(format string, args []any) error {
	for _, a := range args {
		if err, ok := a.(error); ok {
			return fmt.Errorf("%s%w", fmt.Sprintf("pebble gave up (%s): ", format), err)
		}
	}
	return fmt.Errorf("pebble gave up: %s", fmt.Sprintf(format, args...))
}
