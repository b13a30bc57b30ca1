package check

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/notyet/notyet/test/chaos/history"
)

// Figures are the measurements of a run. Times are ms.
type Figures struct {
	Deliveries  int
	Lost        int
	Early       int
	Earliest    int64          // smallest (published - due); math.MaxInt64 if nothing was delivered
	Fates       map[string]int // of requests: delivered, replaced, cancelled, stale, rejected, dead, pending, failed, unknown
	Cancels     map[string]int // answers
	Reversed    int            // answers and ends that changed when the database was restored
	Copies      map[string]int // extra ones, by the kind of fault that explains them
	Unexplained int
	Ordered     int            // deliveries whose position in the order of their key was certain
	Inversions  map[string]int // in the order of a key, by the kind of fault
	Stragglers  int            // intents under an epoch that had ended
	Intents     int
	Indexed     int // entries that the index held at rest
	Placed      int // pending tasks at rest whose slot was judged
	Linear      int // identities whose history one order explains
	Undecided   int // identities for which no order was looked for, or not to the end

	Lateness map[string]*hdrhistogram.Histogram // of first copies of first attempts: calm, fault, recovery
	Beside   *hdrhistogram.Histogram            // tasks of other targets during bursts
	Attacked *hdrhistogram.Histogram            // another tenant's tasks during attacks
	Called   *hdrhistogram.Histogram            // its callbacks
	Answered *hdrhistogram.Histogram            // answers to an administrator meanwhile
	Takeover *hdrhistogram.Histogram            // from a dispatcher's kill to the first delivery of its slots by another
	Kinds    map[string]*Kind

	recovered map[*history.Fault]int64 // when no task was late any more
}

// Kind sums up all faults of a kind.
type Kind struct {
	Count    int
	Effects  int
	Gap      int64 // longest time without any delivery
	Recovery *hdrhistogram.Histogram
}

// Phases of a run, in the order of a report.
var Phases = []string{"calm", "fault", "recovery"}

func newFigures() Figures {
	f := Figures{
		Earliest: math.MaxInt64, Fates: map[string]int{}, Cancels: map[string]int{}, Copies: map[string]int{}, Inversions: map[string]int{},
		Lateness: map[string]*hdrhistogram.Histogram{}, Beside: histogram(), Attacked: histogram(), Called: histogram(), Answered: histogram(), Takeover: histogram(), Kinds: map[string]*Kind{}, recovered: map[*history.Fault]int64{},
	}
	for _, p := range Phases {
		f.Lateness[p] = histogram()
	}
	return f
}

const longest = 60 * 60 * 1000

func histogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func note(h *hdrhistogram.Histogram, ms int64) { _ = h.RecordValue(min(max(ms, 0), longest)) }

// over returns when a fault's aftermath ended. Before that is known it returns the latest possible
// time.
func (f *Figures) over(x *history.Fault, bound int64) int64 {
	if at, ok := f.recovered[x]; ok {
		return at
	}
	return x.End + bound
}
