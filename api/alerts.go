package api

import (
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
)

// Alert is a rule of docs/alerts.yml whose condition holds.
type Alert struct {
	Name string `json:"name" doc:"as in docs/alerts.yml"`
	Why  string `json:"why"`
}

type evidence struct {
	services []admin.Service
	slots    []store.Slot // nil: not known
	now      *figures.Total
	since    func(minutes int64) figures.Counts // in the latest minutes
}

// rule is a rule of docs/alerts.yml, with the same condition: a level above most, or a count in the
// latest minutes. A condition of another form is a function that returns why the rule holds; "": it
// does not. Rates are of whole minutes, as in the series.
type rule struct {
	name    string
	level   string
	most    int64
	counter string
	minutes int64
	why     string // with the number
	judge   func(e *evidence) string
}

func (r rule) holds(e *evidence) string {
	n := e.now.Levels[r.level]
	switch {
	case r.judge != nil:
		return r.judge(e)
	case r.counter != "":
		n = e.since(r.minutes).N[r.counter]
	}
	if n <= r.most {
		return ""
	}
	return fmt.Sprintf(r.why, n)
}

var rules = []rule{
	{name: "NotyetLate", judge: func(e *evidence) string {
		if p99, ok := e.since(5).Lateness.Quantile(0.99); ok && p99 > 5 {
			return fmt.Sprintf("one delivery in a hundred of the last 5 minutes was more than %.1f s late", p99)
		}
		return ""
	}},
	{name: "NotyetIntakeBacklog", judge: (*evidence).intakeFails},
	{name: "NotyetIntakeHalted", level: figures.Halted, why: "%d partitions of intakes are not read any further: their logs lost records that are stored"},
	{name: "NotyetIntakeStands", level: figures.Standing, why: "nothing of a partition of an intake has been stored for %d s"},
	{name: "NotyetIntakeAtQuota", level: figures.QuotaWait, most: 3600, why: "requests have waited at the quota of their intake for %d s"},
	{name: "NotyetIntakeQuotaRetention", level: figures.QuotaWait, most: 604_800, why: "requests have waited at the quota of their intake for %d s: its retention deletes them in the end"},
	{name: "NotyetBacklog", level: figures.Claimed, most: 500_000, why: "%d tasks are claimed and not settled"},
	{name: "NotyetOverdue", level: figures.Unclaimed, why: "%d slots have tasks that have been due for a minute and that nobody claims"},
	{name: "NotyetStuck", level: figures.Unsettled, why: "%d slots have claimed tasks that have been due for a minute and are not settled"},
	{name: "NotyetOldestOverdue", level: figures.Overdue, most: 300, why: "a task has been due for %d s and is not delivered"},
	{name: "NotyetUnownedSlots", judge: (*evidence).freeSlots},
	{name: "NotyetNoScanner", judge: func(e *evidence) string {
		return e.nobody("no scanner is alive", func(s admin.Service) bool { return s.Kind != "dispatcher" })
	}},
	{name: "NotyetNoDispatcher", judge: func(e *evidence) string {
		return e.nobody("no dispatcher is alive", func(s admin.Service) bool { return s.Member != "" })
	}},
	{name: "NotyetReportsExhausted", counter: figures.Failed, minutes: 5, why: "consumers reported %d tasks as failed for good in the last 5 minutes"},
	{name: "NotyetBadReports", counter: figures.BadReports, minutes: 5, why: "%d reports of the last 5 minutes cannot be read"},
	{name: "NotyetTimerRunsMissed", counter: figures.MissedRuns, minutes: 15, why: "%d runs of timers were missed and dropped in the last 15 minutes"},
	{name: "NotyetRejections", counter: figures.Rejected, minutes: 5, why: "%d requests were rejected in the last 5 minutes"},
	{name: "NotyetTargetRefused", level: figures.Refused, why: "%d target topics do not exist, or may not be written"},
	{name: "NotyetClockRefused", level: figures.ClockRefused, why: "the brokers of %d target topics refuse the database's time: one of the clocks is wrong"},
	{name: "NotyetCallbackOriginDown", level: figures.Circuits, why: "%d origins of callbacks fail, and get one request at a time"},
	{name: "NotyetSendLogFull", level: figures.SendLogFull, why: "the send logs of %d dispatchers are full"},
	{name: "NotyetResultsUnanswered", level: figures.Unanswered, most: 60, why: "the results topic has not answered for %d s"},
	{name: "NotyetRetriesExhausted", counter: figures.Exhausted, minutes: 5, why: "%d tasks were given up in the last 5 minutes"},
	{name: "NotyetTargetSick", level: figures.Unresponsive, why: "%d partitions of targets, and origins of callbacks, do not answer"},
	{name: "NotyetIndexDrift", counter: figures.IndexDrift, minutes: 60, why: "%d times in the last hour the index in Redis did not agree with the database"},
	{name: "NotyetIndexMissed", judge: (*evidence).indexFails},
	{name: "NotyetMismatch", counter: figures.Mismatch, minutes: 60, why: "%d times in the last hour the database counted other tasks than were settled"},
	{name: "NotyetDatabaseSetBack", counter: figures.Reread, minutes: 15, why: "%d offsets of intakes were read again in the last 15 minutes: the database was set back"},
	{name: "NotyetConfigRefused", level: figures.ConfigRefused, why: "%d services were to read their configuration again, and refused it: the one before stays in force"},
	{name: "NotyetTokensUnusable", level: figures.TokensUnusable, why: "the file in http.tokens has not been usable for %d s: after a minute nobody is admitted"},
	{name: "NotyetSignInsFail", counter: figures.FailedSignIns, most: 100, minutes: 15, why: "%d sign-ins and tokens were refused in the last 15 minutes"},
	{name: "NotyetDeadLettersPileUp", level: figures.LetterBytes, most: 10_000_000_000, why: "dead letters take %d bytes"},
}

func alerts(e *evidence) []Alert {
	out := []Alert{}
	for _, r := range rules {
		if why := r.holds(e); why != "" {
			out = append(out, Alert{r.name, why})
		}
	}
	return out
}

// oftenIn5 means: a tenth of a time per second for five minutes.
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
		if !slot.GivenUp() && (slot.Owner == "" || !alive[slot.Owner]) {
			free++
		}
	}
	if free == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d slots have no living owner", free, len(e.slots))
}

func (e *evidence) nobody(why string, counts func(admin.Service) bool) string {
	if slices.ContainsFunc(e.services, counts) {
		return ""
	}
	return why
}
