package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/wrap"
)

// Marks returns how far (Unix ms) each slot is loaded: every pending task with a position up to the
// mark was added. A slot missing in the map is new, was cleared, or was lost by Redis, and must be
// rebuilt.
func (x *Index) Marks(ctx context.Context, slots []int) (map[int]int64, error) {
	marks := make(map[int]int64, len(slots))
	for part := range slices.Chunk(slots, maxMembers) {
		cmds := make([]*redis.StringCmd, len(part))
		// Each command is checked separately: Pipelined returns the first failed command's error,
		// and counts an absent key as a failure. A connection error is set on all of them.
		_, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, slot := range part {
				cmds[i] = p.Get(ctx, x.markKey(slot))
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("reading marks of %d slots: %w", len(slots), err)
		}
		for i, cmd := range cmds {
			if err := x.readMark(marks, part[i], cmd); err != nil {
				return nil, err
			}
		}
	}
	return marks, nil
}

func (x *Index) readMark(marks map[int]int64, slot int, cmd *redis.StringCmd) error {
	text, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the mark of slot %d: %w", slot, err)
	}
	mark, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		x.log.Warn("mark of a slot is not a number", zap.Int("slot", slot))
		return nil
	}
	marks[slot] = mark
	return nil
}

// SetMark notes that the slot is loaded up to upTo (Unix ms). Call SetMark after the Adds.
func (x *Index) SetMark(ctx context.Context, slot int, upTo int64) error {
	return wrap.Err(x.rdb.Set(ctx, x.markKey(slot), upTo, 0).Err(), "setting the mark of slot %d", slot)
}

// Clear removes a slot's mark and its entries, for a rebuild. One command removes both, so no mark
// outlives its set. Memory is freed in the background.
func (x *Index) Clear(ctx context.Context, slot int) error {
	return wrap.Err(x.rdb.Unlink(ctx, x.markKey(slot), x.dueKey(slot)).Err(), "clearing slot %d", slot)
}

// Members returns all entries of a slot by position, then seq, for tests.
func (x *Index) Members(ctx context.Context, slot int) ([]Entry, error) {
	return x.Range(ctx, slot, -2*maxScore, maxScore)
}
