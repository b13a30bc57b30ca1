package main

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"

	"github.com/notyet/notyet/cmd/internal/command"
	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/store/letters"
)

// bar shows a person the progress of a long command.
type bar struct {
	writer  progress.Writer
	tracker *progress.Tracker
}

// bar returns an empty bar, which shows nothing, unless standard error is a terminal.
func (a *app) bar(b *backend, what string, f letters.Filter) *bar {
	if !command.IsTerminal(a.Stderr) {
		return &bar{}
	}
	total, err := b.CountLetters(a.Ctx, f)
	if err != nil {
		return &bar{} // the command itself will get the same error
	}
	if f.Limit > 0 {
		total = min(total, int64(f.Limit))
	}
	w := progress.NewWriter()
	w.SetOutputWriter(command.Raw(a.Stderr))
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.SetAutoStop(false)
	t := &progress.Tracker{Message: what, Total: total}
	w.AppendTracker(t)
	go w.Render()
	return &bar{w, t}
}

func (b *bar) show(p deadletter.Progress) {
	if b.tracker != nil {
		b.tracker.SetValue(p.Done + p.Skipped)
	}
}

func (b *bar) end() {
	if b.tracker == nil {
		return
	}
	b.tracker.MarkAsDone()
	b.writer.Stop()
	for b.writer.IsRenderInProgress() {
		time.Sleep(10 * time.Millisecond)
	}
}
