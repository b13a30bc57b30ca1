package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/notyet/notyet/api"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
)

// ticked is a task that somebody has ticked in a list, as the list showed it.
type ticked struct {
	topic, id string
	due       int64 // Unix ms
}

// value is that of its box.
func (t ticked) value() string {
	return url.PathEscape(t.topic) + "/" + url.PathEscape(t.id) + "/" + strconv.FormatInt(t.due, 10)
}

func (t ticked) String() string { return t.topic + " " + t.id }

const (
	// mostTicked is how many tasks a form is about: four lists of a page, which have 50 each.
	mostTicked = 200
	// tickedAtOnce is how many tasks are changed side by side, and wait for their answers.
	tickedAtOnce = 8
	// tickedFor is for how long tasks are begun with. The page has to be written a minute after its
	// request came, also where Kafka takes its 10 s for the last one.
	tickedFor = 10 * time.Second
	// movedBy is how much later a ticked task becomes due.
	movedBy = time.Hour
	// namedTicked is how many tasks a question and an outcome name.
	namedTicked = 10
	namedBytes  = 80
)

func readTicked(r *http.Request) (out []ticked, err error) {
	for _, value := range r.Form["task"] {
		t, parts := ticked{}, strings.Split(value, "/")
		if len(parts) != 3 {
			return nil, badForm("task", "is no topic, id and due time")
		}
		var errs [3]error
		t.topic, errs[0] = url.PathUnescape(parts[0])
		t.id, errs[1] = url.PathUnescape(parts[1])
		t.due, errs[2] = strconv.ParseInt(parts[2], 10, 64)
		if err := cmp.Or(errs[:]...); err != nil {
			return nil, badForm("task", "cannot be read: "+err.Error())
		}
		if !slices.Contains(out, t) { // two lists of a page may have it
			out = append(out, t)
		}
	}
	switch {
	case len(out) == 0:
		return nil, badForm("task", "is empty: tick the tasks that are meant")
	case len(out) > mostTicked:
		return nil, badForm("task", fmt.Sprintf("names more than %d tasks: tick fewer", mostTicked))
	}
	return out, nil
}

// changeTicked asks with the names, and then cancels the ticked tasks, or moves each.
func (c *Console) changeTicked(r *http.Request, do string) (view, error) {
	if err := needs(r, access.Operate); err != nil {
		return view{}, err
	}
	all, err := readTicked(r)
	if err != nil {
		return view{}, err
	}
	d, err := readFind(r)
	if err != nil {
		return view{}, err
	}
	conf := confirmation{What: "Cancel " + tasks(len(all)), Keep: "Keep them", Name: names(all), Path: "/find", Back: d.page(), Danger: true, Fields: append(d.Fields(), field{"do", do})}
	deed := c.cancelTicked
	if do == "move-ticked" {
		deed = c.moveTicked
		conf.What, conf.Keep, conf.Danger = "Move "+tasks(len(all))+" by 1 h", "", false
		conf.Detail = "Each becomes due an hour later than it is. One that is late, held or retrying is not moved: its page can do that. The dead letter of a dead one stays, and is not to be replayed too."
	}
	if confirmed(r) {
		return view{to: conf.Back, outcome: changeEach(r.Context(), all, deed)}, nil
	}
	for _, t := range all {
		conf.Fields = append(conf.Fields, field{"task", t.value()})
	}
	return view{page: "confirm", title: conf.What, data: conf}, nil
}

// changeEach has a deed done to each task, and says what became of them.
func changeEach(ctx context.Context, all []ticked, deed func(context.Context, ticked) (*outcome, error)) *outcome {
	ctx = context.WithValue(ctx, missingKey{}, nil) // it is for one call at a time
	became := make([]outcome, len(all))
	ends := time.Now().Add(tickedFor)
	var group errgroup.Group
	group.SetLimit(tickedAtOnce)
	for i, t := range all {
		group.Go(func() error {
			if ctx.Err() != nil || time.Now().After(ends) {
				became[i] = outcome{Text: "There was no time left, and nothing was asked for. Tick them again.", Bad: true}
				return nil
			}
			out, err := deed(context.WithoutCancel(ctx), t)
			if err != nil {
				out = &outcome{Text: text(err), Bad: true}
			}
			became[i] = *out
			return nil
		})
	}
	_ = group.Wait()
	return sum(all, became)
}

// sum says each outcome once, bad ones first, with how many tasks it is of. Of bad ones these are
// named.
func sum(all []ticked, became []outcome) *outcome {
	var said []outcome
	of := map[outcome][]ticked{}
	for i, o := range became {
		if of[o] = append(of[o], all[i]); len(of[o]) == 1 {
			said = append(said, o)
		}
	}
	out, good, bad := &outcome{}, []string{}, []string{}
	for _, o := range said {
		part := tasks(len(of[o])) + ": " + o.Text
		if o.Bad {
			bad, out.Bad = append(bad, part+" ("+names(of[o])+")"), true
		} else {
			good = append(good, part)
		}
	}
	out.Text = strings.Join(append(bad, good...), " · ")
	return out
}

// stillAs reads a ticked task. One with another due time than the list showed has been moved, or is
// another one by now.
func (in *inside) stillAs(ctx context.Context, named ticked) (t api.Task, changed *outcome, err error) {
	err = in.get(ctx, "/task", url.Values{"topic": {named.topic}, "id": {named.id}}, &t)
	if err == nil && t.Due != named.due {
		changed = &outcome{Text: "left as it is, because the due time is another one now. Look again.", Bad: true}
	}
	return t, changed, err
}

func (c *Console) cancelTicked(ctx context.Context, named ticked) (*outcome, error) {
	t, changed, err := c.inside.stillAs(ctx, named)
	if changed != nil || err != nil {
		return changed, err
	}
	var e api.Event
	status, err := c.inside.call(ctx, http.MethodPost, "/tasks/cancel?wait="+answerWait, target(&t), &e)
	out := newOutcome(status, e)
	if out.Text = strings.TrimPrefix(out.Text, "Answer: "); e.State == schemas.StateCancelled {
		out.Text = "cancelled"
	}
	return out, err
}

// moveTicked stops no task to move it: of many, one might stay stopped without anybody noticing.
func (c *Console) moveTicked(ctx context.Context, named ticked) (*outcome, error) {
	t, changed, err := c.inside.stillAs(ctx, named)
	if changed != nil || err != nil {
		return changed, err
	}
	if !movesAtOnce(&t) {
		return &outcome{Text: "not moved, because it is late, held or retrying. Its page can move it.", Bad: true}, nil
	}
	at := max(t.Due, time.Now().UnixMilli()) + movedBy.Milliseconds()
	again, err := moved(&t, strconv.FormatInt(at, 10))
	if err != nil {
		return nil, err
	}
	return c.move(ctx, &t, again)
}

func tasks(n int) string {
	if n == 1 {
		return "1 task"
	}
	return digits(int64(n)) + " tasks"
}

func names(all []ticked) string {
	var out []string
	for _, t := range all[:min(len(all), namedTicked)] {
		out = append(out, brief(t.String(), namedBytes))
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, "and "+strconv.Itoa(more)+" more")
	}
	return strings.Join(out, ", ")
}
