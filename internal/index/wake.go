package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Wake announces a task of each slot at Pos, possibly earlier than expected, to the listeners of
// Wakes. Nobody has to listen, and a message may be lost.
func (x *Index) Wake(ctx context.Context, at []SlotPos) error {
	for part := range chunks(at) {
		if err := x.rdb.Publish(ctx, x.channel, encodeWake(part)).Err(); err != nil {
			return fmt.Errorf("waking %d slots: %w", len(at), err)
		}
	}
	return nil
}

// Wakes subscribes to Wake, in this process and in others. It connects, and reconnects after every
// fault, by itself. Messages published meanwhile are lost. A slow reader never blocks the
// subscription: waiting wakes merge, per slot, into the lowest position and whether timers changed,
// so the number of slots limits memory. The channel closes when ctx ends.
func (x *Index) Wakes(ctx context.Context) <-chan []SlotPos {
	out := make(chan []SlotPos)
	sub := x.rdb.Subscribe(ctx, x.channel)
	said := make(chan string)
	go func() {
		defer close(said)
		for msg := range sub.Channel() {
			select {
			case said <- msg.Payload:
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		defer close(out)
		defer func() { _ = sub.Close() }() // an error of closing changes nothing
		forward(ctx, said, out)
	}()
	return out
}

// forward merges wakes until out takes them, and never lets a sender wait.
func forward(ctx context.Context, said <-chan string, out chan<- []SlotPos) {
	pending := wakes{}
	var batch []SlotPos
	for {
		// A nil channel blocks: nothing to send.
		var send chan<- []SlotPos
		if len(pending) > 0 {
			send = out
			batch = pending.list()
		}
		select {
		case <-ctx.Done():
			return
		case payload, ok := <-said:
			if !ok {
				return
			}
			mergeWake(pending, payload)
		case send <- batch:
			clear(pending)
		}
	}
}

// wakes are merged wakes: the lowest position of each slot, and apart whether its timers changed.
type wakes map[wakeKey]int64

type wakeKey struct {
	slot   int
	timers bool
}

func keyOf(p SlotPos) wakeKey { return wakeKey{p.Slot, p.Pos == TimersChanged} }

func (w wakes) add(p SlotPos) {
	if old, ok := w[keyOf(p)]; !ok || p.Pos < old {
		w[keyOf(p)] = p.Pos
	}
}

// list is in the order of slots.
func (w wakes) list() []SlotPos {
	batch := make([]SlotPos, 0, len(w))
	for key, pos := range w {
		batch = append(batch, SlotPos{Slot: key.slot, Pos: pos})
	}
	slices.SortFunc(batch, func(a, b SlotPos) int { return cmp.Or(cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Pos, b.Pos)) })
	return batch
}

func encodeWake(at []SlotPos) string {
	var b strings.Builder
	for i, s := range at {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(s.Slot))
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(s.Pos, 10))
	}
	return b.String()
}

// mergeWake skips unparsable parts: a wake is a hint, and a newer version may send more.
func mergeWake(pending wakes, payload string) {
	for pair := range strings.FieldsSeq(payload) {
		s, p, _ := strings.Cut(pair, ":")
		slot, err := strconv.Atoi(s)
		if err != nil || slot < 0 {
			continue
		}
		pos, err := strconv.ParseInt(p, 10, 64)
		if err != nil || pos < TimersChanged { // whoever may write the topic may forge one
			continue
		}
		pending.add(SlotPos{Slot: slot, Pos: pos})
	}
}
