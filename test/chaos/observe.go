package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/notyet/notyet/test/chaos/history"
)

// slots reads the slots of all databases.
func (c *Cluster) slots(ctx context.Context) ([]history.SlotSample, error) {
	var out []history.SlotSample
	for _, d := range c.databases {
		slots, err := d.slots(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, slots...)
	}
	return out, nil
}

func (d *store) slots(ctx context.Context) ([]history.SlotSample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := d.QueryContext(ctx, "SELECT slot, epoch, owner, claimed, done FROM "+database+".slots ORDER BY slot")
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
		s.Slot += d.number * history.DatabaseSlots
		out = append(out, s)
	}
	return out, rows.Err()
}

// observe notes slots and offsets twice a second, until ctx ends. It skips what it cannot read.
func (c *Cluster) observe(ctx context.Context, rec *history.Recorder) {
	last := make([]map[int]history.SlotSample, len(c.databases))
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		for k, d := range c.databases {
			if slots, err := d.slots(ctx); err == nil {
				last[k] = observed(last[k], slots, rec)
			}
			c.observeOffsets(ctx, d, rec)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// observed notes what is new in slots, and returns what the next look is compared with.
func observed(last map[int]history.SlotSample, slots []history.SlotSample, rec *history.Recorder) map[int]history.SlotSample {
	// Taken after reading, so that no claim of an earlier epoch lies in between.
	at, now := time.Now().UnixMilli(), map[int]history.SlotSample{}
	for _, s := range slots {
		now[s.Slot] = s
		if s != last[s.Slot] {
			s.At = at
			rec.Slot(s)
		}
	}
	for slot := range last {
		if _, stays := now[slot]; !stays {
			rec.Slot(history.SlotSample{At: at, Slot: slot, Gone: true})
		}
	}
	return now
}

// group is the scanners' for a database.
func (d *store) group() string {
	if d.number == 0 {
		return groupName
	}
	return fmt.Sprintf("%s.%d", groupName, d.number)
}

// observeOffsets asks Kafka first, so that the database can only have more.
func (c *Cluster) observeOffsets(ctx context.Context, d *store, rec *history.Recorder) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	committed, err := c.admin.FetchOffsets(ctx, d.group())
	if err != nil {
		return
	}
	rows, err := d.QueryContext(ctx, "SELECT topic, part, next_offset FROM "+database+".sources")
	if err != nil {
		return
	}
	defer func() { _ = rows.Close() }()
	at, seen := time.Now().UnixMilli(), []history.OffsetSample(nil)
	for rows.Next() {
		o := history.OffsetSample{At: at, Database: d.number}
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

// sum adds one number of each database. It returns -1 if one fails.
func (c *Cluster) sum(ctx context.Context, query string, args ...any) (total int64) {
	for _, d := range c.databases {
		n := d.count(ctx, query, args...)
		if n < 0 {
			return -1
		}
		total += n
	}
	return total
}

// count runs a query for one number. It returns -1 if that fails.
func (d *store) count(ctx context.Context, query string, args ...any) int64 {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n := int64(-1)
	if err := d.QueryRowContext(ctx, query, args...).Scan(&n); err != nil {
		return -1
	}
	return n
}
