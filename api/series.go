package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/notyet/notyet/internal/figures"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
)

// series is what all processes did in each minute, as the database has it. It is in the database
// and not in memory, so that it survives each process and is the same from each.
//
// What has arrived of a minute is final figures.FinalAfter minutes after its end. Those are kept
// here, so that a reading reads only the latest minutes, however many processes there are. Whoever
// has the overviewer's token uses it.
type series struct {
	store   *store.Store
	minutes map[int64]figures.Counts // since 1970; one in which nothing was done is not there
	known   span                     // the minutes that are final and read
}

// span is a range of minutes, the last one included. The zero value is none.
type span struct{ from, to int64 }

const (
	// seriesBite is how many minutes are read at a time.
	seriesBite = 10
	// arrival is how long after its end the figures of a minute are expected.
	arrival = 15 * time.Second
)

// last is the last minute that is shown.
func last(now time.Time) int64 { return now.Add(-arrival).Unix()/60 - 1 }

// read reads what is not known yet, the latest first. If it fails on the way, the next call goes on.
func (s *series) read(ctx context.Context, now time.Time) error {
	newest := last(now)
	oldest, final := newest-admin.FiguresMemory+1, newest-figures.FinalAfter
	if s.known.to > final { // the database's clock was set back
		s.known = span{}
	}
	if s.known.to < oldest {
		s.known = span{}
	}
	from := final + 1
	if s.known.to > 0 {
		from = s.known.to + 1
	}
	// From here to newest nothing is final. Bites, for a process that nobody has asked for hours.
	for to := newest; to >= from; to -= seriesBite {
		if err := s.fetch(ctx, max(from, to-seriesBite+1), to); err != nil {
			return err
		}
	}
	if s.known.to > 0 {
		s.known.to = final
	} else {
		s.known = span{final + 1, final}
	}
	for s.known.from > oldest {
		begin := max(oldest, s.known.from-seriesBite)
		if err := s.fetch(ctx, begin, s.known.from-1); err != nil {
			return err
		}
		s.known.from = begin
	}
	maps.DeleteFunc(s.minutes, func(minute int64, _ figures.Counts) bool { return minute < oldest || minute > newest })
	return nil
}

func (s *series) fetch(ctx context.Context, from, to int64) error {
	rows, err := look.New(s.store).Minutes(ctx, from, to)
	if err != nil {
		return err
	}
	maps.DeleteFunc(s.minutes, func(minute int64, _ figures.Counts) bool { return minute >= from && minute <= to })
	for _, row := range rows {
		if counts, ok := figures.ParseMinute(row.Data); ok {
			s.minutes[row.Minute] = s.minutes[row.Minute].Plus(counts)
		}
	}
	return nil
}

// points returns the minutes in which something was done, oldest first.
func (s *series) points(now time.Time) []Minute {
	out := []Minute{}
	for _, minute := range slices.Sorted(maps.Keys(s.minutes)) {
		if newest := last(now); minute <= newest && minute > newest-admin.FiguresMemory {
			out = append(out, Minute{At: minute * time.Minute.Milliseconds(), Work: work(s.minutes[minute], 60)})
		}
	}
	return out
}

// since returns what was done in the latest minutes.
func (s *series) since(now time.Time, minutes int64) figures.Counts {
	var out figures.Counts
	newest := last(now)
	for minute := newest - minutes + 1; minute <= newest; minute++ {
		out = out.Plus(s.minutes[minute])
	}
	return out
}
