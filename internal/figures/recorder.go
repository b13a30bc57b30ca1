package figures

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Config of a Recorder. Gather, Time and Save are required.
type Config struct {
	// Gather has the process's metrics.
	Gather prometheus.Gatherer
	// Time returns the time for all processes' minutes: the database's.
	Time func(ctx context.Context) (time.Time, error)
	// Save keeps the document of a minute (since 1970) with work. After a failure Save is called
	// again with the same minute, and must replace an earlier document.
	Save func(ctx context.Context, minute int64, document []byte) error
	// Targets returns the names of targets without an answer. Default none.
	Targets func() []string
	// Deliveries returns what was counted by target since the last call. Default nothing.
	Deliveries func() map[string]Deliveries
	// Every is the time between two readings of the metrics. Default 5 s.
	Every time.Duration
}

const (
	readEvery = 5 * time.Second
	window    = time.Minute
	// callTimeout limits a call to the database, and the last reading of the metrics.
	callTimeout = 3 * time.Second
	// askEvery is how often the database's time is asked for.
	askEvery = time.Minute
	// FinalAfter is how many minutes after its end a minute's figures can still arrive. Later
	// unsaved figures are dropped.
	FinalAfter = 10
)

// Recorder makes documents from a process's metrics, again and again. Only Run changes a Recorder,
// and nothing waits for one: an absent database costs minutes of the series, and a hanging metric
// costs all figures, but not the process.
type Recorder struct {
	cfg Config
	log *zap.Logger

	readings []dated // of the last minute, the oldest first
	minutes  minutes
	shown    time.Time // the database's time when it was last asked
	asked    time.Time // when that was, by this machine's monotonic clock; zero: never
	failing  bool
	latest   atomic.Pointer[latest] // written by Run, read by Now
}

type dated struct {
	at time.Time
	reading
	targets []string
}

type latest struct {
	at       time.Time
	document []byte
}

// NewRecorder starts nothing.
func NewRecorder(cfg Config, log *zap.Logger) *Recorder {
	cfg.Every = cmp.Or(cfg.Every, readEvery)
	return &Recorder{cfg: cfg, log: log, minutes: minutes{take: cfg.Deliveries}}
}

// Now returns the document of the last minute; nil: none is known.
func (r *Recorder) Now() []byte {
	l := r.latest.Load()
	if l == nil || time.Since(l.at) > 3*r.cfg.Every+2*callTimeout {
		return nil
	}
	return l.document
}

// Run works until ctx ends, and then saves the current minute.
func (r *Recorder) Run(ctx context.Context) error {
	readings := make(chan dated)
	go r.read(ctx, readings)
	for {
		select {
		case <-ctx.Done():
			r.leave(context.WithoutCancel(ctx))
			return nil
		case d := <-readings:
			r.take(d)
			r.learnTime(ctx)
			r.save(ctx)
		}
	}
}

// read hands on a reading each cfg.Every, on its own goroutine: a hanging metric cannot be stopped.
func (r *Recorder) read(ctx context.Context, out chan<- dated) {
	tick := time.NewTicker(r.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case out <- r.readNow():
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Recorder) readNow() dated {
	d := dated{reading: read(r.cfg.Gather)}
	if r.cfg.Targets != nil {
		d.targets = r.cfg.Targets()
	}
	d.at = time.Now()
	return d
}

// take makes the document of the last minute. The first reading counts from zero, a process' start.
func (r *Recorder) take(d dated) {
	if len(r.readings) == 0 {
		r.readings = append(r.readings, dated{at: d.at.Add(-r.cfg.Every)})
	}
	r.readings = append(r.readings, d)
	for len(r.readings) > 2 && d.at.Sub(r.readings[1].at) >= window {
		r.readings = r.readings[1:]
	}
	oldest := r.readings[0]
	now := Now{Window: max(d.at.Sub(oldest.at).Milliseconds(), 1), Last: d.counts.since(oldest.counts), Levels: d.levels, Targets: d.targets}
	r.latest.Store(&latest{d.at, now.encode()})
	if !r.asked.IsZero() { // before, nobody knows which minute it is
		r.minutes.note(r.shown.Add(d.at.Sub(r.asked)).Unix()/60, d.counts)
	}
}

// learnTime asks for the database's time, once a minute and again after a failure.
func (r *Recorder) learnTime(ctx context.Context) {
	if !r.asked.IsZero() && time.Since(r.asked) < askEvery {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	sent := time.Now()
	shown, err := r.cfg.Time(ctx)
	if err != nil {
		r.note(err)
		return
	}
	r.shown, r.asked = shown, sent
}

// save saves one ended minute: the rest follow with the next readings.
func (r *Recorder) save(ctx context.Context) {
	if len(r.minutes.ended) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m := r.minutes.ended[0]
	err := r.cfg.Save(ctx, m.minute, m.document)
	r.note(err)
	if err == nil {
		r.minutes.ended = r.minutes.ended[1:]
	}
}

// note logs the first of several failures.
func (r *Recorder) note(err error) {
	if err != nil && !r.failing {
		r.log.Warn("operators do not see this process's figures of the last minutes, trying again", zap.Error(err))
	}
	r.failing = err != nil
}

// leave saves the current minute by the metrics after the end of the other parts.
func (r *Recorder) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	last := make(chan dated, 1)
	go func() { last <- r.readNow() }()
	select {
	case d := <-last:
		r.take(d)
	case <-ctx.Done():
	}
	r.minutes.end()
	for len(r.minutes.ended) > 0 && ctx.Err() == nil {
		m := r.minutes.ended[0]
		if err := r.cfg.Save(ctx, m.minute, m.document); err != nil {
			r.log.Debug("the figures of this process's last minute are lost", zap.Error(err))
			return
		}
		r.minutes.ended = r.minutes.ended[1:]
	}
}

type minutes struct {
	current int64  // minutes since 1970; 0: none has begun
	begun   Counts // as the counters stood when it began
	last    Counts // as they stand
	ended   []endedMinute
	take    func() map[string]Deliveries
}

type endedMinute struct {
	minute   int64
	document []byte
}

// note notes the counters' state in a minute. The clock may waver at the turn of a minute: work of
// the previous minute counts into the current one. A clock set back further counts: the minutes of
// a wrong future are replaced in their time.
func (m *minutes) note(minute int64, counts Counts) {
	m.last = counts
	if m.current == 0 {
		m.current = minute
		return
	}
	if minute > m.current || minute < m.current-1 {
		m.end()
		m.current = minute
	}
}

// end ends the minute. A minute without work is not kept.
func (m *minutes) end() {
	if done := m.last.since(m.begun); m.current != 0 && !done.empty() {
		figures := Minute{Counts: done}
		if m.take != nil {
			figures.Targets = m.take()
		}
		m.ended = append(m.ended, endedMinute{m.current, figures.encode()})
	}
	m.begun = m.last
	if n := len(m.ended) - FinalAfter; n > 0 {
		m.ended = m.ended[n:]
	}
}
