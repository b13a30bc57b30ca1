package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/notyet/notyet/test/chaos/check"
	"github.com/notyet/notyet/test/chaos/history"
)

// story keeps what happened, for a seed that fails.
type story struct {
	start time.Time
	mu    sync.Mutex
	lines []line
	said  map[string]int
}

type line struct {
	at   time.Time
	who  string
	what string
}

// level is what a story tells of: SIM_DEBUG=1 has the small print too.
var level = func() zapcore.Level {
	if os.Getenv("SIM_DEBUG") != "" {
		return zapcore.DebugLevel
	}
	return zapcore.InfoLevel
}()

func newStory(start time.Time) *story { return &story{start: start, said: map[string]int{}} }

func (s *story) note(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line{time.Now(), who, fmt.Sprintf(format, args...)})
}

// logger is a process's.
func (s *story) logger(name string) *zap.Logger {
	return zap.New(&core{s: s, who: name})
}

type core struct {
	s      *story
	who    string
	fields []zapcore.Field
}

func (c *core) Enabled(l zapcore.Level) bool { return l >= level }
func (c *core) With(f []zapcore.Field) zapcore.Core {
	return &core{c.s, c.who, append(slices.Clip(c.fields), f...)}
}
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	enc := zapcore.NewMapObjectEncoder()
	for _, f := range append(slices.Clip(c.fields), fields...) {
		f.AddTo(enc)
	}
	if c.s.again(c.who + e.Message) {
		return nil
	}
	text := e.Message
	keys := make([]string, 0, len(enc.Fields))
	for k := range enc.Fields {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k != "errorVerbose" {
			text += fmt.Sprintf(" %s=%v", k, enc.Fields[k])
		}
	}
	c.s.note(c.who, "%s", text)
	return nil
}

// again says whether somebody has said the same often enough.
func (s *story) again(what string) bool {
	often := 6
	if level == zapcore.DebugLevel {
		often = 1000
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said[what]++
	return s.said[what] > often
}

func (c *core) Sync() error { return nil }

// clock shows an instant of the run: seconds from its start.
func (s *story) clock(at int64) string {
	return fmt.Sprintf("%9.3f", float64(at-s.start.UnixMilli())/1000)
}

// tell writes the account: what was found, what the tasks concerned went through, and what everybody did.
func (s *story) tell(p plan, h *history.History, findings []check.Finding) string {
	var b strings.Builder
	fmt.Fprintln(&b, p.String())
	for i, f := range findings {
		if i == 10 {
			fmt.Fprintf(&b, "… and %d more\n", len(findings)-i)
			break
		}
		fmt.Fprintln(&b, "FOUND", f)
	}
	told := map[string]bool{}
	for _, f := range findings {
		if key := f.Topic + "/" + f.ID; f.ID != "" && !told[key] && len(told) < 3 {
			told[key] = true
			fmt.Fprintf(&b, "--- %s\n", key)
			for _, e := range s.task(h, f.Topic, f.ID) {
				fmt.Fprintf(&b, "%s %s\n", s.clock(e.at), e.what)
			}
		}
	}
	fmt.Fprintln(&b, "--- everybody")
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	if len(lines) > 400 && level != zapcore.DebugLevel {
		lines = lines[:400]
	}
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %-13s %s\n", s.clock(l.at.UnixMilli()), l.who, l.what)
	}
	return b.String()
}

type entry struct {
	at   int64
	what string
}

// task is all that the history has of one.
func (s *story) task(h *history.History, topic, id string) (out []entry) {
	add := func(at int64, format string, args ...any) { out = append(out, entry{at, fmt.Sprintf(format, args...)}) }
	for i := range h.Ops {
		if o := &h.Ops[i]; o.Topic == topic && (o.ID == id || o.ID == "" && strings.HasSuffix(id, fmt.Sprintf("/%d/%d", o.Partition, o.Offset))) {
			add(o.Accepted, "request %d: %s %s %s, due %s, version %d, key %s, at %d/%d, %s, invalid %v, mortal %v", o.N, o.Kind, o.IfExists, o.Merge, s.clock(o.DueAt()), o.Version, o.Key, o.Partition, o.Offset, o.Outcome, o.Invalid, o.MayDie)
		}
	}
	for i := range h.Sent {
		if e := &h.Sent[i]; e.Topic == topic && e.ID == id {
			add(e.At, "%s notes the intent of attempt %d, slot %d, epoch %d, seq %d", e.Log, e.Attempt, e.Slot, e.Epoch, e.Seq)
		}
	}
	for _, d := range h.Deliveries {
		if d.Topic == topic && d.ID == id {
			add(d.At, "published at %d/%d: attempt %d of request %d %v, due %s, key …%s", d.Partition, d.Offset, d.Attempt, d.Op, d.Merged, s.clock(d.Due), d.Key[max(0, len(d.Key)-12):])
		}
	}
	for _, e := range h.Events {
		if e.Topic == topic && e.ID == id {
			add(e.At, "told: %s, attempt %d, due %s", e.State, e.Attempt, s.clock(e.Due))
		}
	}
	for _, r := range h.Reports {
		if r.Topic == topic && r.ID == id {
			add(r.At, "reported: %s on attempt %d", r.Status, r.Attempt)
		}
	}
	for _, l := range h.Letters {
		if l.Topic == topic && l.ID == id {
			add(l.DiedAt, "dead letter: %s, attempt %d: %s", l.Kind, l.Attempt, l.Reason)
		}
	}
	for _, p := range h.Rest.Pending {
		if p.Topic == topic && p.ID == id {
			add(p.Pos, "waits here at the end, slot %d, seq %d", p.Slot, p.Seq)
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return int(a.at - b.at) })
	return out
}
