package deadletter

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/faultpoint"
	"github.com/notyet/notyet/internal/index"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// PageSize is how many letters one transaction replays, with locks for some tens of milliseconds.
const PageSize = 500

// Page is the result for one page of letters.
type Page struct {
	Letters []intake.Replayed `json:"letters"`
	Next    int64             `json:"next"    doc:"id to go on after; 0: that was the last page"`
	UpTo    int64             `json:"up_to"   doc:"the last letter when the run began: give it back with the next page"`
	At      int64             `json:"at"      doc:"when the page was replayed, by the database's clock, Unix ms; that of the first page counts what died again, see died_again_since"`
	Missing []int             `json:"missing,omitempty" doc:"databases that do not answer, by number: what they hold is not in this answer; absent: none"`
}

// Pager replays the first letters of a filter, at most f.Limit (0: PageSize). upTo is the id of the
// run's last letter; pass 0 with the first page to take the newest one. Without this limit a run
// would replay tasks again that have died once more meanwhile. A page may be repeated: a letter is
// replayed only once.
type Pager interface {
	ReplayPage(ctx context.Context, f letters.Filter, upTo int64, dryRun bool) (Page, error)
}

// Index is a replay's part of the index. internal/index has one in Redis and one in memory.
type Index interface {
	Add(ctx context.Context, entries []index.Entry) error
	Wake(ctx context.Context, at []index.SlotPos) error
	Clear(ctx context.Context, slot int) error
}

// Local is the Pager on the database.
type Local struct {
	store *store.Store
	index Index // nil: dispatchers find the tasks in the database at their next look
	by    string
	log   *zap.Logger
}

// NewLocal returns a Local. ix may be nil. by replays where the context has no actor.
func NewLocal(st *store.Store, ix Index, by string, log *zap.Logger) *Local {
	return &Local{store: st, index: ix, by: by, log: log}
}

// ReplayPage implements Pager. One transaction makes the tasks pending and marks the letters. Then
// the index is told. If the index fails, dispatchers find the tasks a little later.
func (l *Local) ReplayPage(ctx context.Context, f letters.Filter, upTo int64, dryRun bool) (Page, error) {
	if f.Limit <= 0 || f.Limit > PageSize {
		f.Limit = PageSize
	}
	upTo, err := l.last(ctx, upTo)
	if err != nil {
		return Page{}, err
	}
	now, err := l.store.Time(ctx)
	if err != nil {
		return Page{}, err
	}
	page := Page{Letters: []intake.Replayed{}, UpTo: upTo, At: now.UnixMilli()}
	if f.UpTo = upTo; upTo == 0 {
		return page, nil
	}
	found, err := letters.New(l.store).SelectWithBodies(ctx, f)
	if err != nil {
		return Page{}, err
	}
	page.Next = found.Next
	if len(found.IDs) == 0 {
		return page, nil
	}
	var places []store.Place
	if page.Letters, places, err = intake.New(l.store).Replay(auditing(ctx, "replay", f), found.IDs, l.operator(ctx), now.UnixMilli(), dryRun); err != nil {
		return Page{}, err
	}
	if err := faultpoint.At(faultpoint.DeadletterReplayed); err != nil {
		return Page{}, err
	}
	l.Hint(ctx, places)
	return page, nil
}

// ReplayEdited replays one letter with parts of it replaced. changed names those for the audit log.
func (l *Local) ReplayEdited(ctx context.Context, letter Letter, e task.Edit, changed []string) (Page, error) {
	now, err := l.store.Time(ctx)
	if err != nil {
		return Page{}, err
	}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "replay", Topic: letter.Topic, TaskID: letter.TaskID, Detail: admin.AuditDetail(map[string]any{
		"ids": []int64{letter.ID}, "changed": strings.Join(changed, ", "), "to": e.Topic,
	})})
	page := Page{UpTo: letter.ID, At: now.UnixMilli()}
	var places []store.Place
	if page.Letters, places, err = intake.New(l.store).ReplayEdited(ctx, letter.ID, e, l.operator(ctx), now.UnixMilli()); err != nil {
		return Page{}, err
	}
	l.Hint(ctx, places)
	return page, nil
}

// last returns the given limit of a run, or the newest letter's id.
func (l *Local) last(ctx context.Context, upTo int64) (int64, error) {
	if upTo > 0 {
		return upTo, nil
	}
	return letters.New(l.store).Last(ctx)
}

// hintTimeout is how long the index may keep a caller waiting.
const hintTimeout = 2 * time.Second

// Hint tells the index of tasks due now. Dispatchers find a lost hint's tasks a little later.
func (l *Local) Hint(ctx context.Context, places []store.Place) {
	if l.index == nil || len(places) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	news := index.News{Added: places}
	if err := errors.Join(l.index.Add(ctx, news.Entries(math.MaxInt64)), l.index.Wake(ctx, news.Wakes(math.MaxInt64))); err != nil {
		l.log.Warn("the index did not learn of new tasks; they are delivered a little later", zap.Int("tasks", len(places)), zap.Error(err))
	}
}

// Progress is the progress of a replay or a purge.
type Progress struct {
	Done    int64 // replayed, or purged
	Skipped int64 // see Result.Reasons
}

// Result is the result of a whole replay.
type Result struct {
	Progress
	Began   int64            // by the database's clock, Unix ms
	Reasons map[string]int64 // number of skipped letters by reason
}

// Options of Replay. The zero value replays everything at once, as fast as the database allows.
type Options struct {
	// DryRun only reports, and changes nothing.
	DryRun bool
	// Rate limits the letters per second. Default 0: no limit.
	Rate float64
	// Progress is called after each page. Default: none.
	Progress func(Progress)
	// Each is called with the result for each letter. Default: none.
	Each func(intake.Replayed)
}

// Replay replays, page by page, all letters of the filter that exist at the beginning. f.Limit: 0
// means no limit. On an error, and when ctx ends, the result covers the work until then. Another
// run continues from there.
func Replay(ctx context.Context, pager Pager, f letters.Filter, o Options) (Result, error) {
	result := Result{Reasons: map[string]int64{}}
	began, left, upTo := time.Now(), f.Limit, int64(0)
	size := PageSize
	if o.Rate > 0 {
		size = int(min(PageSize, max(1, o.Rate))) // about one page a second, or one letter at a time
	}
	for {
		f.Limit = size
		if left > 0 {
			f.Limit = min(size, left)
		}
		page, err := pager.ReplayPage(ctx, f, upTo, o.DryRun)
		if err != nil {
			return result, err
		}
		upTo = page.UpTo
		result.Began = cmp.Or(result.Began, page.At)
		result.count(page, o)
		if left > 0 {
			if left -= len(page.Letters); left <= 0 {
				return result, nil
			}
		}
		if page.Next == 0 {
			return result, nil
		}
		f.After = page.Next
		if o.Rate > 0 && !o.DryRun {
			due := began.Add(time.Duration(float64(result.Done) / o.Rate * float64(time.Second)))
			if err := sleepUntil(ctx, due); err != nil {
				return result, err
			}
		}
	}
}

func (r *Result) count(page Page, o Options) {
	for _, l := range page.Letters {
		if l.Skipped == "" {
			r.Done++
		} else {
			r.Skipped++
			r.Reasons[l.Skipped]++
		}
		if o.Each != nil {
			o.Each(l)
		}
	}
	if o.Progress != nil {
		o.Progress(r.Progress)
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	return wrap.Err(loop.Rest(ctx, time.Until(at)), "replaying dead letters")
}
