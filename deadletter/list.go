package deadletter

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/notyet/notyet/store/letters"
)

// Letters is a page of dead letters in the order of ids, or the latest first.
type Letters struct {
	Letters []Letter `json:"deadletters"`
	Cursor  string   `json:"cursor,omitempty" doc:"give it back for the next page; absent: that was the last"`
	Missing []int    `json:"missing,omitempty" doc:"databases that do not answer, by number: what they hold is not in this answer; absent: none"`
}

// Source returns pages of a filter's letters. The first call has no cursor; each later one passes
// the cursor of the page before. A page holds at most f.Limit letters (0: 100), and fewer with
// large content. A page can be short or empty without being the last.
type Source interface {
	Letters(ctx context.Context, f letters.Filter, cursor string, content bool) (Letters, error)
}

// Letters implements Source on the database.
func (l *Local) Letters(ctx context.Context, f letters.Filter, cursor string, content bool) (Letters, error) {
	if cursor != "" {
		after, err := strconv.ParseInt(cursor, 10, 64)
		if err != nil || after <= 1 && (after < 1 || f.Newest) || strconv.FormatInt(after, 10) != cursor {
			return Letters{}, &FieldError{"cursor", cursor, "is none that a list has answered: give back the one of the page before, or leave it out"}
		}
		f = f.Behind(after)
	}
	read := letters.New(l.store).Select
	if content {
		read = letters.New(l.store).SelectWithBodies
	}
	page, err := read(ctx, f)
	if err != nil {
		return Letters{}, err
	}
	out := Letters{}
	if page.Next > 0 {
		out.Cursor = strconv.FormatInt(page.Next, 10)
	}
	out.Letters, err = readLetters(ctx, l.store, page.IDs, content)
	return out, err
}

// Collect returns at most want letters of a filter, without their content.
func Collect(ctx context.Context, from Source, f letters.Filter, want int) ([]Letter, error) {
	out, cursor := []Letter{}, ""
	for {
		f.Limit = min(1000, want-len(out))
		page, err := from.Letters(ctx, f, cursor, false)
		if err != nil {
			return nil, err
		}
		out = append(out, page.Letters...)
		if cursor = page.Cursor; cursor == "" || len(out) >= want {
			return out, nil
		}
	}
}

const exportPage = 100

// Export writes every letter of the filter as one JSON object a line, and returns the number.
// f.Limit: 0 means no limit.
func Export(ctx context.Context, from Source, f letters.Filter, w io.Writer) (int, error) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	written, bound, cursor := 0, f.Limit, ""
	for {
		f.Limit = exportPage
		if bound > 0 {
			f.Limit = min(exportPage, bound-written)
		}
		page, err := from.Letters(ctx, f, cursor, true)
		if err != nil {
			return written, err
		}
		for _, l := range page.Letters {
			if err := enc.Encode(l); err != nil {
				return written, fmt.Errorf("writing a dead letter: %w", err)
			}
			written++
		}
		if cursor = page.Cursor; cursor == "" || written == bound {
			return written, nil
		}
	}
}
