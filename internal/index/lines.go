package index

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/wrap"
)

// Lines are the slots' lines in the database.
type Lines interface {
	// Beyond returns, for each place, the next place with a task in the same slot, if any.
	Beyond(ctx context.Context, places []SlotPos) ([]SlotPos, error)
	// Counts returns how many tasks the slots have in total in (bounds[i], bounds[i+1]]. Of many,
	// only the nearest are read.
	Counts(ctx context.Context, slots []int, bounds []int64) ([]int64, error)
}

// Database is the index of an installation without Redis, and keeps nothing: the database is asked
// for the next tasks, and the database's own index of the lines is never behind. Wakes go over a
// topic of one partition.
//
// A lost wake costs as much as one of Redis: the owner of the slot looks at the database each
// second. The first run of a new timer takes two such looks.
type Database struct {
	Lines
	cfg   kafka.Config
	topic string
	key   string // of the installation's wakes
	log   *zap.Logger

	mu       sync.Mutex
	producer *kgo.Client              // of the first Wake
	failed   error                    // of a wake since the last one
	listens  int                      // calls of Wakes that go on
	pings    map[string]chan struct{} // by what they say; each closes once it is heard
}

// NewDatabase returns an index over lines. The first Wake or Wakes connects to Kafka. The id of the
// installation keeps its wakes apart from others on a shared topic.
func NewDatabase(lines Lines, cfg kafka.Config, topic, installation string, log *zap.Logger) *Database {
	return &Database{Lines: lines, cfg: cfg, topic: topic, key: installation[:min(len(installation), 8)], log: log, pings: map[string]chan struct{}{}}
}

const (
	// wakePatience is how long a wake is tried. A later one would be worth nothing: the dispatchers
	// have looked by themselves.
	wakePatience = 2 * time.Second
	// wakesInHand limits the wakes under way.
	wakesInHand = 1000
	// pingPatience is how long a ping is listened for before the next one, and pingMark begins all
	// of them: they name no slot.
	pingPatience = 300 * time.Millisecond
	pingMark     = "ping:"
	// wakePause follows a failed fetch.
	wakePause = 250 * time.Millisecond
	// wakeAnew is after how many failures in a row the listening client is made anew: the topic may
	// have been deleted and created.
	wakeAnew = 20
)

// Close closes the connections after pending wakes. Channels of Wakes close with their contexts.
func (d *Database) Close() {
	d.mu.Lock()
	client := d.producer
	d.producer = nil
	d.mu.Unlock()
	if client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = client.Flush(ctx)
	client.Close()
}

// client sends wakes. One copy of a wake is enough, so nothing waits for replicas.
func (d *Database) client() (*kgo.Client, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.producer != nil {
		return d.producer, nil
	}
	client, err := kafka.New(d.cfg, d.log,
		kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(wakesInHand),
		kgo.RecordDeliveryTimeout(wakePatience), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return nil, err
	}
	d.producer = client
	return client, nil
}

// Wake announces a task of each slot at Pos, possibly earlier than expected, to the listeners of
// Wakes. Wake does not wait for Kafka: an error means a failed wake since the last call.
func (d *Database) Wake(_ context.Context, at []SlotPos) error {
	client, err := d.client()
	if err != nil {
		return fmt.Errorf("waking %d slots: %w", len(at), err)
	}
	for part := range chunks(at) {
		client.TryProduce(context.Background(), &kgo.Record{Topic: d.topic, Key: []byte(d.key), Value: []byte(encodeWake(part))}, func(_ *kgo.Record, err error) {
			if err != nil {
				d.mu.Lock()
				defer d.mu.Unlock()
				d.failed = err
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	err, d.failed = d.failed, nil
	return wrap.Err(err, "waking slots over the topic %s", d.topic)
}

// Wakes reads the wakes of this and other processes from now on. It connects, and reconnects after
// every fault, by itself. A slow reader gets wakes merged, as from Index.
func (d *Database) Wakes(ctx context.Context) <-chan []SlotPos {
	out, said := make(chan []SlotPos), make(chan string)
	d.listening(1)
	go func() {
		defer close(said)
		defer d.listening(-1)
		for ctx.Err() == nil {
			if err := d.listen(ctx, said); err != nil && ctx.Err() == nil {
				d.log.Warn("listening to wakes failed, trying again; tasks that are stored late are up to a second late", zap.String("topic", d.topic), zap.Error(err))
				loop.Rest(ctx, wakePause)
			}
		}
	}()
	go func() {
		defer close(out)
		forward(ctx, said, out)
	}()
	return out
}

// listen passes on the topic's wakes, until the end or too many failures in a row.
func (d *Database) listen(ctx context.Context, said chan<- string) error {
	from := map[string]map[int32]kgo.Offset{d.topic: {0: kgo.NewOffset().AtEnd()}}
	opts, err := kafka.BoundFetches()
	if err != nil {
		return err
	}
	client, err := kafka.NewReader(d.cfg, d.log, append(opts, kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for failures := 0; ctx.Err() == nil; {
		fetches := client.PollFetches(ctx)
		var failed error
		fetches.EachError(func(_ string, _ int32, err error) { failed = errors.Join(failed, err) })
		fetches.EachRecord(func(r *kgo.Record) {
			failures = 0
			if string(r.Key) != d.key || d.pinged(string(r.Value)) {
				return
			}
			select {
			case said <- string(r.Value):
			case <-ctx.Done():
			}
		})
		if failed == nil || ctx.Err() != nil {
			continue
		}
		if failures++; failures >= wakeAnew || errors.Is(failed, kgo.ErrMaxDecompress) { // a client never goes on behind such a batch
			return failed
		}
		loop.Rest(ctx, wakePause)
	}
	return nil
}

func (d *Database) listening(more int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listens += more
}

// pinged takes pings, of any process.
func (d *Database) pinged(said string) bool {
	if !strings.HasPrefix(said, pingMark) {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if heard := d.pings[said]; heard != nil {
		close(heard)
		delete(d.pings, said)
	}
	return true
}

// Ping wakes nobody over the topic, and returns once Kafka has that wake. A process that listens
// must hear it, too. A listener that begins only now misses the first one.
func (d *Database) Ping(ctx context.Context) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	there, err := kafka.TopicIDs(ctx, client, d.topic)
	switch {
	case err != nil:
		return fmt.Errorf("looking for the topic %s: %w", d.topic, err)
	case len(there) == 0:
		return fmt.Errorf("the topic %s does not exist: run `notyet migrate`", d.topic)
	}
	said, heard := pingMark+rand.Text(), make(chan struct{})
	d.mu.Lock()
	if d.listens == 0 {
		close(heard)
	} else {
		d.pings[said] = heard
	}
	d.mu.Unlock()
	defer d.pinged(said)
	for {
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: d.topic, Key: []byte(d.key), Value: []byte(said)}).FirstErr(); err != nil {
			return fmt.Errorf("waking over the topic %s: %w", d.topic, err)
		}
		select {
		case <-heard:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wakes over the topic %s are not heard: %w", d.topic, ctx.Err())
		case <-time.After(pingPatience):
		}
	}
}

// Next returns, for each of the slots, the lowest position above its Pos, if any.
func (d *Database) Next(ctx context.Context, from []SlotPos) ([]SlotPos, error) {
	return d.Beyond(ctx, from)
}

// Add does nothing: a stored task is in its line.
func (d *Database) Add(context.Context, []Entry) error { return nil }

// Remove does nothing, likewise.
func (d *Database) Remove(context.Context, []Entry) error { return nil }

// Clear does nothing, likewise.
func (d *Database) Clear(context.Context, int) error { return nil }
