package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// line is one line of a journal; exactly one field is set.
type line struct {
	Run      *Run          `json:"run,omitempty"`
	Op       *Op           `json:"op,omitempty"`
	Delivery *Delivery     `json:"delivery,omitempty"`
	Event    *Event        `json:"event,omitempty"`
	Report   *Report       `json:"report,omitempty"`
	Letter   *Letter       `json:"letter,omitempty"`
	Look     *Look         `json:"look,omitempty"`
	Fault    *Fault        `json:"fault,omitempty"`
	Slot     *SlotSample   `json:"slot,omitempty"`
	Offset   *OffsetSample `json:"offset,omitempty"`
	Sent     *Sent         `json:"sent,omitempty"`
	Rest     *Rest         `json:"rest,omitempty"`
}

// Save writes the history to a file, one JSON object a line.
func (h *History) Save(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("creating the history: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 1<<20)
	enc := json.NewEncoder(out)
	write := func(l line) {
		if err == nil {
			err = enc.Encode(l)
		}
	}
	write(line{Run: &h.Run})
	each(h.Faults, func(v *Fault) { write(line{Fault: v}) })
	each(h.Ops, func(v *Op) { write(line{Op: v}) })
	each(h.Deliveries, func(v *Delivery) { write(line{Delivery: v}) })
	each(h.Events, func(v *Event) { write(line{Event: v}) })
	each(h.Reports, func(v *Report) { write(line{Report: v}) })
	each(h.Letters, func(v *Letter) { write(line{Letter: v}) })
	each(h.Looks, func(v *Look) { write(line{Look: v}) })
	each(h.Slots, func(v *SlotSample) { write(line{Slot: v}) })
	each(h.Offsets, func(v *OffsetSample) { write(line{Offset: v}) })
	each(h.Sent, func(v *Sent) { write(line{Sent: v}) })
	write(line{Rest: &h.Rest})
	return errors.Join(err, out.Flush())
}

func each[T any](all []T, f func(*T)) {
	for i := range all {
		f(&all[i])
	}
}

// Load reads what Save wrote.
func Load(path string) (*History, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the history: %w", err)
	}
	defer func() { _ = f.Close() }()
	h := &History{}
	dec := json.NewDecoder(bufio.NewReaderSize(f, 1<<20))
	for {
		var l line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the history: %w", err)
		}
		h.take(l)
	}
}

func (h *History) take(l line) {
	switch {
	case l.Run != nil:
		h.Run = *l.Run
	case l.Op != nil:
		h.Ops = append(h.Ops, *l.Op)
	case l.Delivery != nil:
		h.Deliveries = append(h.Deliveries, *l.Delivery)
	case l.Event != nil:
		h.Events = append(h.Events, *l.Event)
	case l.Report != nil:
		h.Reports = append(h.Reports, *l.Report)
	case l.Letter != nil:
		h.Letters = append(h.Letters, *l.Letter)
	case l.Look != nil:
		h.Looks = append(h.Looks, *l.Look)
	case l.Fault != nil:
		h.Faults = append(h.Faults, *l.Fault)
	case l.Slot != nil:
		h.Slots = append(h.Slots, *l.Slot)
	case l.Offset != nil:
		h.Offsets = append(h.Offsets, *l.Offset)
	case l.Sent != nil:
		h.Sent = append(h.Sent, *l.Sent)
	case l.Rest != nil:
		h.Rest = *l.Rest
	}
}

// Recorder collects what happens during a run. It is safe for concurrent use.
type Recorder struct {
	mu sync.Mutex
	h  History
}

// Op, Look, Fault, Slot and Offset add one each.
func (r *Recorder) Op(o Op)           { r.do(func(h *History) { h.Ops = append(h.Ops, o) }) }
func (r *Recorder) Look(l Look)       { r.do(func(h *History) { h.Looks = append(h.Looks, l) }) }
func (r *Recorder) Fault(f Fault)     { r.do(func(h *History) { h.Faults = append(h.Faults, f) }) }
func (r *Recorder) Slot(s SlotSample) { r.do(func(h *History) { h.Slots = append(h.Slots, s) }) }
func (r *Recorder) Offset(o OffsetSample) {
	r.do(func(h *History) { h.Offsets = append(h.Offsets, o) })
}
func (r *Recorder) do(change func(*History)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.h)
}

// History returns what was collected. Do not use the recorder afterwards.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &r.h
}
