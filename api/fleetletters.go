package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
)

// fleetLetters looks for dead letters in all databases, also with a topic: a rejected request may
// belong to an intake. The order of their ids goes database by database.
type fleetLetters struct{ *databases }

// Letter returns one dead letter, or deadletter.ErrNotFound.
func (f *fleetLetters) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	number, own := inside(id)
	if i := slices.IndexFunc(f.members, func(m *Member) bool { return m.Number == number }); i < 0 {
		return deadletter.Letter{}, deadletter.ErrNotFound
	}
	letter, err := soon(ctx, f.databases, f.member(number), func(ctx context.Context, l *Local) (deadletter.Letter, error) { return l.Letter(ctx, own) })
	letter.ID = id
	return letter, err
}

// filterFor returns the filter for one database, as of a place in the order of ids. false: it has
// none of the letters.
func (m *Member) filterFor(f letters.Filter, after int64) (letters.Filter, bool) {
	number, own := inside(after)
	if number > m.Number {
		return f, false
	}
	if f.After = 0; number == m.Number {
		f.After = own
	}
	if len(f.IDs) == 0 {
		return f, true
	}
	ids := f.IDs
	f.IDs = nil
	for _, id := range ids {
		if number, own := inside(id); number == m.Number && own > 0 {
			f.IDs = append(f.IDs, own)
		}
	}
	return f, len(f.IDs) > 0
}

// inTurn asks a database when it is the caller's turn among lists.
func inTurn[T any](read func(context.Context, *Local) (T, error)) func(context.Context, *Local) (T, error) {
	return func(ctx context.Context, l *Local) (T, error) {
		return listing(ctx, l, func(ctx context.Context) (T, error) { return read(ctx, l) })
	}
}

// byDatabase asks one database after the other, from a place in the order of ids, until a page is
// to end. It returns the place that follows; 0: that was the last.
func (f *fleetLetters) byDatabase(w letters.Filter, ask func(m *Member, w letters.Filter) (next int64, full bool, err error)) (next int64, missing []int, err error) {
	for i, m := range f.members {
		mine, ok := m.filterFor(w, w.After)
		if !ok {
			continue
		}
		next, full, err := ask(m, mine)
		if _, away := errors.AsType[*AwayError](err); away {
			missing = append(missing, m.Number)
			if len(missing) == len(f.members) {
				return 0, nil, err
			}
			continue
		}
		switch {
		case err != nil:
			return 0, nil, err
		case next > 0:
			return m.outside(next), missing, nil
		case full && i+1 < len(f.members):
			return int64(f.members[i+1].Number) << idBits, missing, nil
		}
	}
	return 0, missing, nil
}

// Letters returns a page of dead letters in the order of their ids, or the latest first.
func (f *fleetLetters) Letters(ctx context.Context, w letters.Filter, cursor string, content bool) (deadletter.Letters, error) {
	return f.letters(ctx, w, cursor, letterReader(content, straight[deadletter.Letters]))
}

// lettersInTurn is Letters as one of the few lists allowed at a time.
func (f *fleetLetters) lettersInTurn(ctx context.Context, w letters.Filter, cursor string, content bool) (deadletter.Letters, error) {
	return f.letters(ctx, w, cursor, letterReader(content, inTurn[deadletter.Letters]))
}

type readLetters func(w letters.Filter, cursor string) func(context.Context, *Local) (deadletter.Letters, error)

func letterReader(content bool, turn changer[deadletter.Letters]) readLetters {
	return func(w letters.Filter, cursor string) func(context.Context, *Local) (deadletter.Letters, error) {
		return turn(func(ctx context.Context, l *Local) (deadletter.Letters, error) {
			return l.Letters(ctx, w, cursor, content)
		})
	}
}

func (f *fleetLetters) letters(ctx context.Context, w letters.Filter, cursor string, read readLetters) (out deadletter.Letters, err error) {
	if len(f.members) == 1 {
		return at(ctx, f.databases, f.members[0], read(w, cursor))
	}
	if w.Newest {
		return f.newestLetters(ctx, w, cursor, read)
	}
	if cursor != "" {
		if w.After, err = strconv.ParseInt(cursor, 10, 64); err != nil || w.After < 1 || strconv.FormatInt(w.After, 10) != cursor {
			return out, noCursor(cursor)
		}
	}
	limit := cmp.Or(max(w.Limit, 0), 100)
	out.Letters = []deadletter.Letter{}
	next, missing, err := f.byDatabase(w, func(m *Member, mine letters.Filter) (int64, bool, error) {
		cursor := ""
		if mine.After > 0 {
			cursor = strconv.FormatInt(mine.After, 10)
		}
		mine.Limit = limit - len(out.Letters)
		page, err := at(ctx, f.databases, m, read(mine, cursor))
		for _, letter := range page.Letters {
			letter.ID = m.outside(letter.ID)
			out.Letters = append(out.Letters, letter)
		}
		next, _ := strconv.ParseInt(page.Cursor, 10, 64) // it is ours, or empty
		return next, len(out.Letters) >= limit, err
	})
	if out.Missing = missing; next > 0 {
		out.Cursor = strconv.FormatInt(next, 10)
	}
	f.tell(missing)
	return out, err
}

// newestLetters merges by the time of death. Each database keeps the order of its ids.
//
// A cursor has a place for each database: the last letter that was shown; 0: none yet; 1: all were,
// as no letter comes before the first id.
func (f *fleetLetters) newestLetters(ctx context.Context, w letters.Filter, cursor string, read readLetters) (out deadletter.Letters, err error) {
	places, err := f.parseNewest(cursor)
	if err != nil {
		return out, err
	}
	limit := cmp.Or(max(w.Limit, 0), 100)
	w.Limit = limit
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, m *Member) (deadletter.Letters, error) {
		mine, ok := m.filterFor(w, 0)
		if !ok || places[m.Number] == 1 {
			return deadletter.Letters{}, nil
		}
		cursor := ""
		if place := places[m.Number]; place > 0 {
			cursor = strconv.FormatInt(place, 10)
		}
		return read(mine, cursor)(ctx, l)
	})
	if err != nil {
		return out, err
	}
	out.Letters, out.Missing = []deadletter.Letter{}, missing
	taken := make([]int, len(replies))
	for len(out.Letters) < limit {
		first := -1
		for i, r := range replies {
			if taken[i] < len(r.got.Letters) {
				if first < 0 || r.got.Letters[taken[i]].DiedAt > replies[first].got.Letters[taken[first]].DiedAt {
					first = i
				}
			} else if r.got.Cursor != "" { // its next letter is not known
				first = -1
				break
			}
		}
		if first < 0 {
			break
		}
		letter := replies[first].got.Letters[taken[first]]
		places[replies[first].Number] = letter.ID
		letter.ID = replies[first].outside(letter.ID)
		out.Letters = append(out.Letters, letter)
		taken[first]++
	}
	more := false
	for i, r := range replies {
		switch rest := len(r.got.Letters) - taken[i]; {
		case rest > 0:
			more = true
		case r.got.Cursor != "":
			more = true
			places[r.Number], _ = strconv.ParseInt(r.got.Cursor, 10, 64) // it is ours
		default:
			places[r.Number] = 1
		}
	}
	if more {
		out.Cursor = f.formatNewest(places)
	}
	return out, nil
}

func (f *fleetLetters) formatNewest(places map[int]int64) string {
	var out []string
	for _, m := range f.members {
		out = append(out, strconv.FormatInt(places[m.Number], 10))
	}
	return strings.Join(out, ".")
}

func (f *fleetLetters) parseNewest(cursor string) (map[int]int64, error) {
	places := map[int]int64{}
	if cursor == "" {
		return places, nil
	}
	fields := strings.Split(cursor, ".")
	for i, m := range f.members {
		if i < len(fields) {
			places[m.Number], _ = strconv.ParseInt(fields[i], 10, 64)
		}
		if places[m.Number] < 0 {
			return nil, noCursor(cursor)
		}
	}
	if f.formatNewest(places) != cursor {
		return nil, noCursor(cursor)
	}
	return places, nil
}

// CountLetters counts the letters of a filter.
func (f *fleetLetters) CountLetters(ctx context.Context, w letters.Filter) (n int64, err error) {
	if l := f.alone(); l != nil {
		return l.CountLetters(ctx, w)
	}
	replies, _, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, m *Member) (n int64, err error) {
		if mine, ok := m.filterFor(w, w.After); ok {
			n, err = l.CountLetters(ctx, mine)
		}
		return n, err
	})
	return sum(replies), err
}

func sum(replies []reply[int64]) (n int64) {
	for _, r := range replies {
		n += r.got
	}
	return n
}

// CountDiedAgain counts the letters that were replayed at or after since, Unix ms, and whose tasks
// have died again.
func (f *fleetLetters) CountDiedAgain(ctx context.Context, w letters.Filter, since int64) (int64, error) {
	n, _, err := f.countDiedAgain(ctx, w, since)
	return n, err
}

func (f *fleetLetters) countDiedAgain(ctx context.Context, w letters.Filter, since int64) (n int64, missing []int, err error) {
	replies, missing, err := each(ctx, f.databases, "", func(ctx context.Context, l *Local, m *Member) (n int64, err error) {
		if mine, ok := m.filterFor(w, 0); ok {
			n, err = l.CountDiedAgain(ctx, mine, since)
		}
		return n, err
	})
	return sum(replies), missing, err
}

// countInTurn counts letters. next is where the time ended; 0: all are counted.
func (f *fleetLetters) countInTurn(ctx context.Context, w letters.Filter) (n, next int64, missing []int, err error) {
	ends := time.Now().Add(countFor)
	next, missing, err = f.byDatabase(w, func(m *Member, mine letters.Filter) (next int64, full bool, err error) {
		some, err := at(ctx, f.databases, m, inTurn(func(ctx context.Context, l *Local) (n int64, err error) {
			n, next, err = letters.New(l.store).Count(ctx, mine, countFor)
			return n, err
		}))
		n += some
		return next, !time.Now().Before(ends), err
	})
	return n, next, missing, err
}

// run is the part of a replay or a purge that one database does. upTo is the last letter of the run
// in that database; 0: it begins there now.
func (m *Member) run(upTo int64) int64 {
	if number, own := inside(upTo); number == m.Number {
		return own
	}
	return 0
}

// changing asks a database when it is the caller's turn among changes of many.
func changing[T any](change func(context.Context, *Local) (T, error)) func(context.Context, *Local) (T, error) {
	return func(ctx context.Context, l *Local) (out T, err error) {
		leave, err := l.changes.Take(ctx, access.From(ctx).Account(), 1)
		if err != nil {
			return out, err
		}
		defer leave()
		return change(ctx, l)
	}
}

// straight asks a database at once.
func straight[T any](change func(context.Context, *Local) (T, error)) func(context.Context, *Local) (T, error) {
	return change
}

type changer[T any] func(func(context.Context, *Local) (T, error)) func(context.Context, *Local) (T, error)

// ReplayPage implements deadletter.Pager. A page is of one database.
func (f *fleetLetters) ReplayPage(ctx context.Context, w letters.Filter, upTo int64, dryRun bool) (deadletter.Page, error) {
	return f.replayPage(ctx, w, upTo, dryRun, straight[deadletter.Page])
}

func (f *fleetLetters) replayPage(ctx context.Context, w letters.Filter, upTo int64, dryRun bool, turn changer[deadletter.Page]) (out deadletter.Page, err error) {
	if len(f.members) == 1 {
		return at(ctx, f.databases, f.members[0], turn(func(ctx context.Context, l *Local) (deadletter.Page, error) {
			return l.ReplayPage(ctx, w, upTo, dryRun)
		}))
	}
	out.Letters = []intake.Replayed{}
	next, missing, err := f.byDatabase(w, func(m *Member, mine letters.Filter) (int64, bool, error) {
		page, err := at(ctx, f.databases, m, turn(func(ctx context.Context, l *Local) (deadletter.Page, error) {
			return l.ReplayPage(ctx, mine, m.run(upTo), dryRun)
		}))
		if err != nil {
			return 0, false, err
		}
		for i := range page.Letters {
			page.Letters[i].ID = m.outside(page.Letters[i].ID)
		}
		next := page.Next
		out = page
		out.UpTo = m.outside(page.UpTo)
		return next, len(page.Letters) > 0, nil
	})
	out.Next, out.Missing = next, missing
	f.tell(missing)
	return out, err
}

// PurgePage implements deadletter.Purger. A page is of one database.
func (f *fleetLetters) PurgePage(ctx context.Context, w letters.Filter, upTo int64) (deadletter.Purged, error) {
	return f.purgePage(ctx, w, upTo, straight[deadletter.Purged])
}

func (f *fleetLetters) purgePage(ctx context.Context, w letters.Filter, upTo int64, turn changer[deadletter.Purged]) (out deadletter.Purged, err error) {
	if len(f.members) == 1 {
		return at(ctx, f.databases, f.members[0], turn(func(ctx context.Context, l *Local) (deadletter.Purged, error) { return l.PurgePage(ctx, w, upTo) }))
	}
	next, missing, err := f.byDatabase(w, func(m *Member, mine letters.Filter) (int64, bool, error) {
		page, err := at(ctx, f.databases, m, turn(func(ctx context.Context, l *Local) (deadletter.Purged, error) {
			return l.PurgePage(ctx, mine, m.run(upTo))
		}))
		if err != nil {
			out.Deleted = page.Deleted // a part
			return 0, false, err
		}
		next := page.Next
		out = page
		out.UpTo = m.outside(page.UpTo)
		return next, page.Deleted > 0, nil
	})
	out.Next, out.Missing = next, missing
	f.tell(missing)
	return out, err
}

// CancelMany cancels the stored and matching tasks, database by database.
func (f *Fleet) CancelMany(ctx context.Context, r CancelMany) (out CancelledMany, err error) {
	if l := f.alone(); l != nil {
		return l.CancelMany(ctx, r)
	}
	if err := r.check(); err != nil {
		return out, err
	}
	several := len(f.members) > 1
	if several {
		if latest, _ := f.open().Latest(ctx); latest != nil { // a former home alone would cancel nothing
			f.homes.Learn(latest)
		}
	}
	among, begin := f.among(r.Topic), 0
	if r.Cursor != "" {
		number, inner, ok := strings.Cut(r.Cursor, ":")
		begin = slices.IndexFunc(among, func(m *Member) bool { return strconv.Itoa(m.Number) == number })
		if !ok || begin < 0 {
			return out, noCursor(r.Cursor)
		}
		r.Cursor = inner
	}
	ends := time.Time{}
	for i, m := range among[begin:] {
		done, err := at(ctx, f.databases, m, func(ctx context.Context, l *Local) (CancelledMany, error) {
			if ends.IsZero() {
				ends = time.Now().Add(l.budget(ctx))
			}
			return l.cancelMany(ctx, r, ends, func(ctx context.Context) error {
				if !several {
					return nil
				}
				return f.open().Moving(ctx, m.Number, schemas.TargetName(r.Topic))
			})
		})
		out.Cancelled, out.TooLate, out.Matched = out.Cancelled+done.Cancelled, out.TooLate+done.TooLate, out.Matched+done.Matched
		if _, away := errors.AsType[*AwayError](err); away && !(r.Topic != "" && begin+i == 0) {
			out.Missing = append(out.Missing, m.Number)
			if len(out.Missing) == len(among) {
				return CancelledMany{}, err
			}
		} else if err != nil {
			return out, err
		}
		last := begin+i+1 == len(among)
		switch {
		case done.Cursor != "":
			out.Cursor = fmt.Sprintf("%d:%s", m.Number, done.Cursor)
		case !last && !ends.IsZero() && !time.Now().Before(ends):
			out.Cursor = fmt.Sprintf("%d:", among[begin+i+1].Number)
		}
		if out.Cursor != "" {
			break
		}
		r.Cursor = ""
	}
	f.tell(out.Missing)
	return out, nil
}
