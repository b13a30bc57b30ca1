package intake

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/line"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// awaiting is a task that was delivered once and whose report is awaited.
func awaiting(s *fixture, with ...option) {
	s.do(s.schedule("a", append([]option{wantReport, maxAttempts(3), fixedBackoff(5 * time.Second)}, with...)...))
	s.awaitReport("a", 1)
}

func TestReportOK(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		place := s.place("a")
		s.now += 30
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateSucceeded, Due: t0 + 1000, At: s.now, Attempt: 1, Lateness: schemas.LatenessUnknown}}, s.do(says("a", 1, schemas.StatusOK)))
		require.Equal(t, []handle.Place{place}, s.last.Removed)
		require.Equal(t, "succeeded", s.state("a"))
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK)), "doubled")
		require.Empty(t, s.do(says("a", 1, schemas.StatusFail)), "late")
		require.Equal(t, "succeeded", s.state("a"))
		require.Zero(t, s.count("dead_letters"))
	})
}

func TestReportRetry(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		s.now += 30
		r := says("a", 1, schemas.StatusRetry)
		r.Error = "try later"
		require.Equal(t, []schemas.Event{{Topic: target, ID: "a", State: schemas.StateRetrying, Due: t0 + 1000, At: s.now, Attempt: 1, Lateness: schemas.LatenessUnknown, Reason: "try later"}}, s.do(r))
		row := s.row("a")
		require.Equal(t, task.StateRetry, row.State)
		require.Equal(t, s.now+5000, row.Pos, "the backoff is counted from the report")
		require.Equal(t, 1, row.Attempt)
		require.Equal(t, task.ClassRetried, row.Class, "fresh work goes before retried work")
		require.Equal(t, []handle.Place{handle.NewPlace(row.Slot, row.Pos, row.Seq, row.Pos)}, s.last.Added, "what wakes its dispatcher is the next attempt, not the first due time")
		require.Equal(t, "waiting_retry", s.state("a"))

		for _, again := range []schemas.Report{r, says("a", 1, schemas.StatusFail), says("a", 2, schemas.StatusOK)} {
			require.Empty(t, s.do(again), "doubled, or of an attempt that was never made")
			require.Equal(t, row, s.row("a"))
		}
		s.awaitReport("a", 2)
		after := says("a", 2, schemas.StatusRetry)
		after.RetryAfter = 0
		s.do(after)
		require.Equal(t, max(s.now, s.row("a").Pos), s.row("a").Pos)
		require.LessOrEqual(t, s.row("a").Pos, s.now+1, "notyet-retry-after wins over the backoff, even at 0")
		require.Equal(t, s.now, s.last.Added[0].Due)
	})
}

func TestReportRetryAfter(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		r := says("a", 1, schemas.StatusRetry)
		r.RetryAfter = time.Hour + time.Nanosecond
		s.do(r)
		require.Equal(t, s.now+3_600_001, s.row("a").Pos, "rounding is only ever late")
	})
}

func TestReportFail(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		r := says("a", 1, schemas.StatusFail)
		r.Error = "bad \x00 order"
		events := s.do(r)
		require.Len(t, events, 1)
		require.Equal(t, map[string]int{schemas.KindDead: 1}, s.last.Dead)
		require.Equal(t, schemas.StateDead, events[0].State)
		require.Contains(t, events[0].Reason, r.Error)
		require.Equal(t, schemas.KindDead, events[0].Kind)
		require.Equal(t, "dead", s.state("a"))
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		row := s.row("a")
		require.Equal(t, []task.DeadLetter{{ID: letters[0].ID, Seq: row.Seq, Kind: schemas.KindDead, Topic: target, TaskID: "a", Due: t0 + 1000, Attempt: 1,
			Reason: "the consumer reported a permanent failure: " + r.Error, DiedAt: s.now, Body: row.Body}}, letters)

		require.Empty(t, s.do(r, says("a", 1, schemas.StatusOK)), "doubled and late")
		require.Empty(t, s.last.Dead)
		require.Equal(t, 1, s.count("dead_letters"))
		require.Equal(t, "dead", s.state("a"))
	})
}

func TestAttemptsExhausted(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		for attempt := 1; attempt <= 3; attempt++ {
			want := schemas.StateRetrying
			if attempt == 3 {
				want = schemas.StateDead
			}
			r := says("a", attempt, schemas.StatusRetry)
			r.Error = strings.Repeat("x", schemas.MaxReportError)
			require.Equal(t, want, s.answer(r), "attempt %d", attempt)
			require.Empty(t, s.do(r), "doubled")
			if attempt < 3 {
				s.awaitReport("a", attempt+1)
			}
		}
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		require.Len(t, letters, 1, "dead once")
		require.Equal(t, 3, letters[0].Attempt)
		require.Contains(t, letters[0].Reason, "attempts exhausted (3)")
		require.Equal(t, schemas.StateScheduled, s.answer(s.schedule("a")), "the id may be used again")
	})
}

// A late ok counts, whatever has been started since; a late retry or fail does not.
func TestLateReports(t *testing.T) {
	for name, bring := range map[string]func(s *fixture){
		"a retry is awaited":    func(s *fixture) { s.do(says("a", 1, schemas.StatusRetry)) },
		"a newer report is out": func(s *fixture) { s.do(says("a", 1, schemas.StatusRetry)); s.awaitReport("a", 2) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				awaiting(s)
				bring(s)
				before := s.row("a")
				require.Empty(t, s.do(says("a", 1, schemas.StatusRetry), says("a", 1, schemas.StatusFail)))
				require.Equal(t, before, s.row("a"))
				require.Equal(t, schemas.StateSucceeded, s.answer(says("a", 1, schemas.StatusOK)))
				require.Equal(t, "succeeded", s.state("a"))
			})
		})
	}
}

// A late ok that comes while the next attempt is in flight counts when that attempt's outcome is known.
func TestLateOKDuringTheNextAttempt(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		s.do(says("a", 1, schemas.StatusRetry))
		s.now = s.row("a").Pos
		s.claim(s.now)
		require.Empty(t, s.do(says("a", 1, schemas.StatusFail), says("a", 1, schemas.StatusOK)))
		s.settle(s.now, s.transition("a", task.StateReport, s.now+60_000, 2))
		require.Equal(t, "succeeded", s.state("a"))
	})
}

func TestForeignReports(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport), s.schedule("none", in(-time.Hour)), s.schedule("retried", in(-time.Hour)))
		s.claim(t0)
		s.settle(t0, s.transition("none", task.StateReport, t0+500_000, 1), s.transition("retried", task.StateRetry, t0+500_000, 1))
		before := s.dump()["tasks"]
		elsewhere := says("a", 1, schemas.StatusOK)
		elsewhere.Topic = "other"
		require.Empty(t, s.do(says("a", 1, schemas.StatusOK), says("a", 1, schemas.StatusFail)), "nothing was delivered yet")
		require.Empty(t, s.do(says("unknown", 1, schemas.StatusOK), elsewhere))
		require.Empty(t, s.do(says("none", 1, schemas.StatusFail), says("retried", 1, schemas.StatusOK)), "these ask for no report")
		require.Empty(t, s.do(says("a", 0, schemas.StatusOK), says("a", -1, schemas.StatusOK), says("a", 99, schemas.StatusFail)))
		require.Equal(t, before, s.dump()["tasks"])
		require.Zero(t, s.count("waiting"))
		require.Zero(t, s.count("dead_letters"))
	})
}

// about is the report of a delivery that names it, as the consumer library sends it.
func (f *fixture) about(row task.Task, attempt int, status schemas.Status) schemas.Report {
	r := says(row.ID, attempt, status)
	_, offset := task.SplitSeq(row.Seq)
	r.Delivery = schemas.DeliveryKey(f.source.TopicID, f.source.Partition, offset, int(task.SendNumber(row.Replay, attempt)))
	return r
}

// A report that names its delivery is about that one and no other: an id can be used again, and a dead task replayed.
func TestReportOfAnEarlierTask(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		awaiting(s)
		monday := s.about(s.row("a"), 1, schemas.StatusOK)
		require.Len(t, s.do(monday), 1)
		require.Equal(t, "succeeded", s.state("a"))

		awaiting(s)
		tuesday := s.row("a")
		for _, status := range []schemas.Status{schemas.StatusOK, schemas.StatusRetry, schemas.StatusFail} {
			doubled := monday
			doubled.Status = status
			require.Empty(t, s.do(doubled), "%s", status)
			require.Equal(t, tuesday, s.row("a"))
		}
		s.claim(tuesday.Pos)
		require.Empty(t, s.do(monday))
		require.Zero(t, s.count("waiting"), "nor does it wait for the outcome of another delivery")
		s.settle(tuesday.Pos, s.transition("a", task.StateReport, tuesday.Pos+60_000, 1))

		require.Len(t, s.do(s.about(tuesday, 1, schemas.StatusFail)), 1)
		require.Equal(t, "dead", s.state("a"))
		letters, err := lettertest.All(s.ctx, s.dead, letters.Filter{})
		require.NoError(t, err)
		_, _, err = s.Replay(s.ctx, []int64{letters[0].ID}, "me", s.now, false)
		require.NoError(t, err)
		s.awaitReport("a", 1)
		require.Empty(t, s.do(s.about(tuesday, 1, schemas.StatusOK)), "of the delivery before the replay")
		require.Equal(t, "waiting_report", s.state("a"))
		require.Len(t, s.do(s.about(s.row("a"), 1, schemas.StatusOK)), 1)
		require.Equal(t, "succeeded", s.state("a"))
	})
}

// A task whose sending Kafka has not answered is set aside, to be sent again. A report that names the delivery proves that it was
// made; one that does not may be anybody's.
func TestReportOfATaskThatWasSetAside(t *testing.T) {
	for status, want := range map[schemas.Status]string{schemas.StatusOK: "succeeded", schemas.StatusRetry: "waiting_retry", schemas.StatusFail: "dead"} {
		t.Run(status.String(), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport, maxAttempts(3), fixedBackoff(5*time.Second)))
				s.now = t0 + 1000
				s.claim(s.now)
				sent := s.row("a")
				s.settle(s.now, s.transition("a", task.StateRetry, s.now+5000, 0))
				aside := s.row("a")
				require.Empty(t, s.do(says("a", 1, status)))
				require.Equal(t, aside, s.row("a"))
				require.Len(t, s.do(s.about(sent, 1, status)), 1)
				require.Equal(t, want, s.state("a"))
				require.Equal(t, 1, s.row("a").Attempt)
				require.Empty(t, s.do(s.about(sent, 1, status)), "doubled")

				before := s.dump()
				late := line.Transition{Seq: sent.Seq, Slot: sent.Slot, Epoch: s.epoch, From: aside.Pos, State: task.StateReport, Pos: s.now + 60_000, Attempt: 1, Lane: s.lane(sent.Topic, sent.Class)}
				_, err := s.Settle(s.ctx, nil, []line.Transition{late}, store.At(s.now))
				require.NoError(t, err)
				require.Equal(t, before, s.dump(), "Kafka's answer comes after the report")
			})
		})
	}
}

// One that comes before the dispatcher has noted the delivery waits for it, as one does that names none.
func TestReportBeforeTheOutcome(t *testing.T) {
	for _, outcome := range []task.State{task.StateReport, task.StateRetry} {
		each(t, func(t *testing.T, s *fixture) {
			s.do(s.schedule("a", wantReport))
			s.now = t0 + 1000
			s.claim(s.now)
			require.Empty(t, s.do(s.about(s.row("a"), 1, schemas.StatusOK)))
			attempt := 0
			if outcome == task.StateReport {
				attempt = 1
			}
			s.settle(s.now, s.transition("a", outcome, s.now+5000, attempt))
			if outcome == task.StateRetry { // it does not wait for a report: whoever decides what waits looks
				require.Equal(t, []schemas.State{schemas.StateSucceeded}, s.resolve())
			}
			require.Equal(t, "succeeded", s.state("a"))
		})
	}
}

// A report that snoozes is counted although another one ends the task in the same piece.
func TestSnoozeBesideAnOK(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.do(s.schedule("a", wantReport))
		s.now = t0 + 1000
		s.claim(s.now)
		s.settle(s.now, s.transition("a", task.StateReport, s.now+5000, 1))
		s.do(s.about(s.row("a"), 1, schemas.StatusSnooze), s.about(s.row("a"), 1, schemas.StatusOK))
		require.Equal(t, "succeeded", s.state("a"))
		require.Equal(t, 1, s.row("a").Snoozed)
	})
}

// An ok that names the delivery proves it, so it ends a task that its owner still has. Nothing that the owner says later changes
// the task or is told, though another task has the id by then. Where the delivery is told too, the ok waits for it, so that the events are in order.
func TestReportEndsWhatIsInFlight(t *testing.T) {
	for name, owner := range map[string]line.Transition{
		"delivered":        {State: task.StateReport, Pos: t0 + 61_000, Attempt: 1},
		"set aside":        {State: task.StateRetry, Pos: t0 + 6000},
		"given back":       {State: task.StateLine},
		"refused for good": {State: task.StateDead, Pos: t0 + 2000, Dead: &task.DeadLetter{Kind: schemas.KindUndeliverable, Topic: target, TaskID: "a", Reason: "too large"}},
	} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, scheduled anew %v", name, again), func(t *testing.T) {
				each(t, func(t *testing.T, s *fixture) {
					s.do(s.schedule("a", wantReport, tell(schemas.EventsFinal)), s.schedule("b", key("a")))
					s.now = t0 + 1000
					s.claim(s.now)
					sent := s.row("a")
					require.Empty(t, s.do(s.about(sent, 2, schemas.StatusOK)), "of no delivery")
					require.Equal(t, "claimed", s.state("a"))
					told := s.do(s.about(sent, 1, schemas.StatusOK))
					require.Len(t, told, 1)
					require.Equal(t, schemas.StateSucceeded, told[0].State)
					require.Equal(t, "succeeded", s.state("a"))
					require.Equal(t, 1, s.row("a").Attempt)
					require.Empty(t, s.do(s.about(sent, 1, schemas.StatusFail)))
					require.Zero(t, s.count("waiting"))

					owner.Seq, owner.Slot, owner.Epoch, owner.From, owner.Lane = sent.Seq, sent.Slot, s.epoch, sent.Pos, s.lane(sent.Topic, sent.Class)
					owner.Events = []schemas.Event{{Topic: target, ID: "a", State: schemas.StateDead}}
					if again {
						s.do(s.schedule("a", in(time.Hour)))
					}
					ended := s.row("a")
					done := s.doneUpTo(s.now)
					got, err := s.Settle(s.ctx, done, []line.Transition{owner}, store.At(s.now))
					require.NoError(t, err)
					require.Empty(t, got.Mismatch)
					require.Empty(t, got.Events)
					require.Empty(t, got.Moved)
					require.Equal(t, []int64{sent.Seq}, got.Ignored)
					require.Equal(t, ended, s.row("a"))
					require.Zero(t, s.count("dead_letters"))
					require.Equal(t, "delivered", s.state("b"), "the slot goes on")
				})
			})
		}
	}
}

// Of many tasks that were to wait for reports, those begin to wait about which no report has come, however many others stand between them.
func TestManyThatWereReportedOnBeforeTheSettlement(t *testing.T) {
	for _, between := range []int{0, 6} {
		t.Run(fmt.Sprintf("%d others each", between), func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				const tasks = 100
				var records, reports []any
				for n := range tasks {
					records = append(records, s.schedule(fmt.Sprint(n), wantReport, tell(schemas.EventsFinal)))
					for i := range between {
						records = append(records, s.schedule(fmt.Sprintf("%d-%d", n, i)))
					}
				}
				s.do(records...)
				s.now = t0 + 1000
				s.claim(s.now)
				var exits []line.Transition
				var reported []int64
				for n := range tasks {
					e := s.transition(fmt.Sprint(n), task.StateReport, s.now+60_000, 1)
					e.From = s.row(fmt.Sprint(n)).Pos
					exits = append(exits, e)
					if n%5 != 0 {
						reported, reports = append(reported, e.Seq), append(reports, s.about(s.row(fmt.Sprint(n)), 1, schemas.StatusOK))
					}
				}
				s.do(reports...)
				got := s.settle(s.now, exits...)
				require.ElementsMatch(t, reported, got.Ignored)
				require.Len(t, got.Moved, tasks-len(reported))
				for n := range tasks {
					want := "succeeded"
					if n%5 == 0 {
						want = "waiting_report"
					}
					require.Equal(t, want, s.state(fmt.Sprint(n)))
				}
			})
		})
	}
}

// Another record of the task may follow the delivery that is reported on: from the memory of the next owner, from that of an owner that
// set the task aside, or because the database has forgotten what its owner did. The report waits, so that nothing ends before that record.
func TestReportOfWhatMayBeSentAgainWaits(t *testing.T) {
	for name, then := range map[string]func(s *fixture){
		"another owner": func(s *fixture) {
			s.epoch++
			_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch, "you")
			require.NoError(s.t, err)
		},
		"another owner, of a version before": func(s *fixture) {
			_, err := s.db.ExecContext(s.ctx, "UPDATE slots SET epoch = epoch + 1, life_epoch = life_epoch + 1, owner = 'you'")
			require.NoError(s.t, err)
		},
		"set aside": func(s *fixture) {
			s.settle(s.now, s.transition("a", task.StateRetry, s.now+1000, 0))
			s.claim(s.now + 1000)
		},
		"the database was started anew": func(s *fixture) {
			s.restart()
			require.Empty(s.t, s.do(s.about(s.row("a"), 1, schemas.StatusFail)))
			_, err := s.db.ExecContext(s.ctx, "DELETE FROM waiting")
			require.NoError(s.t, err)
			s.claim(s.now + 1)
		},
		"the database has forgotten the claim": func(s *fixture) {
			s.restart(fmt.Sprintf("UPDATE slots SET claimed = %d, doubt = 0, doubt_epoch = -1", t0))
			s.epoch++
			var had []line.Had
			for _, slot := range s.allSlots() {
				had = append(had, line.Had{Slot: slot, Pos: s.now})
			}
			_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch, "me", line.Known{Slots: had})
			require.NoError(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, s *fixture) {
				s.do(s.schedule("a", wantReport, tell(schemas.EventsFinal)))
				s.now = t0 + 1000
				s.claim(s.now)
				then(s)
				require.Empty(t, s.do(s.about(s.row("a"), 1, schemas.StatusOK)))
				require.Equal(t, "claimed", s.state("a"))
				require.Equal(t, 1, s.count("waiting"))
			})
		})
	}
}

// The other reports on a task in flight wait, and so does an ok behind them.
func TestReportsThatWaitForTheOutcome(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		quiet := tell(schemas.EventsFinal)
		s.do(s.schedule("all", wantReport, tell(schemas.EventsAll)), s.schedule("unproven", wantReport, quiet), s.schedule("failed", wantReport, quiet))
		s.claim(t0 + 1000)
		require.Empty(t, s.do(s.about(s.row("all"), 1, schemas.StatusOK), says("unproven", 1, schemas.StatusOK), s.about(s.row("failed"), 1, schemas.StatusFail)))
		require.Empty(t, s.do(s.about(s.row("failed"), 1, schemas.StatusOK)))
		require.Equal(t, 4, s.count("waiting"))
		var begins []line.Transition
		for _, id := range []string{"all", "unproven", "failed"} {
			begins = append(begins, s.transition(id, task.StateReport, t0+61_000, 1))
		}
		s.settle(t0+1000, begins...)
		require.Equal(t, []string{"succeeded", "succeeded", "dead"}, []string{s.state("all"), s.state("unproven"), s.state("failed")})
		require.Zero(t, s.count("waiting"))
	})
}

// A batch that waits for its locks finds reports that other processes stored meanwhile. Their
// backoff counts from when it has them.
func TestBackoffOfAReportFoundBehindALock(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		if s.h.Serial {
			t.Skip("its writers come one after another")
		}
		s.do(s.schedule("a", wantReport, fixedBackoff(5*time.Second)))
		s.claim(t0 + 1000)
		begun := s.now
		clock := func() int64 {
			if s.now == begun {
				s.now = begun + 300
				s.do(says("a", 1, schemas.StatusRetry))
				s.settle(t0+1000, s.transition("a", task.StateReport, t0+61_000, 1))
				return begun
			}
			return s.now
		}
		_, err := s.Apply(s.ctx, Batch{Resolve: [][16]byte{task.Ident(target, "a")}}, clock)
		require.NoError(t, err)
		require.Equal(t, "waiting_retry", s.state("a"))
		require.Equal(t, begun+300+5000, s.row("a").Pos)
	})
}

// The database forgets a claim, and the owner dies: the next owner does not know that the task may have been sent.
func TestReportAfterAForgottenClaimOfADeadOwner(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.claim(t0 - 10_000)
		s.do(s.schedule("a", wantReport, tell(schemas.EventsFinal)))
		sent := s.row("a")
		s.claim(t0 + 1000) // and sends it, and dies with the database's last second
		s.now = t0 + 1500
		s.restart(fmt.Sprintf("UPDATE slots SET claimed = %d", t0-10_000))
		require.Equal(t, s.allSlots(), s.unsureSlots())
		s.epoch++
		var had []line.Had
		for _, slot := range s.allSlots() {
			had = append(had, line.Had{Slot: slot, Reach: t0 + 30_000})
		}
		_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch, "you", line.Known{Slots: had})
		require.NoError(t, err)
		for _, slot := range s.allSlots() {
			_, err = s.db.ExecContext(s.ctx, fmt.Sprintf("UPDATE slots SET claimed = %d WHERE slot = %d AND epoch = %d", t0+2000, slot, s.epoch))
			require.NoError(t, err)
		}
		require.Equal(t, "claimed", s.state("a")) // the new owner has it in memory, and is about to send it
		told := s.do(s.about(sent, 1, schemas.StatusOK))
		require.Empty(t, told, "another record follows: the report waits")
	})
}

// One fault: the database forgets its last second. All dispatchers live, and the owner takes the slots anew with what it had claimed.
func TestReportOfWhatIsReadAgainWaits(t *testing.T) {
	each(t, func(t *testing.T, s *fixture) {
		s.now = t0
		s.claim(t0)
		offset := s.offset
		r := s.schedule("a", wantReport, tell(schemas.EventsFinal))
		s.do(r)
		s.now = t0 + 1000
		s.claim(s.now)
		sent := s.row("a") // sent once
		require.Equal(t, "claimed", s.state("a"))

		s.restart(fmt.Sprintf("UPDATE slots SET claimed = %d", t0), "DELETE FROM tasks", fmt.Sprintf("UPDATE sources SET next_offset = %d WHERE src = %d", offset, s.source.ID))
		s.offset = offset
		var had []line.Had
		for _, slot := range s.allSlots() {
			had = append(had, line.Had{Slot: slot, Pos: t0 + 1000, Reach: t0 + 4000})
		}
		s.epoch++
		_, err := s.Acquire(s.ctx, s.allSlots(), s.epoch, "me", line.Known{Slots: had})
		require.NoError(t, err)
		s.do(r) // the scanner reads it again
		require.Equal(t, sent.Seq, s.row("a").Seq)
		s.now = t0 + 2500
		s.claim(s.now) // and the owner is about to send it again
		require.Equal(t, "claimed", s.state("a"))
		told := s.do(s.about(sent, 1, schemas.StatusOK))
		require.Empty(t, told, "another record follows: the report waits")
	})
}
