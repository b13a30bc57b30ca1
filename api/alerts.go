package api

import (
	"fmt"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/store"
)

// evidence is what rules are judged by.
type evidence struct {
	services []store.Service
	slots    []store.Slot // nil: not known
	now      *figures.Total
	since    func(minutes int64) figures.Counts // in the latest minutes
}

// rule is a rule of docs/alerts.yml, with the same condition, and why it holds; "": it does not. Its
// rates are of whole minutes, as the series has them.
type rule struct {
	name string
	why  func(e *evidence) string
}

// rules are those of docs/alerts.yml.
var rules = []rule{
	{"NotyetLate", func(e *evidence) string {
		if p99, ok := e.since(5).Lateness.Quantile(0.99); ok && p99 > 5 {
			return fmt.Sprintf("one delivery in a hundred of the last 5 minutes was more than %.1f s late", p99)
		}
		return ""
	}},
	{"NotyetIntakeBacklog", (*evidence).intakeFails},
	{"NotyetIntakeHalted", above(figures.Halted, 0, "%d partitions of intakes are not read any further: their logs lost records that are stored")},
	{"NotyetIntakeStands", above(figures.Standing, 0, "nothing of a partition of an intake has been stored for %d s")},
	{"NotyetBacklog", above(figures.Claimed, 500_000, "%d tasks are claimed and not settled")},
	{"NotyetOverdue", above(figures.Unclaimed, 0, "%d slots have tasks that have been due for a minute and that nobody claims")},
	{"NotyetStuck", above(figures.Unsettled, 0, "%d slots have claimed tasks that have been due for a minute and are not settled")},
	{"NotyetOldestOverdue", above(figures.Overdue, 300, "a task has been due for %d s and is not delivered")},
	{"NotyetUnownedSlots", (*evidence).freeSlots},
	{"NotyetNoScanner", func(e *evidence) string {
		return e.nobody("no scanner is alive", func(s store.Service) bool { return s.Kind != "dispatcher" })
	}},
	{"NotyetNoDispatcher", func(e *evidence) string {
		return e.nobody("no dispatcher is alive", func(s store.Service) bool { return s.Member != "" })
	}},
	{"NotyetReportsExhausted", counted(figures.Failed, 5, "consumers reported %d tasks as failed for good in the last 5 minutes")},
	{"NotyetBadReports", counted(figures.BadReports, 5, "%d reports of the last 5 minutes cannot be read")},
	{"NotyetTimerRunsMissed", counted(figures.MissedRuns, 15, "%d runs of timers were missed and dropped in the last 15 minutes")},
	{"NotyetRejections", counted(figures.Rejected, 5, "%d requests were rejected in the last 5 minutes")},
	{"NotyetTargetRefused", above(figures.Refused, 0, "%d target topics do not exist, or may not be written")},
	{"NotyetClockRefused", above(figures.ClockRefused, 0, "the brokers of %d target topics refuse the database's time: one of the clocks is wrong")},
	{"NotyetCallbackOriginDown", above(figures.Circuits, 0, "%d origins of callbacks fail, and get one request at a time")},
	{"NotyetSendLogFull", above(figures.SendLogFull, 0, "the send logs of %d dispatchers are full")},
	{"NotyetResultsUnanswered", above(figures.Unanswered, 60, "the results topic has not answered for %d s")},
	{"NotyetRetriesExhausted", counted(figures.Exhausted, 5, "%d tasks were given up in the last 5 minutes")},
	{"NotyetTargetSick", above(figures.Unresponsive, 0, "%d partitions of targets, and origins of callbacks, do not answer")},
	{"NotyetIndexDrift", counted(figures.IndexDrift, 60, "%d times in the last hour the index in Redis did not agree with the database")},
	{"NotyetIndexMissed", (*evidence).indexFails},
	{"NotyetMismatch", counted(figures.Mismatch, 60, "%d times in the last hour the database counted other tasks than were settled")},
	{"NotyetDatabaseSetBack", counted(figures.Reread, 15, "%d offsets of intakes were read again in the last 15 minutes: the database was set back")},
	{"NotyetTokensUnusable", above(figures.TokensUnusable, 0, "the file in http.tokens has not been usable for %d s: after a minute nobody is admitted")},
	{"NotyetDeadLettersPileUp", above(figures.LetterBytes, 10_000_000_000, "dead letters take %d bytes")},
}

// alerts returns the rules whose condition holds.
func alerts(e *evidence) []Alert {
	out := []Alert{}
	for _, r := range rules {
		if why := r.why(e); why != "" {
			out = append(out, Alert{r.name, why})
		}
	}
	return out
}

func above(level string, most int64, why string) func(*evidence) string {
	return func(e *evidence) string {
		if n := e.now.Levels[level]; n > most {
			return fmt.Sprintf(why, n)
		}
		return ""
	}
}

func counted(name string, minutes int64, why string) func(*evidence) string {
	return func(e *evidence) string {
		if n := e.since(minutes).N[name]; n > 0 {
			return fmt.Sprintf(why, n)
		}
		return ""
	}
}

// oftenIn5 is a tenth of a time per second for five minutes.
const oftenIn5 = 30

func (e *evidence) intakeFails() string {
	n := e.since(5).N
	if stores, fetches := n[figures.StoreErrors], n[figures.FetchErrors]; stores > oftenIn5 || fetches > oftenIn5 {
		return fmt.Sprintf("scanners failed %d times to store and %d times to read the intake in the last 5 minutes", stores, fetches)
	}
	return ""
}

func (e *evidence) indexFails() string {
	n := e.since(5).N
	if swept, failed := n[figures.Swept], n[figures.IndexErrors]; swept > oftenIn5 || failed > oftenIn5 {
		return fmt.Sprintf("%d calls to Redis failed and %d lines were found by the sweep of the database alone in the last 5 minutes", failed, swept)
	}
	return ""
}

// freeSlots knows how many slots there are, where the rule compares with the hour before.
func (e *evidence) freeSlots() string {
	alive, free := map[string]bool{}, 0
	for _, s := range e.services {
		alive[s.Member] = true
	}
	for _, slot := range e.slots {
		if slot.Owner == "" || !alive[slot.Owner] {
			free++
		}
	}
	if free == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d slots have no living owner", free, len(e.slots))
}

func (e *evidence) nobody(why string, counts func(store.Service) bool) string {
	for _, s := range e.services {
		if counts(s) {
			return ""
		}
	}
	return why
}
