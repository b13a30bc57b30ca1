package intake

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
)

// One transaction makes this much: writers of tasks wait for its row locks, a claim for its slots.
const (
	makeTimers = 200
	makeRuns   = 1000        // runs, of all timers
	makeEach   = 200         // runs of one timer, so that others get their turn
	makeBytes  = 8 << 20     // of bodies, about
	makeFor    = time.Second // of computing when they are, and one timer more: after an outage there may be much to compute
)

// makeTries is how often one timer's runs alone may fail in a row before the timer is left alone. A
// known error about the runs themselves is enough at once. After any other, the database may be to
// blame: the timer is tried once more as soon as a page succeeds.
const makeTries = 5

// makePace decides how large the pages of runs are. A page that fails is halved until one timer
// stands alone. So neither bad runs nor a database too slow for a page hold up others for ever.
type makePace struct {
	patience time.Duration // 0: makeFor

	mu    sync.Mutex
	page  int        // timers; 0: makeTimers
	alone [16]byte   // the timer that failed by itself
	fails int        // how often in a row
	doubt [][16]byte // left alone since a page succeeded, and perhaps without reason
}

func (p *makePace) next() (timers, runs, bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = cmp.Or(p.page, makeTimers)
	return p.page, max(makeRuns*p.page/makeTimers, 1), makeBytes * p.page / makeTimers
}

// succeeded lets doubtful timers have another try, the last for now.
func (p *makePace) succeeded(skip map[[16]byte]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page, p.fails = min(2*p.page, makeTimers), 0
	for _, key := range p.doubt {
		skip[key] = false
	}
	p.doubt = nil
}

// nothingLeft lets doubtful timers be tried again: they keep nobody waiting.
func (p *makePace) nothingLeft(skip map[[16]byte]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.doubt {
		delete(skip, key)
	}
	p.doubt = nil
}

// failed tells whether the only timer of a failed page is to be left alone.
func (p *makePace) failed(keys []any, skip map[[16]byte]bool, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.page = max(len(keys)/2, 1); len(keys) > 1 || skip == nil {
		return false
	}
	key := [16]byte(keys[0].([]byte))
	if key != p.alone {
		p.alone, p.fails = key, 0
	}
	if p.fails++; p.fails < makeTries && !BadRecord(err) {
		return false
	}
	if _, again := skip[key]; !again && !BadRecord(err) {
		p.doubt = append(p.doubt, key)
	}
	p.fails = 0
	return true
}

func (p *makePace) expired(began time.Time) bool {
	if p.patience == 0 {
		return time.Since(began) > makeFor
	}
	return time.Since(began) > p.patience
}

// leaveAlone notes a timer whose runs the database does not take.
func (in Intake) leaveAlone(key any, skip map[[16]byte]bool, err error) {
	skip[[16]byte(key.([]byte))] = true
	in.h.Log.Error("the runs of a timer cannot be stored: it is left alone for a while", zap.String("timer", fmt.Sprintf("%x", key)), zap.Error(err))
}

// dueTimers finds timers with a run to make, by the index (slot, next), and the slot of the last.
func (in Intake) dueTimers(ctx context.Context, owned []handle.SlotEpoch, upTo int64, skip map[[16]byte]bool, most, bytes int) (keys []any, last int, err error) {
	type row struct {
		key        []byte
		slot, size int
	}
	for len(owned) > 0 && bytes > 0 && len(keys) < most {
		n := 1 // as many as stand in the order of the index
		for n < min(len(owned), tables.MaxRows) && owned[n].Slot > owned[n-1].Slot {
			n++
		}
		a := make([]any, 0, n+2)
		for _, h := range owned[:n] {
			a = append(a, h.Slot)
		}
		owned = owned[n:]
		rows, err := tables.Fetch(ctx, in.h.Reads(), func(r *sql.Rows, v *row) error { return r.Scan(&v.key, &v.slot, &v.size) },
			"SELECT ident, slot, LENGTH(body) FROM timers WHERE slot IN ("+tables.Marks(n)+") AND next <= ? ORDER BY slot, next LIMIT ?", append(a, upTo, most+len(skip))...)
		if err != nil {
			return nil, 0, fmt.Errorf("looking for timers: %w", err)
		}
		for _, r := range rows {
			if skip[[16]byte(r.key)] || bytes <= 0 || len(keys) >= most {
				continue
			}
			bytes -= r.size
			keys, last = append(keys, r.key), r.slot
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys, last, nil
}
