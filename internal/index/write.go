package index

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/notyet/notyet/internal/wrap"
)

const (
	// maxMembers limits one command. A ZADD blocks the server for well under a millisecond per
	// hundred members, so nothing else waits long.
	maxMembers = 1000
	// maxScore is the highest integer up to which a float64, the type of a score, holds every
	// integer. In milliseconds: the year 287396.
	maxScore = 1 << 53
)

// Add adds entries. Adding an entry again changes nothing; adding a seq with another position moves
// it. Entries may be of any slots, in any order.
func (x *Index) Add(ctx context.Context, entries []Entry) error {
	for _, e := range entries {
		if e.Pos > maxScore || e.Pos < -maxScore {
			return fmt.Errorf("adding entries to the index: position %d of seq %d is beyond ±2^53", e.Pos, e.Seq)
		}
	}
	err := x.bySlot(ctx, entries, func(p redis.Pipeliner, slot int, run []Entry) {
		members := make([]redis.Z, len(run))
		for i, e := range run {
			members[i] = redis.Z{Score: float64(e.Pos), Member: e.Seq}
		}
		p.ZAdd(ctx, x.dueKey(slot), members...)
	})
	return wrap.Err(err, "adding %d entries to the index", len(entries))
}

// Remove removes entries at any position. Absent entries are no error.
func (x *Index) Remove(ctx context.Context, entries []Entry) error {
	err := x.bySlot(ctx, entries, func(p redis.Pipeliner, slot int, run []Entry) {
		members := make([]any, len(run))
		for i, e := range run {
			members[i] = e.Seq
		}
		p.ZRem(ctx, x.dueKey(slot), members...)
	})
	return wrap.Err(err, "removing %d entries from the index", len(entries))
}

// Trim removes from each slot all entries with positions up to and including Pos.
func (x *Index) Trim(ctx context.Context, upTo []SlotPos) error {
	for part := range chunks(upTo) {
		_, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, s := range part {
				p.ZRemRangeByScore(ctx, x.dueKey(s.Slot), "-inf", strconv.FormatInt(s.Pos, 10))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("trimming %d slots of the index: %w", len(upTo), err)
		}
	}
	return nil
}

// bySlot calls add with runs of at most maxMembers entries of one slot. It sends the queued
// commands in pipelines of limited size.
func (x *Index) bySlot(ctx context.Context, entries []Entry, add func(redis.Pipeliner, int, []Entry)) error {
	// The caller's slice is not changed. A stable sort keeps the order of two positions of one seq,
	// so the last one wins.
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b Entry) int { return a.Slot - b.Slot })

	// Ten runs are some 300 KiB, so a reply comes soon.
	const maxQueued = 10 * maxMembers
	for part := range slices.Chunk(sorted, maxQueued) {
		_, err := x.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for len(part) > 0 {
				n := 1
				for n < len(part) && n < maxMembers && part[n].Slot == part[0].Slot {
					n++
				}
				add(p, part[0].Slot, part[:n])
				part = part[n:]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// chunks limits a pipeline to as many commands as a command has members.
func chunks(s []SlotPos) iter.Seq[[]SlotPos] { return slices.Chunk(s, maxMembers) }
