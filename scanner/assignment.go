package scanner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
)

// assignment takes and gives up partitions as the group assigns them. The database says where to
// begin. The group's offsets serve lag monitors, and by comparison reveal a restored database.
type assignment struct {
	client  *kgo.Client
	lost    *kafka.LostConnections
	intake  intake.Intake
	admin   admin.Admin
	group   string
	parts   *partitions
	commits *commits
	checker *checker
	health  *health
	retry   retrier
	metrics *metrics
	log     *zap.Logger

	refuse context.CancelCauseFunc // ends this scanner

	since atomic.Pointer[time.Time] // when begin was called; nil: it is not at work
}

func (a *assignment) ready() error {
	if since := a.since.Load(); since != nil && time.Since(*since) >= standAfter {
		return fmt.Errorf("newly assigned partitions are not read: for %s, Kafka or the database has not said where they stand", time.Since(*since).Round(time.Second))
	}
	return nil
}

// join makes the client and joins the group. The group calls a's methods while the client lives.
func (a *assignment) join(kcfg kafka.Config, cfg Config) (*kgo.Client, error) {
	return kafka.NewConsumerGroup(kcfg, cfg.Group, cfg.Read, a.log,
		kgo.AdjustFetchOffsetsFn(a.begin),
		kgo.OnPartitionsRevoked(a.drop),
		kgo.OnPartitionsLost(a.drop),
		kgo.Balancers(balancer{kgo.CooperativeStickyBalancer(), a.health.join}),
		kgo.WithHooks(a.lost),
		kgo.KeepControlRecords(),   // a marker of a transaction is no gap: see inspect
		kgo.BlockRebalanceOnPoll(), // until what was polled is known by its reading, not while it is stored
		kgo.FetchMaxWait(250*time.Millisecond),
		// The partitions of a dead scanner wait this long for another one. 6 s is the least that
		// brokers allow by default. A membership lost by mistake causes only a rebalance.
		kgo.SessionTimeout(6*time.Second),
		// The others wait this long for a member that does not join again. A member waits ten
		// seconds longer for the whole group. A member has nothing to finish before a new join.
		kgo.RebalanceTimeout(10*time.Second),
		kgo.HeartbeatInterval(1500*time.Millisecond),
	)
}

// begin gets newly assigned partitions with the group's offsets, and returns where to fetch from.
// The group's offsets are never ahead of the database's, unless the database was restored from a
// backup. Then the offsets between are read again.
func (a *assignment) begin(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	now := time.Now()
	a.since.Store(&now)
	defer a.since.Store(nil)
	var begins kafka.Offsets
	err := a.retry.do(ctx, "looking up where the intake stands", func() (err error) { begins, err = a.lookUp(ctx, offsets); return err })
	if errors.Is(err, kafka.ErrOlderCopy) {
		a.refuse(err)
	}
	if err != nil {
		return nil, err
	}
	known, _ := a.parts.sourcesOf(offsets)
	a.checker.checkBegun(ctx, known)
	for key, from := range a.parts.begin(begins, offsets) {
		topic, partition, stored := zap.String("topic", key.topic), zap.Int32("partition", key.partition), int64(0)
		if from.stored {
			stored = from.at
			a.log.Info("taking an intake partition", topic, partition, zap.Int64("offset", stored))
		}
		committed := offsets[key.topic][key.partition].EpochOffset().Offset
		if again := committed - stored; again > 0 {
			a.metrics.reread.Add(float64(again))
			warnForgotten(a.log, key, span{stored, stored + again})
		}
		a.commits.claim(key, stored, committed)
		offsets[key.topic][key.partition] = kgo.NewOffset().At(from.at) // nothing is taken from a halted one
	}
	return offsets, nil
}

// compareCopies has the commits name the database's copy, unless the group names a newer one. No
// command names a copy while the group has this member, so the answer holds until it has left. A
// command names it with all topics, so the new ones are enough: another may be out of reach.
//
// It returns what the group has noted, from before the database is read.
func (a *assignment) compareCopies(ctx context.Context, topics []string) (map[string]map[int32]kafka.Committed, error) {
	ours := a.commits.claims()
	if ours.Installation == "" {
		return nil, nil
	}
	noted, err := kafka.GroupOffsets(ctx, a.client, a.group, topics...)
	if err != nil {
		return nil, err
	}
	name, err := a.admin.Copy(ctx)
	if err == nil {
		ours.Copy, err = kafka.ParseCopy(name)
	}
	if err != nil {
		return nil, err
	}
	a.commits.of(ours)
	return noted, kafka.ClaimOf(noted).Replaces(ours, a.group)
}

// lookUp reads what the database knows of new partitions, and returns where each begins in Kafka.
func (a *assignment) lookUp(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (kafka.Offsets, error) {
	topics := slices.Collect(maps.Keys(offsets))
	noted, err := a.compareCopies(ctx, topics)
	if err != nil {
		return nil, err
	}
	ids, err := kafka.TopicIDs(ctx, a.client, topics...)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if ids[topic] == [16]byte{} { // without the id, the partition would count as new and be stored a second time
			return nil, fmt.Errorf("kafka does not know topic %q at the moment", topic)
		}
	}
	known, err := a.intake.Sources(ctx)
	if err != nil {
		return nil, err
	}
	a.parts.assign(offsets, noted, ids, known)
	begins, err := kafka.Starts(ctx, a.client, topics...)
	_, unknown := a.parts.sourcesOf(offsets)
	for _, key := range unknown {
		if _, there := begins[key.topic][key.partition]; there {
			continue
		}
		if len(begins) == 0 || err == nil {
			return nil, errors.Join(fmt.Errorf("kafka does not know where %s/%d begins at the moment", key.topic, key.partition), err)
		}
		// A partition without a leader must not hold up the others. The client finds a later start.
		begins.Set(key.topic, key.partition, 0)
		a.log.Warn("kafka does not say where an intake partition begins, it is read from its start once it has a leader",
			zap.String("topic", key.topic), zap.Int32("partition", key.partition), zap.Error(err))
	}
	return begins, nil
}

func (a *assignment) drop(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	a.parts.drop(gone)
	a.commits.forget(gone)
	if len(gone) > 0 {
		a.health.revoked()
	}
}
