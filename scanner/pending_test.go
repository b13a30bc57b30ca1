package scanner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/kafka"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
)

// database is what a counter counts: the sources of four partitions of the intake noisy, and of a topic of that name before it.
type database struct {
	pending [5]intake.Size // of the sources
	takes   time.Duration  // a count
	err     error
	calls   int
	bodies  bool // the last count read them
}

func (d *database) Sources(context.Context) (out []intake.Source, err error) {
	for n := range d.pending {
		out = append(out, intake.Source{ID: n, Topic: noisy, Partition: int32(n % 4)})
	}
	return append(out, intake.Source{ID: 9, Topic: "calm.intake"}), nil
}

func (d *database) PendingSize(ctx context.Context, sources []int, bodies bool) (map[int]intake.Size, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	d.calls++
	d.bodies = bodies
	out := map[int]intake.Size{}
	for _, id := range sources {
		out[id] = d.pending[id]
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(d.takes):
		return out, d.err
	}
}

// count has the pacer's counter look, as it does again and again.
func (p *pacer) count(t *testing.T) {
	p.divide()
	for _, c := range p.countings {
		p.countPending(t.Context(), c)
	}
	p.divide()
}

// store has the database take what has passed of a partition of noisy, up to an offset, by which so many tasks are opened.
func (p *pacer) store(d *database, partition int32, to int64, opened intake.Size) {
	key := partitionKey{noisy, partition}
	d.pending[partition] = d.pending[partition].Plus(opened)
	src := intake.Source{ID: int(partition), Topic: noisy, Partition: partition, Next: to}
	p.stored([]coverage{{reading: p.parts.readings[key], src: src}}, map[int]intake.Size{int(partition): opened})
	p.parts.set(key, src)
	p.divide()
}

func tasks(n int64) intake.Size { return intake.Size{Tasks: n, Bytes: 100 * n} }

func TestAnIntakeAtItsQuotaOfPendingTasksWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(2), tasks(1), tasks(50), tasks(50), tasks(1)}} // 4 here: those of two partitions, and of one before
		p := pacingAt(Quota{PendingTasks: 20}, d)                                                   // 10 here: it has half of the partitions
		require.Empty(t, p.take(t, noisy, 0, 0, 20), "nothing was counted yet")
		require.Empty(t, p.release())
		require.Equal(t, map[partitionKey]bool{{noisy, 0}: true}, p.paused(), "another partition may have a cancel")
		require.Len(t, p.take(t, "calm.intake", 0, 0, 100)[0].records, 100, "an intake without a quota")

		p.count(t)
		require.False(t, d.bodies, "there is no quota of bytes")
		require.EqualValues(t, 6, follow(t, 0, p.release()))
		require.Empty(t, p.release())
		require.Equal(t, pollPause, p.next(kafka.PollAtMost), "something is on the way")
		time.Sleep(pendingEvery / 2)
		require.Equal(t, pendingEvery/2, p.intakes[noisy].waitAt(quotaTasks))
		require.Zero(t, p.intakes[noisy].waitAt(quotaRequests))

		p.store(d, 0, 6, tasks(2)) // the others were replacements
		require.Equal(t, kafka.PollAtMost, p.next(kafka.PollAtMost))
		require.EqualValues(t, 10, follow(t, 6, p.release()), "what opened no task leaves its room at once")
		p.store(d, 0, 10, tasks(4))
		require.Empty(t, p.release())
		d.pending[0] = tasks(1) // all but one were delivered
		p.count(t)
		require.Empty(t, p.release(), "the last count is too near")
		time.Sleep(pendingEvery)
		p.count(t)
		require.EqualValues(t, 17, follow(t, 10, p.release()), "3 are pending here")
		p.store(d, 0, 17, tasks(0))
		require.EqualValues(t, 20, follow(t, 17, p.release()))
		p.store(d, 0, 20, tasks(0))
		require.Empty(t, p.paused())
		require.Zero(t, p.intakes[noisy].wait())
		require.Empty(t, p.intakes[noisy].pending.onTheWay)
	})
}

// Neither a count that fails, nor one that never ends, nor none makes room.
func TestACountThatFailsMakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{err: errors.New("away")}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		sizes := p.sizes.Swap(nil)
		p.intakes[noisy].pending.limit = intake.Size{}
		p.intakes[noisy].pending.wanted.Store(false)
		p.take(t, noisy, 0, 0, 100)
		p.count(t)
		require.Zero(t, d.calls, "how many partitions there are is not known yet")
		require.Empty(t, p.release())
		p.sizes.Store(sizes)
		for range 100 {
			p.count(t)
			time.Sleep(pendingLook)
			require.Empty(t, p.release())
		}
		require.Equal(t, 4, d.calls, "in 20 s")
		d.err = nil
		time.Sleep(pendingEvery)
		p.count(t)
		require.EqualValues(t, 10, follow(t, 0, p.release()))
		p.store(d, 0, 10, tasks(10))
		d.pending[0], d.takes = tasks(0), 1000*time.Hour
		time.Sleep(pendingEvery)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		p.divide()
		go func() { p.countPending(ctx, p.countings[0]); close(ended) }()
		time.Sleep(time.Hour)
		p.divide()
		require.Empty(t, p.release())
		cancel()
		<-ended
		p.divide()
		require.Empty(t, p.release())
		d.takes = 0
		require.Equal(t, failedEvery, time.Until(p.countings[0].after), "the one before was short")
		d.takes = time.Hour
		time.Sleep(failedEvery)
		d.err = errors.New("away")
		p.count(t)
		require.Equal(t, longestPause, time.Until(p.countings[0].after), "though two of them took an hour")
		d.takes, d.err = 0, nil
		time.Sleep(longestPause)
		p.count(t)
		require.EqualValues(t, 20, follow(t, 10, p.release()))
	})
}

func TestCountsTakeATwentiethOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(1000)}, takes: time.Second}
		p := pacingAt(Quota{PendingTasks: 20, PendingBytes: 1 << 20}, d)
		p.take(t, noisy, 0, 0, 100)
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			p.count(t)
			time.Sleep(pendingLook)
			require.Empty(t, p.release(), "more is pending than the quota allows")
		}
		require.InDelta(t, 600/21, d.calls, 2)
		require.True(t, d.bodies)
		d.pending[0] = tasks(0)
		time.Sleep(30 * time.Second)
		p.count(t)
		p.store(d, 0, follow(t, 0, p.release()), tasks(10))
		p.intakes[noisy].held, p.intakes[noisy].bytes = nil, 0
		before := d.calls
		for range 10_000 {
			time.Sleep(pendingLook)
			p.count(t)
		}
		require.LessOrEqual(t, d.calls, before+4, "without more requests, it is soon not counted any more")
	})
}

func TestSmallQuotasOfWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 1, PendingBytes: 10}, d) // 1 here, and 5 bytes
		p.count(t)
		require.EqualValues(t, 1, follow(t, 0, p.take(t, noisy, 0, 0, 3)), "the last one may take more bytes than there are")
		p.store(d, 0, 1, tasks(1))
		require.Empty(t, p.release())
		p.store(d, 0, 1, intake.Size{})
		d.pending[0] = intake.Size{}
		time.Sleep(pendingEvery)
		p.count(t)
		require.EqualValues(t, 2, follow(t, 1, p.release()))
		p.store(d, 0, 2, tasks(1))
		key := partitionKey{noisy, 1}
		records := polled(noisy, 1, 0, 3)
		for n, op := range []string{"cancel", "fire"} {
			records[n].Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: schemas.HeaderOp, Value: []byte(op)}}
		}
		p.expect()
		p.intakes[noisy].room = 1 << 20
		require.Equal(t, 3, p.fit(key, records))
		r, _ := p.parts.received(records)
		require.EqualValues(t, 2, follow(t, 0, p.admit(r)), "a cancel or a fire needs no room")
	})
}

func TestAQuotaOfPendingBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{{Tasks: 1, Bytes: 450}}}
		p := pacingAt(Quota{PendingBytes: 1000}, d) // 500 here
		p.count(t)
		require.True(t, d.bodies)
		large := polled(noisy, 0, 0, 2)
		large[0].Value = make([]byte, 10<<20)
		r, _ := p.parts.received(large)
		out := p.admit(r)
		require.Len(t, out, 1)
		require.Len(t, out[0].records, 1, "the last one may take more than there are")
		require.Equal(t, pollPause, p.next(kafka.PollAtMost))
		p.store(d, 0, 1, intake.Size{}) // it was rejected
		require.Len(t, p.release(), 1)
		p.store(d, 0, 2, intake.Size{Tasks: 1, Bytes: 60})
		require.Empty(t, p.take(t, noisy, 0, 2, 1))
		require.Equal(t, quotaBytes, *p.intakes[noisy].at.Load())
	})
}

// A partition that was another scanner's meanwhile is counted before anything more is taken.
func TestAPartitionThatComesIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.count(t)
		require.EqualValues(t, 4, follow(t, 0, p.take(t, noisy, 0, 0, 4)))
		p.store(d, 0, 4, tasks(4))
		again := partitionKey{noisy, 1}
		p.parts.drop(map[string][]int32{noisy: {1}})
		p.parts.assign(map[string]map[int32]kgo.Offset{noisy: {1: kgo.NewOffset()}}, nil, nil, nil)
		p.parts.begun(again, 0)
		d.pending[1] = tasks(3) // by the other scanner
		p.divide()
		require.Empty(t, p.take(t, noisy, 0, 4, 5))
		require.Empty(t, p.release())
		p.count(t)
		require.Equal(t, 2, d.calls, "at once")
		require.EqualValues(t, 7, follow(t, 4, p.release()), "10 less 4 less 3")
		p.parts.drop(map[string][]int32{noisy: {0}})
		p.divide()
		require.Empty(t, p.intakes[noisy].pending.onTheWay, "what was on the way is another scanner's")
	})
}

func TestWhatIsReadAgainFindsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(8)}}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.count(t)
		require.EqualValues(t, 2, follow(t, 0, p.take(t, noisy, 0, 0, 4)))
		key := partitionKey{noisy, 0}
		p.parts.setBack(p.parts.readings[key], 0)
		p.parts.begun(key, 0)
		p.divide()
		p.release()
		require.EqualValues(t, 2, follow(t, 0, p.take(t, noisy, 0, 0, 4)), "it has passed before")
		require.Empty(t, p.release(), "and takes its room again")
	})
}

// Another scanner has stored a batch, or a part of it. Until the next count it counts as a whole.
func TestABatchThatIsPerhapsStoredTakesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.count(t)
		key := partitionKey{noisy, 0}
		var b intake.Batch
		dec := newDecoder(Config{}.withDefaults(), nil, nil)
		for n := range int64(8) {
			r := record(noisy, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprint(n), schemas.HeaderDelay, "1h")
			r.Offset, r.Timestamp = n, time.Now()
			c, _ := dec.decode(3, r)
			b.Changes = append(b.Changes, c)
		}
		p.perhapsStored([]coverage{{reading: p.parts.readings[key], src: intake.Source{ID: 3, Topic: noisy}}}, b)
		require.EqualValues(t, 2, follow(t, 0, p.take(t, noisy, 0, 0, 4)))
	})
}

// rejects requires that stretches of a partition of noisy follow each other, and returns where they end, and where those beyond a quota begin.
func rejects(t *testing.T, from int64, stretches []stretch, quota string) (beyond, to int64) {
	to = follow(t, from, stretches)
	beyond = to
	for _, s := range stretches {
		if s.beyond != "" {
			require.Equal(t, quota, s.beyond)
			beyond = min(beyond, s.from)
		} else {
			require.LessOrEqual(t, s.to, beyond)
		}
	}
	return beyond, to
}

// A request is rejected only by a count that began after the limit was reached and found it used, when nothing is on the way any more.
func TestWhatIsBeyondAQuotaOfPendingTasksIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 20, Reject: true}, d)
		require.Empty(t, p.take(t, noisy, 0, 0, 15), "nothing was counted yet")
		require.Empty(t, p.release())
		p.count(t)
		require.EqualValues(t, 10, follow(t, 0, p.release()))
		time.Sleep(pendingEvery)
		p.count(t)
		require.Empty(t, p.release(), "what is on the way may open less")
		p.store(d, 0, 10, tasks(8))
		beyond, to := rejects(t, 10, p.release(), quotaTasks)
		require.EqualValues(t, []int64{12, 12}, []int64{beyond, to}, "two have left their room")
		p.store(d, 0, 12, tasks(2))
		require.Empty(t, p.release(), "the count found nothing of what uses the quota up")
		time.Sleep(pendingEvery)
		p.count(t)
		beyond, to = rejects(t, 12, p.release(), quotaTasks)
		require.EqualValues(t, []int64{12, 15}, []int64{beyond, to})
		require.Empty(t, p.paused())
		require.Zero(t, p.intakes[noisy].bytes)
		p.expect()
		require.Equal(t, 100, p.fit(partitionKey{noisy, 0}, polled(noisy, 0, 15, 100)))
		beyond, _ = rejects(t, 15, p.take(t, noisy, 0, 15, 100), quotaTasks)
		require.EqualValues(t, 15, beyond, "at once")

		key := partitionKey{noisy, 0} // a batch of them has failed
		p.parts.setBack(p.parts.readings[key], 15)
		p.parts.begun(key, 15)
		beyond, _ = rejects(t, 15, p.take(t, noisy, 0, 15, 100), quotaTasks)
		require.EqualValues(t, 115, beyond, "what is read again is not rejected: it may have been accepted")
		p.store(d, 0, 115, tasks(100))

		time.Sleep(2 * atLimitFor) // long after the limit was reached, the count may be too old
		d.pending[0] = tasks(5)
		p.divide()
		require.Empty(t, p.take(t, noisy, 0, 115, 10))
		p.count(t)
		require.EqualValues(t, 120, follow(t, 115, p.release()))
		p.store(d, 0, 120, tasks(5))
		d.err = errors.New("away")
		for range 1000 {
			time.Sleep(pendingLook)
			p.count(t)
			require.Empty(t, p.release(), "no count has begun since")
		}
	})
}

// Cancels of another partition keep nothing from being rejected, and what waits for a count is not rejected because they use the quota of
// requests up.
func TestCancelsBesideWhatIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{RequestsPerSecond: 20, PendingTasks: 20, Reject: true}, &database{pending: [5]intake.Size{tasks(10)}}) // 10 here
		p.count(t)
		cancels := func(from, n int64) []stretch {
			records := polled(noisy, 1, from, n)
			for _, r := range records {
				r.Headers = append(r.Headers[:0], kgo.RecordHeader{Key: "h", Value: []byte("v")}, kgo.RecordHeader{Key: schemas.HeaderOp, Value: []byte("cancel")})
			}
			s, _ := p.parts.received(records)
			return p.admit(s)
		}
		require.Empty(t, p.take(t, noisy, 0, 0, 1))
		require.EqualValues(t, 10, follow(t, 0, cancels(0, 10)))
		require.Empty(t, p.release(), "it was read within the quota of requests")
		time.Sleep(pendingEvery)
		p.count(t)
		require.Empty(t, cancels(10, 5), "another waited for the quota of requests first")
		released := p.release()
		require.EqualValues(t, 15, follow(t, 10, released[1:]))
		beyond, to := rejects(t, 0, released[:1], quotaTasks)
		require.EqualValues(t, []int64{0, 1}, []int64{beyond, to})
	})
}

// A flood of tasks that are delivered at once fills the room between two counts, though little is pending when each begins. It waits.
func TestWhatACountFindsLittleOfIsNotRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 20, Reject: true}, d)
		p.count(t)
		for at, n := int64(0), 0; n < 10; n++ {
			passed := p.take(t, noisy, 0, at, 10)
			require.EqualValues(t, at+10, follow(t, at, passed))
			at += 10
			p.store(d, 0, at, tasks(10))
			require.Empty(t, p.take(t, noisy, 0, at, 5), "no room is known")
			d.pending[0] = tasks(4)
			time.Sleep(pendingEvery)
			p.count(t)
			require.EqualValues(t, at+5, follow(t, at, p.release()))
			at += 5
			p.store(d, 0, at, tasks(1))
			d.pending[0] = tasks(0)
			time.Sleep(pendingEvery)
			p.count(t)
		}
		require.Zero(t, p.intakes[noisy].rejected.Load())
	})
}

// Little is pending of tasks that are delivered at once, so an intake takes its quota of them by each count.
func TestTasksThatAreDeliveredAtOnceWaitForSecondsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, reject := range []bool{false, true} {
			p := pacingAt(Quota{PendingTasks: 20, Reject: reject}, &database{takes: time.Millisecond})
			at := follow(t, 0, p.take(t, noisy, 0, 0, 200))
			began := time.Now()
			for at < 200 && time.Since(began) < time.Hour {
				time.Sleep(pendingLook)
				p.count(t)
				at = follow(t, at, p.release())
				p.store(p.counter.(*database), 0, at, intake.Size{}) // delivered, by the next count
				p.intakes[noisy].pending.add(tasks(min(at, 10)))
			}
			require.Less(t, time.Since(began), 25*time.Second, "10 pass by each count")
			require.Zero(t, p.intakes[noisy].rejected.Load())
		}
	})
}

// After a count for which the database, or this process, stood still, the next one comes soon: it finds the room that there is by then, and
// a partition that another scanner had is counted.
func TestOneSlowCountMakesNoLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []error{nil, errors.New("away")} {
			d := &database{takes: time.Millisecond}
			p := pacingAt(Quota{PendingTasks: 20}, d)
			p.count(t)
			p.store(d, 0, follow(t, 0, p.take(t, noisy, 0, 0, 20)), tasks(10))
			time.Sleep(pendingEvery)
			d.takes, d.err = 15*time.Second, failure
			p.count(t)
			d.takes, d.err, d.pending[0] = time.Millisecond, nil, tasks(0)
			p.parts.drop(map[string][]int32{noisy: {1}})
			p.parts.sources[partitionKey{noisy, 1}] = nil
			began, to := time.Now(), int64(10)
			for to == 10 && time.Since(began) < time.Hour {
				p.count(t)
				time.Sleep(pendingLook)
				to = follow(t, 10, p.release())
			}
			require.LessOrEqual(t, time.Since(began), failedEvery+2*pendingLook)
		}
	})
}

// Partitions that come and leave before they are counted leave no wish for a count behind. Those that come again are counted.
func TestAnIntakeWithoutPartitionsIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.divide()
		require.True(t, p.intakes[noisy].pending.urgent.Load())
		p.parts.drop(map[string][]int32{noisy: {0, 1}})
		p.divide()
		for range 100 {
			p.countPending(t.Context(), p.countings[0])
			time.Sleep(pendingLook)
		}
		require.Zero(t, d.calls)
	})
}

// What lies behind the place where a log became another one is never stored, and takes no room.
func TestWhatIsNeverStoredTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{PendingTasks: 20}, &database{})
		p.count(t)
		require.EqualValues(t, 10, follow(t, 0, p.take(t, noisy, 0, 0, 10)))
		p.parts.readings[partitionKey{noisy, 0}].endAt(5)
		p.divide()
		require.EqualValues(t, 10, follow(t, 0, p.take(t, noisy, 1, 0, 10)))
	})
}

// The marker of a transaction is no request: a cancel behind it goes its way, also while nothing is counted.
func TestMarkersAndCancelsTakeNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{PendingTasks: 1, RequestsPerSecond: 2}, &database{})
		records := polled(noisy, 0, 0, 4)
		for i, r := range records {
			if i%2 == 0 {
				r.Headers = []kgo.RecordHeader{{Key: schemas.HeaderOp, Value: []byte("cancel")}}
			} else {
				r.Attrs = kgo.NewRecordAttrs(kgo.RecordAttrsOpts{Control: true})
			}
		}
		pass := p.intakes[noisy].passing(0, records, false, time.Now())
		require.Equal(t, "requests-per-second", pass.quota, "half of two a second")
		require.EqualValues(t, []int{2, 1}, []int{pass.n(), pass.requests})
	})
}

func TestWhatIsBeyondTheQuotaOfRequestsIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pacingAt(Quota{RequestsPerSecond: 20, Reject: true}, nil)
		beyond, to := rejects(t, 0, p.take(t, noisy, 0, 0, 100), quotaRequests)
		require.EqualValues(t, []int64{10, 100}, []int64{beyond, to})
		time.Sleep(500 * time.Millisecond)
		beyond, to = rejects(t, 100, p.take(t, noisy, 0, 100, 100), quotaRequests)
		require.EqualValues(t, []int64{105, 200}, []int64{beyond, to})
		require.Empty(t, p.paused())
		require.Empty(t, p.release())
		require.EqualValues(t, 185, p.intakes[noisy].rejected.Load())
	})
}

func TestWhatAQuotaRejects(t *testing.T) {
	dec := newDecoder(Config{}.withDefaults(), nil, nil)
	for op, lost := range map[string]bool{"schedule": true, "fire": true, "cancel": false, "stop": false} {
		r := record(noisy, 0, schemas.HeaderOp, op, schemas.HeaderTopic, "orders", schemas.HeaderID, "a")
		if op == "schedule" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: schemas.HeaderDelay, Value: []byte("1h")})
		}
		r.Timestamp = time.Now()
		c, ok := dec.decode(3, r)
		require.True(t, ok)
		require.Nil(t, c.Rejected, op)
		require.Equal(t, c, atQuota(c, r, ""))
		got := atQuota(c, r, quotaRequests)
		require.Equal(t, lost, got.Rejected != nil, op)
		if lost {
			require.Nil(t, got.Request)
			require.Equal(t, `quota "requests-per-second" of the intake is used up: send it again later, or ask the operator to raise the quota`, got.Rejected.Reason)
			require.Equal(t, []string{"orders", "a"}, []string{got.Rejected.Topic, got.Rejected.TaskID})
		}
		got = atQuota(c, r, quotaTasks)
		require.Nil(t, got.Rejected, "the task's state decides")
		require.Equal(t, lost, got.Beyond == quotaTasks, op)
	}
}

// The tasks of a flood never stand beyond the quota, whichever scanner has the partitions, and all of them are stored in the end. Tasks
// end when they are deleted here.
func TestPendingTasksStayBelowTheirQuota(t *testing.T) {
	f := newFixture(t)
	_, err := kafka.EnsureTopics(f.Context(), f.client, []kafka.TopicSpec{{Name: noisy, Partitions: 2, Replication: 1}})
	require.NoError(t, err)
	const n, quota = 100, 40
	cfg := Config{Intake: []string{noisy, schemas.TopicIntake}, Quotas: map[string]Quota{noisy: {PendingTasks: quota, PendingBytes: 1 << 20}}}
	var flood []*kgo.Record
	for i := range n {
		flood = append(flood, record(noisy, int32(i%2), schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprintf("noisy-%d", i), schemas.HeaderDelay, "1h"))
	}
	f.publish(flood...)
	pending := func() int { return f.count("SELECT COUNT(*) FROM tasks WHERE CAST(id AS TEXT) LIKE 'noisy-%'") }
	first := f.start(f.open(), cfg)
	f.eventually("it goes on up to the quota", func() bool { return pending() == quota })
	f.publish(asksIn("calm", 50, 0)...)
	f.eventually("the other intake is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE CAST(id AS TEXT) LIKE 'calm%'") == 50 })
	second := f.start(f.open(), cfg)
	f.eventually("both scanners read", func() bool { return len(second.reads()) > 0 })
	f.eventually("all are stored", func() bool {
		require.LessOrEqual(t, pending(), quota)
		if pending() > quota/4 {
			f.sql("DELETE FROM tasks WHERE CAST(id AS TEXT) LIKE 'noisy-%'")
			first.end()
		}
		return f.count("SELECT SUM(next_offset) FROM sources WHERE CAST(topic AS TEXT) = '"+noisy+"'") == n
	})
	require.Zero(t, f.count("SELECT COUNT(*) FROM dead_letters"))
}

// A database that was slow for two counts in a row holds nobody up for much longer than that.
func TestTwoSlowCountsMakeAShortWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, slow := range []time.Duration{3 * time.Second, 9 * time.Second, 40 * time.Second} {
			d := &database{takes: 10 * time.Millisecond}
			p := pacingAt(Quota{PendingTasks: 20}, d)
			p.count(t)
			p.store(d, 0, follow(t, 0, p.take(t, noisy, 0, 0, 20)), tasks(10))
			time.Sleep(pendingEvery)
			d.takes = slow
			p.count(t)
			time.Sleep(pendingEvery)
			p.count(t)
			d.takes, d.pending[0] = 10*time.Millisecond, tasks(0) // well, and all is delivered
			began := time.Now()
			for len(p.release()) == 0 {
				time.Sleep(pendingLook)
				p.count(t)
			}
			require.LessOrEqual(t, time.Since(began), max(longestPause, 2*slow)+time.Second, slow)
		}
	})
}

// neighbours has intakes more, whose tasks are counted with their bodies.
type neighbours struct {
	*database
	big  error // of the counts of big.intake and large.intake, which take long
	long time.Duration
}

func (b neighbours) Sources(ctx context.Context) ([]intake.Source, error) {
	out, err := b.database.Sources(ctx)
	return append(out, intake.Source{ID: 20, Topic: "big.intake"}, intake.Source{ID: 21, Topic: "small.intake"}, intake.Source{ID: 22, Topic: "large.intake"}), err
}

func (b neighbours) PendingSize(ctx context.Context, sources []int, bodies bool) (map[int]intake.Size, error) {
	switch {
	case !bodies:
		return b.database.PendingSize(ctx, sources, false)
	case !slices.Contains(sources, 21):
		loop.Rest(ctx, b.long)
		return map[int]intake.Size{sources[0]: {Tasks: 1e6, Bytes: 1e8}}, b.big
	}
	return map[int]intake.Size{}, nil
}

// Intakes whose tasks take long to count with their bodies, or cannot be counted, delay no other once they were counted: neither one whose
// bodies are counted nor one whose tasks are.
func TestLongCountsDelayNoOtherIntake(t *testing.T) {
	for _, failure := range []error{nil, errors.New("it takes too long")} {
		synctest.Test(t, func(t *testing.T) {
			d := &database{takes: 10 * time.Millisecond}
			p := pacingAt(Quota{PendingTasks: 20}, neighbours{d, failure, 5 * time.Minute}) // 10 here
			sizes := map[string][]int32{noisy: {0, 1, 2, 3}}
			for _, topic := range []string{"big.intake", "small.intake", "large.intake"} {
				at := Quota{PendingBytes: 10_000}
				in := &paced{quota: at, now: at, bucket: p.intakes[noisy].bucket, letters: p.intakes[noisy].letters}
				in.at.Store(new(string))
				p.intakes[topic] = in
				key := partitionKey{topic, 0}
				p.parts.sources[key] = nil
				p.parts.begun(key, 0)
				sizes[topic] = []int32{0}
			}
			p.sizes.Store(&sizes)
			p.countings = countings(p.intakes)
			p.divide()
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			for _, c := range p.countings {
				go loop.Every(ctx, pendingLook, func(ctx context.Context) { p.countPending(ctx, c) })
			}
			time.Sleep(15 * time.Minute)
			p.divide()
			p.take(t, "big.intake", 0, 0, 10)
			p.take(t, "large.intake", 0, 0, 10)
			began, to, small := time.Now(), follow(t, 0, p.take(t, noisy, 0, 0, 200)), follow(t, 0, p.take(t, "small.intake", 0, 0, 1000))
			require.EqualValues(t, 10, to)
			require.Less(t, small, int64(200), "of some 70 bytes")
			for added, addedSmall := int64(0), int64(0); to < 200 || small < 1000; {
				p.parts.set(partitionKey{noisy, 0}, intake.Source{Topic: noisy, Next: to}) // delivered at once
				p.intakes[noisy].pending.add(tasks(to - added))
				p.intakes["small.intake"].pending.add(intake.Size{Tasks: small - addedSmall, Bytes: 80 * (small - addedSmall)})
				added, addedSmall = to, small
				p.parts.set(partitionKey{"small.intake", 0}, intake.Source{ID: 21, Topic: "small.intake", Next: small})
				time.Sleep(pendingLook)
				p.divide()
				for _, s := range p.release() {
					if s.key().topic == noisy {
						to = follow(t, to, []stretch{s})
					} else {
						small = follow(t, small, []stretch{s})
					}
				}
				require.Less(t, time.Since(began), 30*time.Second)
			}
		})
	}
}

// What a partition brought that leaves takes room until the next count, and the others use the rest. Nothing is rejected by it.
func TestAPartitionThatLeavesLeavesTheOthersTheirRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(1), tasks(5)}}
		p := pacingAt(Quota{PendingTasks: 32}, d) // 16 here
		p.count(t)
		p.parts.drop(map[string][]int32{noisy: {1}}) // 8 here
		d.err = errors.New("away")
		time.Sleep(pendingEvery)
		p.count(t)
		require.EqualValues(t, 2, follow(t, 0, p.take(t, noisy, 0, 0, 5)), "8 less 1 less 5")
		p.store(d, 0, 2, tasks(2))
		d.err = nil
		time.Sleep(failedEvery)
		p.count(t)
		require.EqualValues(t, 5, follow(t, 2, p.release()), "8 less 3")
	})
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(5), tasks(11)}}
		p := pacingAt(Quota{PendingTasks: 32, Reject: true}, d)
		p.count(t)
		require.Empty(t, p.take(t, noisy, 0, 0, 5))
		time.Sleep(pendingEvery)
		p.count(t)
		beyond, to := rejects(t, 0, p.release(), quotaTasks)
		require.EqualValues(t, []int64{0, 5}, []int64{beyond, to})
		p.parts.drop(map[string][]int32{noisy: {1}})
		p.divide()
		require.Empty(t, p.take(t, noisy, 0, 5, 3), "the other scanner's tasks may be what uses the quota up")
		time.Sleep(pendingEvery)
		p.count(t)
		require.EqualValues(t, 8, follow(t, 5, p.release()))
		require.EqualValues(t, 5, p.intakes[noisy].rejected.Load())
	})
}

// The last count that succeeded is too old soon where the next ones fail, however long it took.
func TestAnOldCountRejectsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{takes: 40 * time.Second, pending: [5]intake.Size{tasks(20)}}
		p := pacingAt(Quota{PendingTasks: 20, Reject: true}, d)
		require.Empty(t, p.take(t, noisy, 0, 0, 1))
		p.count(t)
		require.Empty(t, p.release(), "no count has begun since the quota was reached")
		time.Sleep(pendingEvery)
		p.count(t)
		require.Len(t, p.release(), 1)
		d.err = errors.New("away")
		began := time.Now()
		at := int64(1)
		for ; time.Since(began) < time.Hour; at++ {
			if len(p.take(t, noisy, 0, at, 1)) == 0 {
				break
			}
			p.store(d, 0, at+1, tasks(0))
			time.Sleep(time.Second)
		}
		require.Less(t, time.Since(began), 7*time.Minute)
	})
}

// What asks for no task finds no quota of pending tasks in its way.
func TestWhatSchedulesNothingNeedsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{pending: [5]intake.Size{tasks(10)}}
		p := pacingAt(Quota{PendingTasks: 20}, d)
		p.count(t)
		require.Empty(t, p.take(t, noisy, 0, 0, 1), "a task")
		require.NotContains(t, p.paused(), partitionKey{noisy, 1})
		for n, headers := range [][]string{
			{schemas.HeaderOp, "cancel"}, {schemas.HeaderOp, "fire"}, {schemas.HeaderOp, "stop"}, {schemas.HeaderOp, "timer-delete"}, {schemas.HeaderOp, "timer-disable"}, {"scheduler-target-topic", "orders", "scheduler-epoch", "1"},
		} {
			r := record(noisy, 1, append(headers, schemas.HeaderTopic, "orders", schemas.HeaderID, "a")...)
			r.Offset, r.Value = int64(n), nil
			s, _ := p.parts.received([]*kgo.Record{r})
			require.Len(t, p.admit(s), 1, headers)
		}
	})
}

// With Kafka: a cancel in another partition than the one whose many requests wait.
func TestACancelBesideAFullQuota(t *testing.T) {
	f := newFixture(t)
	_, err := kafka.EnsureTopics(f.Context(), f.client, []kafka.TopicSpec{{Name: noisy, Partitions: 2, Replication: 1}})
	require.NoError(t, err)
	task := func(i int, partition int32) *kgo.Record {
		return record(noisy, partition, schemas.HeaderTopic, "orders", schemas.HeaderID, fmt.Sprintf("noisy-%d", i), schemas.HeaderDelay, "1h")
	}
	f.publish(task(0, 1))
	f.start(f.open(), Config{Intake: []string{noisy, schemas.TopicIntake}, Quotas: map[string]Quota{noisy: {PendingTasks: 10}}})
	f.eventually("the first is stored", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 1 })
	var flood []*kgo.Record
	for i := 1; i < 12_000; i++ { // more than one poll has
		flood = append(flood, task(i, 0))
	}
	f.publish(flood...)
	f.eventually("the quota is full", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 10 })
	f.publish(record(noisy, 1, schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders", schemas.HeaderID, "noisy-0"))
	f.eventually("it is cancelled", func() bool { return f.count("SELECT COUNT(*) FROM tasks WHERE slot = -1") == 1 })
	f.eventually("its room is taken", func() bool { return f.count("SELECT COUNT(*) FROM tasks") == 11 })
}
