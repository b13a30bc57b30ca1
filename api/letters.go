package api

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
)

// LetterFilter selects dead letters. The zero value selects all not replayed.
type LetterFilter struct {
	IDs      []int64 `json:"ids,omitempty"      query:"ids"      doc:"only these" maxItems:"1000"`
	Kind     string  `json:"kind,omitempty"     query:"kind"     doc:"dead, undeliverable, expired, rejected or callback" enum:"dead,undeliverable,expired,rejected,callback,missed"`
	Topic    string  `json:"topic,omitempty"    query:"topic"    doc:"only this target topic" minLength:"1"`
	TaskID   string  `json:"task_id,omitempty"  query:"task_id"  doc:"only this task's" minLength:"1"`
	Tag      string  `json:"tag,omitempty"      query:"tag"      doc:"only of tasks with this tag; a rejected request has none" minLength:"1"`
	Reason   string  `json:"reason,omitempty"   query:"reason"   doc:"a part of the reason" minLength:"1"`
	Since    Instant `json:"since,omitzero"     query:"since"    doc:"died at or after: RFC 3339 or Unix ms"`
	Until    Instant `json:"until,omitzero"     query:"until"    doc:"died before"`
	Replayed bool    `json:"replayed,omitempty" query:"replayed" doc:"also those that were replayed"`
}

func newLetterFilter(f letters.Filter) LetterFilter {
	return LetterFilter{IDs: f.IDs, Kind: f.Kind, Topic: schemas.TargetName(f.Topic), TaskID: f.TaskID, Tag: f.Tag, Reason: f.Reason, Since: At(f.Since), Until: At(f.Until), Replayed: f.Replayed}
}

func (f LetterFilter) store(limit int, after int64) letters.Filter {
	return letters.Filter{IDs: f.IDs, Kind: f.Kind, Topic: schemas.TargetName(f.Topic), TaskID: f.TaskID, Tag: f.Tag, Reason: f.Reason, Since: f.Since.Millis(), Until: f.Until.Millis(), Replayed: f.Replayed, After: after, Limit: limit}
}

func (f LetterFilter) selects() bool {
	return len(f.IDs) > 0 || f.Kind != "" || f.Topic != "" || f.TaskID != "" || f.Tag != "" || f.Reason != "" || f.Since != (Instant{}) || f.Until != (Instant{})
}

// Letter returns one dead letter, or deadletter.ErrNotFound.
func (l *Local) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return deadletter.Show(ctx, l.store, id)
}

// CountLetters counts the letters of a filter.
func (l *Local) CountLetters(ctx context.Context, f letters.Filter) (int64, error) {
	n, _, err := letters.New(l.store).Count(ctx, f, 0)
	return n, err
}

// CountDiedAgain counts the letters that were replayed at or after since, Unix ms, and whose tasks
// have died again.
func (l *Local) CountDiedAgain(ctx context.Context, f letters.Filter, since int64) (int64, error) {
	return listing(ctx, l, func(ctx context.Context) (int64, error) { return letters.New(l.store).CountDiedAgain(ctx, f, since) })
}

// CountDiedAgain is that of Local.
func (c *Client) CountDiedAgain(ctx context.Context, f letters.Filter, since int64) (int64, error) {
	out, err := get[Count](ctx, c, "/deadletters/count", countInput{LetterFilter: newLetterFilter(f), DiedAgainSince: At(since)}, nil)
	return out.Count, err
}

// Letter returns one dead letter, or deadletter.ErrNotFound.
func (c *Client) Letter(ctx context.Context, id int64) (deadletter.Letter, error) {
	return get[deadletter.Letter](ctx, c, "/deadletters/"+strconv.FormatInt(id, 10), nil, deadletter.ErrNotFound)
}

// Letters implements deadletter.Source.
func (c *Client) Letters(ctx context.Context, f letters.Filter, cursor string, content bool) (deadletter.Letters, error) {
	return get[deadletter.Letters](ctx, c, "/deadletters", listLettersInput{newLetterFilter(f), f.Newest, f.Limit, cursor, content}, nil)
}

// CountLetters counts the letters of a filter.
func (c *Client) CountLetters(ctx context.Context, f letters.Filter) (int64, error) {
	for n, in := int64(0), (countInput{LetterFilter: newLetterFilter(f)}); ; {
		out, err := get[Count](ctx, c, "/deadletters/count", in, nil)
		n += out.Count
		if in.Cursor = out.Cursor; err != nil || in.Cursor == "" {
			return n, err
		}
	}
}

// ReplayPage implements deadletter.Pager.
func (c *Client) ReplayPage(ctx context.Context, f letters.Filter, upTo int64, dryRun bool) (deadletter.Page, error) {
	filter := newLetterFilter(f)
	return post[deadletter.Page](ctx, c, "/deadletters/replay", ReplayRequest{LetterFilter: filter, All: !filter.selects(), DryRun: dryRun, After: f.After, Limit: f.Limit, UpTo: upTo}, nil)
}

// PurgePage implements deadletter.Purger.
func (c *Client) PurgePage(ctx context.Context, f letters.Filter, upTo int64) (deadletter.Purged, error) {
	filter := newLetterFilter(f)
	return post[deadletter.Purged](ctx, c, "/deadletters/purge", PurgeRequest{LetterFilter: filter, All: !filter.selects(), After: f.After, Limit: f.Limit, UpTo: upTo}, nil)
}

// Letters is a page of dead letters. A page can be short or empty without being the last.
type Letters struct {
	deadletter.Letters
}

func (l *Letters) withhold() {
	for i := range l.Letters.Letters {
		l.Letters.Letters[i].Content = nil
	}
}

type listLettersInput struct {
	LetterFilter
	Newest  bool   `query:"newest"  doc:"the latest first, on all pages"`
	Limit   int    `query:"limit"   default:"100"                        maximum:"1000"   minimum:"1"`
	Cursor  string `query:"cursor"  doc:"that of the page before"        maxLength:"1000"`
	Content bool   `query:"content" doc:"with key, value and headers"`
}

// lettersWithContent limits a page of letters with their content.
const lettersWithContent = 100

func (in *listLettersInput) scope(c access.Caller) error {
	if in.Content && !c.May(access.Operate) {
		return huma.Error403Forbidden("content: " + access.Beyond(c, access.Operate))
	}
	if in.Content && in.Limit > lettersWithContent {
		return bad("limit", strconv.Itoa(in.Limit), "is above 100, the most with content: read more pages")
	}
	if in.Topic == "" {
		return nil // it leaves out what is not the caller's
	}
	return withinLetters(c, in.Topic)
}

// letterHandlers are the operations on dead letters.
type letterHandlers struct {
	fleet   *Fleet
	cursors *cursors
}

func (h letterHandlers) list(ctx context.Context, in *listLettersInput) (out Letters, err error) {
	list := "deadletters"
	if in.Newest {
		list = "newest deadletters" // a cursor goes one way
	}
	err = h.cursors.page(ctx, list, &in.Cursor, &out.Cursor, func() error {
		if err := checkTag(in.Tag); err != nil {
			return err
		}
		f := in.store(in.Limit, 0)
		f.Newest = in.Newest
		if caller := access.From(ctx); !caller.AllTopics() {
			f.Allowed = func(topic string) bool { return withinLetters(caller, topic) == nil }
		}
		out.Letters, err = h.fleet.lettersInTurn(ctx, f, in.Cursor, in.Content)
		return err
	})
	return out, err
}

// Count is a number of dead letters.
type Count struct {
	Count  int64  `json:"count"`
	Cursor string `json:"cursor,omitempty" doc:"there was no time for more: give it back and add what is answered; absent: all are counted"`
	At     int64  `json:"at,omitempty"     doc:"when the count began, by the first database's clock, Unix ms: until of a request about these letters and no later ones"`
	Partial
}

const countFor = 2 * time.Second

type countInput struct {
	LetterFilter
	Cursor string `query:"cursor" doc:"that of the answer before" maxLength:"1000"`
	// DiedAgainSince is the At of a replay's first page.
	DiedAgainSince Instant `query:"died_again_since" doc:"the at of a replay's first page: count only the letters that were replayed then or later, and whose tasks have died again"`
	// DiedAgainUntil is a moment after the replay's last page.
	DiedAgainUntil Instant `query:"died_again_until" doc:"with died_again_since: a moment after the replay's last page, so that later replays do not count"`
}

func (in *countInput) scope(c access.Caller) error { return withinLetters(c, in.Topic) }

func (h letterHandlers) countPage(ctx context.Context, in *countInput) (out Count, err error) {
	err = h.cursors.page(ctx, "count", &in.Cursor, &out.Cursor, func() error {
		if err := checkTag(in.Tag); err != nil {
			return err
		}
		if now, err := h.fleet.time(ctx, h.fleet.members[0]); err == nil {
			out.At = now.UnixMilli()
		}
		if since := in.DiedAgainSince.Millis(); since > 0 {
			f := in.store(0, 0)
			f.Settled = in.DiedAgainUntil.Millis()
			out.Count, out.Missing, err = h.fleet.countDiedAgain(ctx, f, since)
			return err
		}
		after, _ := strconv.ParseInt(in.Cursor, 10, 64) // it is ours, or empty
		out.Count, after, out.Missing, err = h.fleet.countInTurn(ctx, in.store(0, after))
		if after > 0 {
			out.Cursor = strconv.FormatInt(after, 10)
		}
		return err
	})
	return out, err
}

type letterInput struct {
	ID int64 `path:"id"`
}

func (in *letterInput) scope(access.Caller) error { return nil } // the handler checks the letter's topic

func (h letterHandlers) get(ctx context.Context, in *letterInput) (deadletter.Letter, error) {
	letter, err := h.fleet.Letter(ctx, in.ID)
	caller := access.From(ctx)
	if err == nil && withinLetters(caller, letter.Topic) != nil {
		return deadletter.Letter{}, deadletter.ErrNotFound // whether there is one is nobody else's affair
	}
	if !caller.May(access.Operate) {
		letter.Content = nil
	}
	return letter, err
}

// ReplayRequest asks to replay one page.
type ReplayRequest struct {
	LetterFilter
	All    bool  `json:"all,omitempty"     doc:"without a filter: really all of them"`
	DryRun bool  `json:"dry_run,omitempty" doc:"only say what would happen"`
	After  int64 `json:"after,omitempty"   doc:"only ids above: the next of the page before"`
	Limit  int   `json:"limit,omitempty"   doc:"0: 500"                                maximum:"500" minimum:"0"`
	UpTo   int64 `json:"up_to,omitempty" doc:"that of the page before; leave it out with the first"`
}

type replayInput struct {
	Async
	Body ReplayRequest
}

func (in *replayInput) scope(c access.Caller) error { return withinLetters(c, in.Body.Topic) }

func (h letterHandlers) replay(ctx context.Context, in *replayInput) (deadletter.Page, error) {
	if err := guard(in.Body.LetterFilter, in.Body.All); err != nil {
		return deadletter.Page{}, err
	}
	return h.fleet.replayPage(ctx, in.Body.store(in.Body.Limit, in.Body.After), in.Body.UpTo, in.Body.DryRun, changing[deadletter.Page])
}

// PurgeRequest asks to delete one page.
type PurgeRequest struct {
	LetterFilter
	All    bool  `json:"all,omitempty"     doc:"without a filter: really all of them"`
	DryRun bool  `json:"dry_run,omitempty" doc:"only count, beyond the limit too, and delete nothing"`
	After  int64 `json:"after,omitempty"   doc:"only ids above: the next of the page before"`
	Limit  int   `json:"limit,omitempty"   doc:"0: 1000"                              maximum:"1000" minimum:"0"`
	UpTo   int64 `json:"up_to,omitempty"   doc:"that of the page before; leave it out with the first"`
}

type purgeInput struct {
	Async
	Body PurgeRequest
}

func (in *purgeInput) scope(c access.Caller) error { return withinLetters(c, in.Body.Topic) }

func (h letterHandlers) purge(ctx context.Context, in *purgeInput) (out deadletter.Purged, err error) {
	if err := guard(in.Body.LetterFilter, in.Body.All); err != nil {
		return out, err
	}
	if in.Body.DryRun {
		out.Deleted, out.Next, out.Missing, err = h.fleet.countInTurn(ctx, in.Body.store(0, in.Body.After))
		return out, err
	}
	return h.fleet.purgePage(ctx, in.Body.store(in.Body.Limit, in.Body.After), in.Body.UpTo, changing[deadletter.Purged])
}

// guard refuses a request with a mistake, and one without a filter and without all.
func guard(f LetterFilter, all bool) error {
	if err := cmp.Or(checkTag(f.Tag), checkTopic(f.Topic)); err != nil {
		return err
	}
	if f.selects() != all {
		return nil
	}
	if all {
		return huma.Error422UnprocessableEntity("all stands beside a filter: send one of them", &huma.ErrorDetail{Location: "body.all", Message: "stands beside a filter: send one of them", Value: true})
	}
	return huma.Error422UnprocessableEntity("no filter: name what is meant, or set all to true", &huma.ErrorDetail{Location: "body.all", Message: "no filter: name what is meant, or set all to true"})
}
