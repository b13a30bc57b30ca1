// Package figures sums up a process's own work, for any process to show the figures of all: how
// late deliveries were, how many there were, what lies around. A process's metrics go in; small
// JSON documents come out, and their sums.
//
// The database keeps the documents: the last minute's with the process's sign of life, every 5 s,
// and each minute's in a row of its own, once a minute. So a series survives its process and the
// showing one, and looks the same from everywhere. Kept in memory, the series would die with the
// process, or each process would have to ask all the others.
//
// A document has a version. A process leaves out documents of other versions than its own, so old
// and new processes work side by side. A new name needs no new version: other processes ignore
// unknown names.
package figures

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
)

const version = 1

// Counted things. A name is for all time: documents of other processes have it.
const (
	Delivered   = "delivered"    // tasks that Kafka or the receiver of a callback has acknowledged
	Stored      = "stored"       // intake records, whatever became of them, without reports
	Reports     = "reports"      // reports of consumers
	Rejected    = "rejected"     // of the intake records, those that were rejected
	Exhausted   = "dead"         // dead letters of dispatchers
	StoreErrors = "store_errors" // of scanners: calls to the database that failed
	FetchErrors = "fetch_errors" // fetches of intake partitions that failed
	IndexErrors = "index_errors" // calls to the index that failed
	Swept       = "swept"        // overdue lines that only the sweep of the database found
	IndexDrift  = "index_drift"
	Mismatch    = "mismatch"
	Reread      = "reread"      // intake offsets that were read again
	Failed      = "failed"      // tasks that reports of consumers have ended as dead
	BadReports  = "bad_reports" // reports that cannot be read
	MissedRuns  = "missed_runs" // runs of timers that were missed and dropped

	FailedSignIns = "failed_sign_ins" // with tokens that are refused
)

// Levels at a moment.
const (
	Claimed      = "claimed"       // tasks that are claimed and not settled
	Unresponsive = "unresponsive"  // partitions of targets and origins that do not answer
	Refused      = "refused"       // targets that do not exist or may not be written
	ClockRefused = "clock_refused" // targets whose brokers refuse the database's time
	Circuits     = "open_circuits" // origins of callbacks that do not answer
	Unclaimed    = "unclaimed"     // slots that lie behind and that nobody claims
	Unsettled    = "unsettled"     // slots whose owner does not settle
	Halted       = "halted"        // intake partitions that lost records
	Standing     = "standing"      // seconds for which an intake partition stands, at most
	QuotaWait    = "quota_wait"    // seconds for which a request has waited at the quota of its intake, at most
	LetterBytes  = "letter_bytes"  // space of dead letters
	SendLogFull  = "send_log_full" // 1: it has no room
	Unanswered   = "unanswered"    // seconds for which the results topic has acknowledged nothing
	Overdue      = "overdue"       // seconds for which a task has been due, at most

	ConfigRefused  = "config_refused"  // 1: the configuration that was last read again is wrong
	TokensUnusable = "tokens_unusable" // seconds for which the file of tokens cannot be used
)

// Counts is the work of some time; zero: none. Its content never changes, so copies may share it.
type Counts struct {
	N        map[string]int64 `json:"n,omitempty"`
	Lateness Histogram        `json:"lateness,omitempty"` // of deliveries
}

// Plus returns the sum of both.
func (c Counts) Plus(o Counts) Counts {
	out := Counts{N: map[string]int64{}, Lateness: c.Lateness.plus(o.Lateness, 1)}
	maps.Copy(out.N, c.N)
	for name, n := range o.N {
		out.N[name] += n
	}
	return out
}

// since returns the counts after an earlier reading of the same counters.
func (c Counts) since(before Counts) Counts {
	out := Counts{N: map[string]int64{}, Lateness: c.Lateness.plus(before.Lateness, -1)}
	for name, n := range c.N {
		if d := n - before.N[name]; d > 0 {
			out.N[name] = d
		}
	}
	return out
}

func (c Counts) empty() bool { return len(c.N) == 0 && c.Lateness.Total() == 0 }

// sane tells whether a document of another process can be added: nothing is negative, and no sum of
// a thousand documents overflows.
func (c Counts) sane() bool {
	for _, n := range c.N {
		if !fits(n) {
			return false
		}
	}
	return len(c.Lateness) <= buckets && !slices.ContainsFunc(c.Lateness, func(n int64) bool { return !fits(n) })
}

func fits(n int64) bool { return n >= 0 && n < 1<<52 }

// Now is a process's work in the last minute, and the present levels.
type Now struct {
	Window int64            `json:"window_ms"`        // ms that Last is about, at least 1
	Last   Counts           `json:"last"`             // in that time
	Levels map[string]int64 `json:"levels,omitempty"` // what is there
	// Targets without an answer, and the number of further ones.
	Targets []string `json:"targets,omitempty"`
	More    int      `json:"more,omitempty"`
}

type nowDocument struct {
	Version int `json:"v"`
	Now
}

// MaxNow and MaxMinute are the most bytes of a document.
const (
	MaxNow    = 4096
	MaxMinute = 2048
	// maxNames is how many bytes of names a document lists.
	maxNames = 2000
)

func (n Now) encode() []byte {
	doc := nowDocument{version, n}
	doc.Targets = nil
	room := maxNames
	for i, name := range n.Targets {
		if room -= len(name) + 8; room < 0 {
			doc.More += len(n.Targets) - i
			break
		}
		doc.Targets = append(doc.Targets, name)
	}
	data := encode(doc)
	if len(data) > MaxNow { // names with characters that JSON writes longer
		doc.More += len(doc.Targets)
		doc.Targets = nil
		data = encode(doc)
	}
	return data
}

// ParseNow reads a document. false: the document is of another version, or damaged.
func ParseNow(data []byte) (Now, bool) {
	var doc nowDocument
	if err := json.Unmarshal(data, &doc); err != nil || doc.Version != version || doc.Window < 1 || doc.More < 0 || !doc.Last.sane() {
		return Now{}, false
	}
	return doc.Now, true
}

func encode(doc any) []byte {
	data, err := json.Marshal(doc)
	if err != nil {
		panic(err) // it holds numbers and strings only
	}
	return data
}

// Histogram counts deliveries by lateness, like notyet_dispatcher_lateness_seconds: bucket k has
// those of up to bound(k) seconds beyond the previous bucket, and the last bucket has the rest.
// Empty buckets at the end are left out.
type Histogram []int64

const (
	bounds     = 20
	buckets    = bounds + 1
	firstBound = 0.0005 // seconds; each bound is twice the one before
)

func bound(k int) float64 { return firstBound * math.Pow(2, float64(k)) }

func (h Histogram) plus(o Histogram, sign int64) Histogram {
	out := make(Histogram, max(len(h), len(o)))
	copy(out, h)
	for k, n := range o {
		out[k] = max(out[k]+sign*n, 0)
	}
	for len(out) > 0 && out[len(out)-1] == 0 {
		out = out[:len(out)-1]
	}
	return out
}

// Total is how many deliveries there were.
func (h Histogram) Total() (n int64) {
	for _, c := range h {
		n += c
	}
	return n
}

// Quantile returns the lateness, in seconds, not exceeded by the q-th part of all, like Prometheus'
// histogram_quantile: evenly spread within a bucket, and the last bound for everything beyond. ok
// is false without deliveries.
func (h Histogram) Quantile(q float64) (seconds float64, ok bool) {
	total := h.Total()
	if total == 0 {
		return 0, false
	}
	rank, passed := q*float64(total), 0.0
	for k, n := range h {
		if passed+float64(n) < rank || n == 0 {
			passed += float64(n)
			continue
		}
		if k == bounds {
			break
		}
		low := 0.0
		if k > 0 {
			low = bound(k - 1)
		}
		return low + (bound(k)-low)*(rank-passed)/float64(n), true
	}
	return bound(bounds - 1), true
}
