package api

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notyet/notyet/deadletter"
	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// ReplayEdit is put in place of parts of a dead letter when it is replayed.
type ReplayEdit struct {
	Topic       string               `json:"topic,omitempty"        doc:"another target topic" minLength:"1"`
	Key         Text                 `json:"key,omitzero"           doc:"another key; null: Kafka's null; absent: the letter's"`
	KeyBase64   string               `json:"key_base64,omitempty"   doc:"another key of any bytes" minLength:"1"`
	Value       Text                 `json:"value,omitzero"         doc:"another value, as text; null: Kafka's null; absent: the letter's"`
	ValueBase64 string               `json:"value_base64,omitempty" doc:"another value of any bytes" minLength:"1"`
	Headers     *[]deadletter.Header `json:"headers,omitempty"      doc:"all own headers, in their order; empty: none; absent: the letter's"`
}

// Text is a text that a request may leave out, which is not null.
type Text struct {
	Set  bool
	Text *string // nil: null
}

// UnmarshalJSON is called where there is a value, or null.
func (t *Text) UnmarshalJSON(b []byte) error {
	t.Set = true
	return json.Unmarshal(b, &t.Text)
}

// MarshalJSON writes the value, or null.
func (t Text) MarshalJSON() ([]byte, error) { return json.Marshal(t.Text) }

// Schema describes the type to huma.
func (Text) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Nullable: true}
}

// change returns the edit of a body and the names of what it replaces.
func (r *ReplayEdit) change() (change func(*schemas.Body), replaced []string, err error) {
	if r.Key.Set && r.KeyBase64 != "" {
		return nil, nil, wrong("key_base64", r.KeyBase64, "stands beside key: send one of them")
	}
	if r.Value.Set && r.ValueBase64 != "" {
		return nil, nil, wrong("value_base64", r.ValueBase64, "stands beside value: send one of them")
	}
	content := deadletter.Content{Key: r.Key.Text, KeyBase64: r.KeyBase64, Value: r.Value.Text, ValueBase64: r.ValueBase64}
	if r.Headers != nil {
		content.Headers = *r.Headers
	}
	key, value, headers, err := content.Bytes()
	if err != nil {
		return nil, nil, err
	}
	withKey, withValue := r.Key.Set || r.KeyBase64 != "", r.Value.Set || r.ValueBase64 != ""
	for name, is := range map[string]bool{"topic": r.Topic != "", "key": withKey, "value": withValue, "headers": r.Headers != nil} {
		if is {
			replaced = append(replaced, name)
		}
	}
	slices.Sort(replaced)
	return func(b *schemas.Body) {
		if withKey {
			b.Key = key
		}
		if withValue {
			b.Value = value
		}
		if r.Headers != nil {
			b.Headers = headers
		}
	}, replaced, nil
}

// check finds mistakes, as in a request that asks for the replaced parts. One of the intakes has to
// take it. The target's rules count where the target is another one.
func (r *ReplayEdit) check(letter deadletter.Letter, intakes []Intake) error {
	change, _, err := r.change()
	if err != nil {
		return err
	}
	var body schemas.Body
	change(&body)
	b := builder{}
	callback := strings.Contains(letter.Topic, "://")
	switch target, err := checkTarget(letter.Topic); {
	case r.Topic == "" && callback:
		b.text(schemas.HeaderURL, letter.Topic)
	case r.Topic == "" && err != nil:
		return err
	case r.Topic == "":
		b.text(schemas.HeaderTopic, target)
	case callback || strings.Contains(r.Topic, "://"):
		return wrong("topic", r.Topic, "stands for an HTTP callback, or in place of one: a replay changes the topic of a record only, so schedule a task instead")
	default:
		b.text(schemas.HeaderTopic, r.Topic)
	}
	b.text(schemas.HeaderDelay, "0s")
	if err := b.own(body.Headers); err != nil {
		return err
	}
	if len(intakes) == 0 {
		return wrong("topic", r.Topic, "is for no intake of this service: ask a service that has one")
	}
	var first error
	for _, in := range intakes {
		if r.Topic == "" {
			in.Limits.AllowedTargets, in.Limits.Target = nil, ""
		}
		to := builder{slices.Clone(b.headers)}
		_, err := to.record(in, body.Key, body.Value)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// ReplayLetter is for a caller with rights to all. It has no turn among changes of many.
func ReplayLetter(ctx context.Context, f *Fleet, id int64, r ReplayEdit, intakes []Intake) (deadletter.Page, error) {
	return replayLetter(ctx, f, id, r, intakes, straight[deadletter.Page])
}

// replayLetter replays one letter with parts of it replaced. The intakes are those that the caller
// may use for the task's topic.
func replayLetter(ctx context.Context, f *Fleet, id int64, r ReplayEdit, intakes []Intake, turn changer[deadletter.Page]) (out deadletter.Page, err error) {
	letter, err := f.Letter(ctx, id)
	if err != nil {
		return out, err
	}
	change, replaced, err := r.change()
	if err != nil {
		return out, err
	}
	if len(replaced) == 0 || letter.Kind == schemas.KindRejected { // the page says why not
		out, err = f.replayPage(ctx, letters.Filter{IDs: []int64{id}, Topic: letter.Topic, Replayed: true}, 0, false, turn)
		out.Next = 0
		return out, err
	}
	if err := r.check(letter, intakes); err != nil {
		return out, err
	}
	number, own := inside(id)
	m := f.member(number)
	edit := task.Edit{Topic: schemas.TargetName(r.Topic), Body: change}
	letter.ID = own
	out, err = at(ctx, f.databases, m, turn(func(ctx context.Context, l *Local) (deadletter.Page, error) {
		if r.Topic != "" {
			if !f.isHome(m, edit.Topic) {
				return deadletter.Page{}, wrong("topic", r.Topic, "lives in another database than the letter: schedule a task instead")
			}
			version, err := f.leaves(ctx, l, m, edit.Topic)
			if err != nil {
				return deadletter.Page{}, err
			}
			edit.Map = version
		}
		return l.ReplayEdited(ctx, letter, edit, replaced)
	}))
	for i := range out.Letters {
		out.Letters[i].ID = id
	}
	out.UpTo = m.outside(out.UpTo)
	return out, err
}

// ReplayLetter replays one letter with parts of it replaced.
func (c *Client) ReplayLetter(ctx context.Context, id int64, r ReplayEdit) (deadletter.Page, error) {
	return post[deadletter.Page](ctx, c, "/deadletters/"+strconv.FormatInt(id, 10)+"/replay", r, deadletter.ErrNotFound)
}

type replayOneInput struct {
	ID   int64 `path:"id"`
	Body *ReplayEdit
}

// scope refuses another's topic; the handler checks the letter's.
func (in *replayOneInput) scope(c access.Caller) error {
	if in.Body == nil || in.Body.Topic == "" {
		return nil
	}
	return withinTopics(c, in.Body.Topic)
}

func (s *server) replayOne(ctx context.Context, in *replayOneInput) (deadletter.Page, error) {
	if in.Body == nil {
		in.Body = &ReplayEdit{}
	}
	caller := access.From(ctx)
	letter, err := s.fleet.Letter(ctx, in.ID)
	if err == nil && withinLetters(caller, letter.Topic) != nil {
		err = deadletter.ErrNotFound
	}
	if err != nil {
		return deadletter.Page{}, err
	}
	way := route{topic: cmp.Or(in.Body.Topic, letter.Topic)}
	return replayLetter(ctx, s.fleet, in.ID, *in.Body, s.theirs(caller, way), changing[deadletter.Page])
}

// theirs are the intakes that the caller may use for a request.
func (s *server) theirs(caller access.Caller, way route) []Intake {
	return slices.DeleteFunc(slices.Clone(s.intakes()), func(in Intake) bool { return !caller.Through(way.target(), in.Topic) })
}
