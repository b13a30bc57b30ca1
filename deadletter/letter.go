// Package deadletter lets operators work on given up tasks and requests. A filter goes in; letters
// come out as JSON, tasks become pending again, or rows are deleted. After a restore of the
// database send logs go in, and the tasks proven as sent are settled (Reconcile).
//
// The letters are in the store's table. A replay marks each letter in the transaction that revives
// the task, so an interrupted run is simply started again.
package deadletter

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
)

// ErrNotFound means: no dead letter has the id.
var ErrNotFound = errors.New("there is no dead letter with this id")

// Letter is a dead letter in JSON. Times are Unix ms.
type Letter struct {
	ID         int64  `json:"id"`
	Kind       string `json:"kind"        doc:"dead, undeliverable, expired, rejected or callback"`
	Topic      string `json:"topic"       doc:"target topic; of a rejected request that may not speak for one, its intake topic"`
	TaskID     string `json:"task_id"`
	Tag        string `json:"tag,omitempty" doc:"the task's tags, where the content is asked for"`
	Due        int64  `json:"due"         doc:"Unix ms; 0: none"`
	Attempt    int    `json:"attempt"     doc:"deliveries made"`
	Replay     int    `json:"replay"      doc:"how often it had been replayed before it died"`
	Reason     string `json:"reason"`
	DiedAt     int64  `json:"died_at"     doc:"Unix ms"`
	ReplayedAt int64  `json:"replayed_at" doc:"Unix ms; 0: not replayed"`
	ReplayedBy string `json:"replayed_by,omitempty" doc:"who asked for it: name of the token, or user@host"`
	// Content is nil if it was not requested.
	*Content
}

// Content is a task's key, value and headers. Bytes beyond UTF-8 are in the base64 field instead.
// If both fields are null, the value is Kafka's null.
type Content struct {
	Key         *string  `json:"key"                    required:"false" doc:"text; null: see key_base64, or null"`
	KeyBase64   string   `json:"key_base64,omitempty"`
	Value       *string  `json:"value"                  required:"false" doc:"text, JSON too: \"{\\\"a\\\":1}\"; null: see value_base64, or null"`
	ValueBase64 string   `json:"value_base64,omitempty"`
	Headers     []Header `json:"headers"                required:"false" doc:"the business's own, in their order: [{\"key\":\"name\",\"value\":\"text\"}]"`
}

// Header is one of the business's own headers.
type Header struct {
	Key         string  `json:"key"`
	Value       *string `json:"value"                  required:"false"`
	ValueBase64 string  `json:"value_base64,omitempty"`
}

// NewContent converts a task's key, value and headers.
func NewContent(b schemas.Body) *Content {
	c := &Content{Headers: make([]Header, 0, len(b.Headers))}
	c.Key, c.KeyBase64 = text(b.Key)
	c.Value, c.ValueBase64 = text(b.Value)
	for _, h := range b.Headers {
		shown := Header{Key: strings.ToValidUTF8(h.Key, "\uFFFD")}
		shown.Value, shown.ValueBase64 = text(h.Value)
		c.Headers = append(c.Headers, shown)
	}
	return c
}

func text(b []byte) (*string, string) {
	switch {
	case b == nil:
		return nil, ""
	case !utf8.Valid(b):
		return nil, base64.StdEncoding.EncodeToString(b)
	}
	s := string(b)
	return &s, ""
}

// Bytes returns the key, value and headers. The error is a *FieldError with the field's name.
func (c *Content) Bytes() (key, value []byte, headers []kgo.RecordHeader, err error) {
	if key, err = raw("key", c.Key, c.KeyBase64); err != nil {
		return nil, nil, nil, err
	}
	if value, err = raw("value", c.Value, c.ValueBase64); err != nil {
		return nil, nil, nil, err
	}
	for i, h := range c.Headers {
		v, err := raw(fmt.Sprintf("headers[%d].value", i), h.Value, h.ValueBase64)
		if err != nil {
			return nil, nil, nil, err
		}
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: v})
	}
	return key, value, headers, nil
}

// FieldError is a mistake in a field of Content.
type FieldError struct{ Field, Value, Problem string }

func (e *FieldError) Error() string { return e.Field + " " + e.Problem }

func raw(field string, text *string, encoded string) ([]byte, error) {
	switch {
	case text != nil && encoded != "":
		return nil, &FieldError{field + "_base64", encoded, "stands beside " + field + ": send one of them"}
	case text != nil:
		return []byte(*text), nil
	case encoded == "":
		return nil, nil
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, &FieldError{field + "_base64", encoded, "is not base64: use the standard alphabet, padded"}
	}
	return b, nil
}

func newLetter(d task.DeadLetter, content bool) Letter {
	l := Letter{ID: d.ID, Kind: d.Kind, Topic: d.Topic, TaskID: d.TaskID, Due: d.Due, Attempt: d.Attempt, Replay: d.Replay,
		Reason: strings.ToValidUTF8(d.Reason, "\uFFFD"), DiedAt: d.DiedAt, ReplayedAt: d.ReplayedAt}
	if !content {
		return l
	}
	decode := schemas.DecodeBody
	if d.Kind == schemas.KindRejected {
		decode = schemas.DecodeRejected
	}
	body, err := decode(d.Body)
	if err != nil {
		// Show the raw bytes: nothing else is left.
		body = schemas.Body{Value: d.Body}
		l.Reason += " (its stored content cannot be read: " + err.Error() + ")"
	}
	l.Content, l.Tag = NewContent(body), body.Settings.Tag
	return l
}

func readLetters(ctx context.Context, st *store.Store, ids []int64, content bool) ([]Letter, error) {
	dead, err := letters.New(st).Read(ctx, ids, content)
	out := make([]Letter, 0, len(dead))
	for _, d := range dead {
		out = append(out, newLetter(d, content))
	}
	return out, err
}

// Show returns one letter, or ErrNotFound.
func Show(ctx context.Context, st *store.Store, id int64) (Letter, error) {
	found, err := readLetters(ctx, st, []int64{id}, true)
	if err != nil {
		return Letter{}, err
	}
	if len(found) == 0 {
		return Letter{}, ErrNotFound
	}
	return found[0], nil
}
