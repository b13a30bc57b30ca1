package intake

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/timer"
)

func TestTwoOwnersMakeARunOnce(t *testing.T)             { holds(t, runMakers) }
func TestRunsOfAnOwnerOfThePastAreNoticed(t *testing.T)  { notices(t, noEpochCheck, runMakers) }
func TestRequestsAboutTimersRaceTheirOwner(t *testing.T) { holds(t, timerChangers) }
func TestTimersChangedWithoutALockAreNoticed(t *testing.T) {
	notices(t, noExclusiveLock, timerChangers)
}

const contestants = 12 // timers

func contestTimer(n int, op schemas.Op, now int64) *schemas.Request {
	r := schemas.NewRequest(op, target, fmt.Sprint("t", n))
	r.Accepted, r.Key, r.Value = now, []byte(fmt.Sprint(n)), []byte("v")
	if op == schemas.OpTimer {
		r.Timer = schemas.Timer{Every: time.Second, Timezone: "UTC"}
	}
	return &r
}

// runMakers are owners that take the slots from one another while they make the runs of the same timers. Every run of each timer
// must be there once, and what an owner starts after another's Acquire has returned must make nothing.
func runMakers(s *fixture) *violations {
	v := &violations{}
	var requests []any
	for n := range contestants {
		requests = append(requests, contestTimer(n, schemas.OpTimer, t0))
	}
	s.do(requests...)
	stores := []*store.Store{s.Store, s.rival()}
	var acquired, upTo atomic.Int64 // the highest epoch whose Acquire has returned; runs are wanted up to here
	upTo.Store(t0)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			st := stores[n%2]
			for range 8 {
				epoch, err := New(st).Line().NextEpoch(s.ctx)
				if err != nil {
					v.fail(err)
					return
				}
				taken, err := New(st).Line().Acquire(s.ctx, []int{0, 1, 2, 3}, epoch, string(rune('a'+n)))
				if err != nil {
					v.fail(err)
					return
				}
				if len(taken) < testSlots {
					continue // a later one was faster
				}
				raise(&acquired, epoch)
				for range 4 {
					before := acquired.Load()
					owned := []store.SlotEpoch{{Slot: 0, Epoch: epoch}, {Slot: 1, Epoch: epoch}, {Slot: 2, Epoch: epoch}, {Slot: 3, Epoch: epoch}}
					made, err := New(st).MakeRuns(s.ctx, owned, upTo.Add(1000), t0, tolerance, map[[16]byte]bool{})
					if err == nil && made.Runs > 0 && before > epoch {
						v.add("%d runs were made under epoch %d after epoch %d had been acquired", made.Runs, epoch, before)
					}
					if err != nil && !errors.Is(err, handle.ErrFenced) {
						v.fail(err)
					}
				}
			}
		})
	}
	wg.Wait()
	s.own()
	for more := true; more; {
		made, err := s.MakeRuns(s.ctx, s.owned(s.epoch), upTo.Load(), t0, tolerance, map[[16]byte]bool{})
		if more = err == nil && made.Timers > 0; err != nil {
			v.fail(err)
		}
	}
	rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks")
	if err != nil {
		v.fail(err)
	}
	found := map[string]int{}
	for _, row := range rows {
		found[row.ID]++
	}
	for n := range contestants {
		for run := int64(t0); run <= upTo.Load(); run += 1000 {
			if count := found[timer.RunID(fmt.Sprint("t", n), run)]; count != 1 {
				v.add("timer %d has %d runs at %d", n, count, run-t0)
			}
		}
	}
	return v
}

// timerChangers disable and set timers while their owner makes and claims their runs. After the answer to a disable there is no run
// behind claimed.
func timerChangers(s *fixture) *violations {
	v := &violations{}
	stores := []*store.Store{s.Store, s.rival()}
	s.own()
	slots := s.allSlots()
	stop, turns := make(chan struct{}), make(chan struct{}) // turns: the owner has made or claimed runs
	turn := func() {
		select {
		case turns <- struct{}{}:
		default:
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(turns)
		for at := int64(t0); ; at += 200 {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := New(stores[1]).MakeRuns(s.ctx, s.owned(s.epoch), at+10_000, at, time.Hour, map[[16]byte]bool{}); err != nil {
				v.fail(err)
				return
			}
			turn()
			if err := claimTo(s.ctx, stores[1], slots, s.epoch, at+rand.Int64N(200)); err != nil {
				v.fail(err)
				return
			}
			turn()
		}
	})
	for range 25 {
		n := rand.IntN(contestants)
		s.do(contestTimer(n, schemas.OpTimer, t0))
		for range rand.IntN(4) { // the owner makes some; how many does not matter
			<-turns
		}
		s.do(contestTimer(n, schemas.OpTimerDisable, t0))
		rows, err := tables.Fetch(s.ctx, s.db, tables.ScanTask, "SELECT "+tables.TaskColumns+" FROM tasks t WHERE pos > (SELECT claimed FROM slots s WHERE s.slot = t.slot)")
		if err != nil {
			v.fail(err)
		}
		for _, row := range rows {
			body, err := schemas.DecodeBody(row.Body)
			if src, _ := task.SplitSeq(row.Seq); err == nil && src == task.RunSource && body.Settings.Run.Timer == fmt.Sprint("t", n) {
				v.add("run %s is pending after its timer was disabled", row.ID)
			}
		}
	}
	close(stop)
	wg.Wait()
	return v
}

func TestContestTimersAreInSeveralSlots(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		seen := map[int]bool{}
		for n := range contestants {
			s.do(contestTimer(n, schemas.OpTimer, t0))
			require.NotEmpty(t, s.last.Timers)
			seen[s.last.Timers[0]] = true
		}
		require.Greater(t, len(seen), 1)
	})
}
