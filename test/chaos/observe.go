package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/notyet/notyet/test/chaos/history"
)

// slots reads all slots.
func (c *Cluster) slots(ctx context.Context) ([]history.SlotSample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := c.db.QueryContext(ctx, "SELECT slot, epoch, owner, claimed, done FROM "+database+".slots ORDER BY slot")
	if err != nil {
		return nil, fmt.Errorf("reading the slots: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var out []history.SlotSample
	for rows.Next() {
		s := history.SlotSample{}
		if err := rows.Scan(&s.Slot, &s.Epoch, &s.Owner, &s.Claimed, &s.Done); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// observe notes slots and offsets twice a second, until ctx ends. It skips what it cannot read.
func (c *Cluster) observe(ctx context.Context, rec *history.Recorder) {
	last := map[int]history.SlotSample{}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if slots, err := c.slots(ctx); err == nil {
			// Taken after reading, so that no claim of an earlier epoch lies in between.
			at := time.Now().UnixMilli()
			for slot := len(slots); len(slots) < len(last); slot++ { // the last ones are forgotten first
				rec.Slot(history.SlotSample{At: at, Slot: slot, Gone: true})
				delete(last, slot)
			}
			for _, s := range slots {
				if s != last[s.Slot] {
					last[s.Slot] = s
					s.At = at
					rec.Slot(s)
				}
			}
		}
		c.observeOffsets(ctx, rec)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// observeOffsets asks Kafka first, so that the database can only have more.
func (c *Cluster) observeOffsets(ctx context.Context, rec *history.Recorder) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	committed, err := c.admin.FetchOffsets(ctx, groupName)
	if err != nil {
		return
	}
	rows, err := c.db.QueryContext(ctx, "SELECT topic, part, next_offset FROM "+database+".sources")
	if err != nil {
		return
	}
	defer func() { _ = rows.Close() }()
	at, seen := time.Now().UnixMilli(), []history.OffsetSample(nil)
	for rows.Next() {
		o := history.OffsetSample{At: at}
		if rows.Scan(&o.Topic, &o.Partition, &o.Stored) != nil {
			return
		}
		if c, ok := committed.Lookup(o.Topic, o.Partition); ok {
			o.Committed = c.At
			seen = append(seen, o)
		}
	}
	if rows.Err() != nil {
		return
	}
	for _, o := range seen {
		rec.Offset(o)
	}
}

// count runs a query for one number. It returns -1 if that fails.
func (c *Cluster) count(ctx context.Context, query string, args ...any) int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n := int64(-1)
	if err := c.db.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}
