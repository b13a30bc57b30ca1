package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/chaos/history"
)

// restHorizon is the span in which no task may be pending at rest; residents are due much later.
const restHorizon = 5 * time.Minute

// drain waits until no work is left, within bound.
func (c *Cluster) drain(ctx context.Context, bound time.Duration) error {
	deadline := time.Now().Add(bound)
	quiet := 0
	for {
		left := c.sum(ctx, `SELECT (SELECT COUNT(*) FROM `+database+`.tasks t JOIN `+database+`.slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos < ?)
			+ (SELECT COUNT(*) FROM `+database+`.outbox) + (SELECT COUNT(*) FROM `+database+`.waiting) + `+slotsChanging, time.Now().Add(restHorizon).UnixMilli())
		lag, err := c.lag(ctx, slices.Concat(otherIntakes, []string{intakeTopic, reportsTopic})...)
		if quiet++; left != 0 || err != nil || lag != 0 {
			quiet = 0
		}
		if quiet >= 5 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not at rest after %v: %d rows are left to do, %d records not stored", bound, left, lag)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// lag returns the number of records of topics that are not in the database.
func (c *Cluster) lag(ctx context.Context, topics ...string) (int64, error) {
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	ends.Each(func(o kadm.ListedOffset) { total += o.Offset * int64(len(c.databases)) })
	stored := c.sum(ctx, "SELECT COALESCE(SUM(next_offset), 0) FROM "+database+".sources WHERE topic IN ('"+strings.Join(topics, "', '")+"')")
	return total - stored, nil
}

// collect adds the contents of the topics and the database to the history. Take Rest and stop the
// processes before.
func (c *Cluster) collect(ctx context.Context, h *history.History) error {
	byNumber := make(map[int64]*history.Op, len(h.Ops))
	for i := range h.Ops {
		byNumber[h.Ops[i].N] = &h.Ops[i]
	}
	if err := c.readAll(ctx, allTargets(), func(r *kgo.Record) error { return addDelivery(h, r) }); err != nil {
		return err
	}
	arriveInOrder(h.Deliveries)
	if err := c.readAll(ctx, []string{intakeTopic, reportsTopic, resultsTopic}, func(r *kgo.Record) error { return addOther(h, byNumber, r) }); err != nil {
		return err
	}
	for _, d := range c.databases {
		if err := d.addLetters(ctx, h); err != nil {
			return err
		}
		for _, n := range c.of(dispatcherRole) {
			if err := h.ReadSendLog(ctx, n.name, n.sendlogOf(d), d.number, c.log); err != nil {
				return err
			}
		}
	}
	h.ForgetSent(func(topic string) bool { return strings.HasPrefix(topic, attackTopics) || schemas.IsOrigin(topic) })
	return nil
}

// readAll reads whole topics, from offset 0 to their ends.
func (c *Cluster) readAll(ctx context.Context, topics []string, each func(*kgo.Record) error) error {
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("asking where the topics end: %w", err)
	}
	left, from := int64(0), map[string]map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		left += o.Offset
		if from[o.Topic] == nil {
			from[o.Topic] = map[int32]kgo.Offset{}
		}
		from[o.Topic][o.Partition] = kgo.NewOffset().AtStart()
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.brokers()...), kgo.ConsumePartitions(from), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for left > 0 {
		fetches := reader.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("reading %v: %d records are missing: %w", topics, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			err = errors.Join(err, each(r))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func addDelivery(h *history.History, r *kgo.Record) error {
	d, rest, err := schemas.ParseDelivery(r)
	if err != nil {
		return fmt.Errorf("%s/%d/%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	h.Deliveries = append(h.Deliveries, history.Delivery{
		Op: history.Number(r.Value), Topic: r.Topic, ID: d.ID, Key: d.Key, Attempt: d.Attempt, Replay: d.Replay, Due: d.Due, At: r.Timestamp.UnixMilli(),
		Partition: r.Partition, Offset: r.Offset, Hash: history.BodyHash(r.Key, r.Value, rest), Stamp: stampOf(r),
	})
	return nil
}

// stampOf returns the time that the sender gave a record; 0: it carries the broker's.
func stampOf(r *kgo.Record) int64 {
	if r.Attrs.TimestampType() == 0 {
		return r.Timestamp.UnixMilli()
	}
	return 0
}

// arriveInOrder lets a stamped delivery arrive no earlier than what stands before it in its partition, which has been read in order.
func arriveInOrder(all []history.Delivery) {
	type partition struct {
		topic string
		n     int32
	}
	latest := map[partition]int64{}
	for i := range all {
		d := &all[i]
		p := partition{d.Topic, d.Partition}
		d.At = max(d.At, latest[p])
		latest[p] = d.At
	}
}

func addOther(h *history.History, ops map[int64]*history.Op, r *kgo.Record) error {
	at := r.Timestamp.UnixMilli()
	switch r.Topic {
	case intakeTopic:
		o := ops[history.Number(r.Value)]
		if o == nil {
			return fmt.Errorf("%s/%d/%d is of nobody", r.Topic, r.Partition, r.Offset)
		}
		if o.Accepted != 0 {
			return fmt.Errorf("request %d is twice in the intake", o.N)
		}
		o.Partition, o.Offset, o.Accepted = r.Partition, r.Offset, at
	case reportsTopic:
		rep, err := schemas.DecodeReport(r)
		if err != nil {
			return err
		}
		after := int64(-1)
		if rep.RetryAfter >= 0 {
			after = rep.RetryAfter.Milliseconds()
		}
		h.Reports = append(h.Reports, history.Report{Topic: rep.Topic, ID: rep.ID, Attempt: rep.Attempt, Status: rep.Status.String(), RetryAfter: after, At: at, Delivery: rep.Delivery})
	default:
		e, err := schemas.DecodeEvent(r)
		if err != nil {
			return err
		}
		h.Events = append(h.Events, history.Event{Topic: e.Topic, ID: e.ID, State: string(e.State), Due: e.Due, At: at, Attempt: e.Attempt, Decided: e.At, Request: e.Request})
	}
	return nil
}

func (d *store) addLetters(ctx context.Context, h *history.History) error {
	rows, err := d.QueryContext(ctx, "SELECT topic, task_id, kind, reason, attempt, died_at FROM "+database+".dead_letters ORDER BY id")
	if err != nil {
		return fmt.Errorf("reading the dead letters: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var l history.Letter
		if err := rows.Scan(&l.Topic, &l.ID, &l.Kind, &l.Reason, &l.Attempt, &l.DiedAt); err != nil {
			return err
		}
		h.Letters = append(h.Letters, l)
	}
	return rows.Err()
}

// restIn compares index and database until they agree, within bound, and returns the last
// comparison. The index is trimmed every 2 s, and missing entries are noticed at the second of two
// checks 30 s apart.
func (c *Cluster) restIn(ctx context.Context, bound time.Duration) (history.Rest, error) {
	begin := time.Now()
	for {
		r, err := c.rest(ctx)
		r.Took = time.Since(begin).Milliseconds()
		if err != nil || r.Agrees() || time.Since(begin) > bound {
			return r, err
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// rest compares the index and the databases while no work is in progress.
func (c *Cluster) rest(ctx context.Context) (history.Rest, error) {
	r := history.Rest{Until: time.Now().Add(90 * time.Minute).UnixMilli(), Indexless: !c.has(redisServer)}
	for _, d := range c.databases {
		if err := c.restOf(ctx, d, &r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (c *Cluster) restOf(ctx context.Context, d *store, r *history.Rest) error {
	rows, err := d.QueryContext(ctx, "SELECT t.slot, t.pos, t.seq, t.topic, t.id FROM "+database+".tasks t JOIN "+database+".slots s ON s.slot = t.slot WHERE t.pos > s.done")
	if err != nil {
		return fmt.Errorf("reading what waits: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var p history.Pending
		if err := rows.Scan(&p.Slot, &p.Pos, &p.Seq, &p.Topic, &p.ID); err != nil {
			return err
		}
		p.Slot += d.number * history.DatabaseSlots
		r.Pending = append(r.Pending, p)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	slots, err := d.slotsAtRest(ctx)
	r.Slots = append(r.Slots, slots)
	if err != nil || r.Indexless {
		return err
	}
	var installation string
	if err := d.QueryRowContext(ctx, "SELECT data FROM "+database+".meta WHERE name = 'installation.id'").Scan(&installation); err != nil {
		return fmt.Errorf("reading the installation's id: %w", err)
	}
	ix, err := index.New(c.indexConfig(installation), c.log)
	if err != nil {
		return err
	}
	defer ix.Close()
	// Slots that were given up are among them: theirs must be empty.
	for slot := range d.count(ctx, "SELECT COUNT(*) FROM "+database+".slots") {
		entries, err := ix.Members(ctx, int(slot))
		if err != nil {
			return err
		}
		for _, e := range entries {
			e.Slot += d.number * history.DatabaseSlots
			r.Index = append(r.Index, history.Entry(e))
		}
	}
	return nil
}

// slotsAtRest returns the number of slots, which must not change any more.
func (d *store) slotsAtRest(ctx context.Context) (n int, err error) {
	var most int
	if err := d.QueryRowContext(ctx, "SELECT MIN(base), GREATEST(MAX(base), MAX(spread), MAX(target)) FROM "+database+".slots").Scan(&n, &most); err != nil {
		return 0, fmt.Errorf("reading the number of slots: %w", err)
	}
	if n != most {
		return 0, fmt.Errorf("the number of slots changes at rest, from %d to %d", n, most)
	}
	return n, nil
}

func (c *Cluster) indexConfig(installation string) index.Config {
	cfg := index.Config{Addrs: strings.Split(c.Servers.addr(redisServer), ","), Installation: installation}
	switch c.Servers.form {
	case Clustered:
		cfg.Cluster = true
	case Sentinels:
		cfg.MasterName = sentinelMaster
	}
	return cfg
}
