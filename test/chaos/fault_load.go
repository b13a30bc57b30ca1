package chaos

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/test/chaos/history"
)

// Faults that callers cause: records beyond every limit, and many tasks that all fail at once.

// hostileSize is the size of values that compress to almost nothing: the broker's limit counts
// compressed bytes and admits them.
const hostileSize = 20 << 20

var hostileKinds = []string{"value", "header", "headers", "key"}

// sendHostile sends records that exceed a limit, each followed by a valid one on the same
// partition.
func sendHostile(b *breaker) error {
	b.began(intakeTopic)
	for i, kind := range hostileKinds {
		key := fmt.Sprintf("k%d", b.rng.IntN(2000))
		id := fmt.Sprintf("h%d-%d", b.note.N, i)
		b.load.sendNow(b.ctx, history.Op{Kind: history.Schedule, Topic: plainTopics[0], ID: id, Key: key, Due: time.Now().UnixMilli(), Version: -1, Invalid: true, Hostile: kind})
		b.load.sendNow(b.ctx, history.Op{Kind: history.Schedule, Topic: plainTopics[0], ID: id + "-good", Key: key, Due: time.Now().UnixMilli(), Version: -1})
	}
	refused := func() int64 {
		return b.sum(b.ctx, "SELECT COUNT(*) FROM "+database+".dead_letters WHERE task_id LIKE ?", fmt.Sprintf("h%d-%%", b.note.N))
	}
	all := b.waitUntil(patience, func() bool { return refused() == int64(len(hostileKinds)) })
	b.evidence(all, "%d records, %d dead letters", len(hostileKinds), refused())
	return nil
}

// expireAll makes many tasks with long ids due while no dispatcher runs, so that they all expire at
// once.
func expireAll(b *breaker) error {
	before := b.letters(floodTopic)
	due := time.Now().Add(5*time.Second + time.Duration(b.burst)*time.Second/3000).UnixMilli()
	b.load.expiring(b.burst, due)
	b.wait(time.Until(time.UnixMilli(due - 2000)))
	b.began("all dispatchers")
	for _, n := range b.of(dispatcherRole) {
		n.kill()
	}
	b.wait(5 * time.Second)
	for _, n := range b.of(dispatcherRole) {
		if err := n.start(); err != nil {
			return err
		}
	}
	died := func() int64 { return b.letters(floodTopic) - before }
	b.waitUntil(patience, func() bool { return died() >= int64(b.burst)*9/10 })
	b.evidence(died() > 0, "%d of %d expired by then", died(), b.burst)
	return nil
}

// missAll sends tasks to topics that do not exist, a few to each.
func missAll(b *breaker) error {
	const topics = 200
	b.began("chaos.none")
	for i := range topics {
		b.load.spread(fmt.Sprintf("chaos.none.%d.%d", b.note.N, i), max(b.burst/topics/10, 1), time.Second)
	}
	died := func() int64 {
		return b.sum(b.ctx, "SELECT COUNT(*) FROM "+database+".dead_letters WHERE topic LIKE ?", fmt.Sprintf("chaos.none.%d.%%", b.note.N))
	}
	dead := b.waitUntil(patience, func() bool { return died() >= topics })
	b.evidence(dead, "%d dead letters by then", died())
	return nil
}

// beyondLimit makes a request exceed a limit.
func beyondLimit(kind string, r *kgo.Record) {
	switch kind {
	case "value":
		r.Value = append(r.Value, make([]byte, hostileSize)...)
	case "header":
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "zeros", Value: make([]byte, hostileSize)})
	case "headers":
		for range 10_000 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "many", Value: []byte("x")})
		}
	case "key":
		r.Key = append(r.Key, make([]byte, 100_000)...)
	}
}
