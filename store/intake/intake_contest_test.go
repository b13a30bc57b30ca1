package intake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/task"
)

func TestTwoScannersOnTheSameIDs(t *testing.T)             { holds(t, sameIDs) }
func TestTwoRowsOfOneIDAreNoticed(t *testing.T)            { noticesTwoRows(t) }
func TestCancelStaysBesideAFire(t *testing.T)              { holds(t, cancelBesideFire) }
func TestFiringTheCancelledIsNoticed(t *testing.T)         { notices(t, noExclusiveLock, cancelBesideFire) }
func TestDoubledIntakeCountsOnce(t *testing.T)             { holds(t, doubledIntake) }
func TestDoubledIntakeCountingTwiceIsNoticed(t *testing.T) { notices(t, noOffsetCheck, doubledIntake) }

// sameIDs lets two scanners schedule the same few ids, fresh and known. Every sum must arrive in full, there is one row for
// each id, and no version falls.
func sameIDs(s *fixture) *violations {
	const scanners, batches, ids = 2, 50, 12
	v := &violations{}
	var mu sync.Mutex
	sums, versions := map[string]int{}, map[string]int64{}
	var wg sync.WaitGroup
	for n := range scanners {
		wg.Go(func() {
			w := newWriter(s, n, v)
			for range batches {
				var requests []*schemas.Request
				for _, i := range rand.Perm(ids)[:4] {
					r := s.schedule(fmt.Sprint("sum-", i), merge(schemas.MergeSum), value(`{"n":1}`), in(9e9))
					requests = append(requests, r, s.schedule(fmt.Sprint("version-", i), version(rand.Int64N(1000)), in(9e9)))
				}
				_, events := w.bring(requests...)
				mu.Lock()
				for _, e := range events {
					if e.State == schemas.StateMerged || e.State == schemas.StateScheduled {
						sums[e.ID]++
					}
				}
				for _, r := range requests {
					versions[r.ID] = max(versions[r.ID], r.Version)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for id, sum := range sums {
		rows := s.rows(id)
		if len(rows) != 1 {
			v.add("%s has %d rows", id, len(rows))
			continue
		}
		if want := fmt.Sprintf(`{"n":%d}`, sum); id[0] == 's' && string(s.body(id).Value) != want {
			v.add("%s is %s, not %s", id, s.body(id).Value, want)
		}
		if id[0] == 'v' && rows[0].Version != versions[id] {
			v.add("%s has version %d, not %d", id, rows[0].Version, versions[id])
		}
	}
	return v
}

// noticesTwoRows takes the unique key away, which is what keeps two writers of one fresh id apart.
func noticesTwoRows(t *testing.T) {
	for _, b := range backends() {
		if b.sqlite {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			b.migrated = b.fresh // nobody else wants this table
			s := b.fixture(t)
			if _, err := s.db.ExecContext(s.ctx, "ALTER TABLE tasks DROP INDEX ident, ADD INDEX ident (ident)"); err != nil {
				t.Fatal(err)
			}
			for range 50 {
				if v := sameIDs(s); len(v.list) > 0 {
					return
				}
				if _, err := s.db.ExecContext(s.ctx, "DELETE FROM tasks"); err != nil {
					t.Fatal(err)
				}
			}
			t.Fatal("nothing was noticed")
		})
	}
}

// cancelBesideFire lets one scanner cancel what another fires. Who comes first decides, but once a cancel is answered
// cancelled the task stays so.
func cancelBesideFire(s *fixture) *violations {
	const rounds = 60
	v := &violations{}
	one, two := newWriter(s, 0, v), newWriter(s, 1, v)
	for round := range rounds {
		id := fmt.Sprint(round)
		one.bring(s.schedule(id, in(9e9)))
		var wg sync.WaitGroup
		var cancelled []schemas.Event
		wg.Go(func() { _, cancelled = one.bring(s.cancel(id)) })
		wg.Go(func() { two.bring(s.fire(id)) })
		wg.Wait()
		if len(cancelled) != 1 || cancelled[0].State != schemas.StateCancelled {
			v.add("the cancel of a task that nobody claims was answered %v", cancelled)
		}
		if state := s.state(id); state != "cancelled" {
			v.add("after its cancel was answered, %s is %s", id, state)
		}
	}
	return v
}

// doubledIntake gives one partition to two readers, as a rebalance that goes wrong does. Every record counts once.
func doubledIntake(s *fixture) *violations {
	const records, readers, ids = 300, 2, 5
	v := &violations{}
	requests := make([]*schemas.Request, records)
	for i := range requests {
		requests[i] = s.schedule(fmt.Sprint(i%ids), merge(schemas.MergeSum), value(`{"n":1}`), in(9e9), tell(schemas.EventsNone))
	}
	var wg sync.WaitGroup
	for range readers {
		in := New(s.rival())
		wg.Go(func() {
			next := int64(0)
			for next < records {
				to := min(next+1+rand.Int64N(8), records)
				b := Batch{Advance: []Advance{{s.source.ID, next, to}}}
				for offset := next; offset < to; offset++ {
					b.Changes = append(b.Changes, task.Change{Seq: task.Seq(s.source.ID, offset), Request: requests[offset]})
				}
				switch _, err := in.Apply(s.ctx, b, store.At(s.now)); {
				case err == nil:
					next = to
				case errors.Is(err, handle.ErrFenced):
					src, err := in.Source(s.ctx, s.source.Topic, s.source.TopicID, s.source.Partition, 0)
					if err != nil {
						v.fail(err)
						return
					}
					next = src.Next
				default:
					v.fail(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range ids {
		id := fmt.Sprint(i)
		if got, want := string(s.body(id).Value), fmt.Sprintf(`{"n":%d}`, records/ids); got != want {
			v.add("%s is %s, not %s", id, got, want)
		}
	}
	return v
}
