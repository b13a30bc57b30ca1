package index

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Wake tells the listeners of Wakes that the slots have a task at Pos, which may be earlier than
// what they wait for. Nobody has to listen, and a message may be lost.
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
// subscription: what it has not received is merged to the lowest position per slot, so memory is
// limited by the number of slots. The channel closes when ctx ends.
func (x *Index) Wakes(ctx context.Context) <-chan []SlotPos {
	out := make(chan []SlotPos)
	sub := x.rdb.Subscribe(ctx, x.channel)
	go func() {
		defer close(out)
		defer func() { _ = sub.Close() }() // an error of closing changes nothing
		forward(ctx, sub.Channel(), out)
	}()
	return out
}

func forward(ctx context.Context, in <-chan *redis.Message, out chan<- []SlotPos) {
	pending := make(map[int]int64)
	var batch []SlotPos
	for {
		// A nil channel blocks: nothing to send.
		var send chan<- []SlotPos
		if len(pending) > 0 {
			send = out
			batch = sorted(pending)
		}
		select {
		case <-ctx.Done():
			return
		case msg, ok := <-in:
			if !ok {
				return
			}
			mergeWake(pending, msg.Payload)
		case send <- batch:
			clear(pending)
		}
	}
}

func sorted(pending map[int]int64) []SlotPos {
	batch := make([]SlotPos, 0, len(pending))
	for slot, pos := range pending {
		batch = append(batch, SlotPos{Slot: slot, Pos: pos})
	}
	slices.SortFunc(batch, func(a, b SlotPos) int { return cmp.Compare(a.Slot, b.Slot) })
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

// mergeWake skips what it cannot parse: a wake is a hint, and a newer version may send more.
func mergeWake(pending map[int]int64, payload string) {
	for pair := range strings.FieldsSeq(payload) {
		s, p, _ := strings.Cut(pair, ":")
		slot, err := strconv.Atoi(s)
		if err != nil || slot < 0 {
			continue
		}
		pos, err := strconv.ParseInt(p, 10, 64)
		if err != nil {
			continue
		}
		if old, ok := pending[slot]; !ok || pos < old {
			pending[slot] = pos
		}
	}
}
