package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/internal/access"
	"github.com/notyet/notyet/internal/loop"
	"github.com/notyet/notyet/internal/share"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// CancelMany selects the tasks to cancel. Without a filter, All must be true.
type CancelMany struct {
	Topic    string  `json:"topic,omitempty"     doc:"only this target topic" minLength:"1"`
	IDPrefix string  `json:"id_prefix,omitempty" doc:"only ids that begin so"                                       maxLength:"255" minLength:"1"`
	Prefix   string  `json:"id-prefix,omitempty" doc:"the same as id_prefix"                                        maxLength:"255" hidden:"true" minLength:"1"`
	Tag      string  `json:"tag,omitempty"       doc:"only tasks with this tag"                                         maxLength:"64"   minLength:"1"`
	From     Instant `json:"from,omitzero"       doc:"only what is due at or after: RFC 3339 or Unix ms"`
	To       Instant `json:"to,omitzero"         doc:"only what is due before"`
	All      bool    `json:"all,omitempty"       doc:"without a filter: really all of them"`
	DryRun   bool    `json:"dry_run,omitempty"   doc:"only count what matches, and change nothing"`
	Cursor   string  `json:"cursor,omitempty"    doc:"that of the answer before, to go on where its time had ended" maxLength:"1000" minLength:"1"`
}

// CancelledMany is the result of one request.
type CancelledMany struct {
	Cancelled int64  `json:"cancelled"        doc:"no delivery follows"`
	TooLate   int64  `json:"too_late"         doc:"were or will be delivered, or are dead"`
	Matched   int64  `json:"matched"          doc:"tasks that the filter selects, of those that this request came to"`
	Cursor    string `json:"cursor,omitempty" doc:"the request's time has ended: send it again with this cursor; absent: that were all"`
	Partial
}

func (r *CancelMany) selects() bool {
	return r.Topic != "" || r.IDPrefix != "" || r.Tag != "" || r.From != (Instant{}) || r.To != (Instant{})
}

// check finds mistakes, and makes one of both names of the prefix.
func (r *CancelMany) check() error {
	if r.Prefix != "" && r.IDPrefix != "" && r.Prefix != r.IDPrefix {
		return wrong("id_prefix", r.IDPrefix, "stands beside another id-prefix: send one of them")
	}
	r.IDPrefix = cmp.Or(r.IDPrefix, r.Prefix)
	if err := cmp.Or(checkTag(r.Tag), checkTopic(r.Topic)); err != nil {
		return err
	}
	switch {
	case len(r.IDPrefix) > schemas.MaxIDLen:
		return wrong("id_prefix", r.IDPrefix, fmt.Sprintf("is longer than an id, which has at most %d bytes", schemas.MaxIDLen))
	case r.To != (Instant{}) && r.To.Millis() <= r.From.Millis():
		return wrong("to", r.To.String(), "is not after from: write a later time in Unix ms")
	case !r.selects() && !r.All:
		return wrong("all", "", "no filter: name what is meant, or set all to true")
	case r.selects() && r.All:
		return wrong("all", "true", "stands beside a filter: send one of them")
	}
	return nil
}

// CancelsConfig bounds cancels. Scanners decide, by way of a topic of notyet's own.
type CancelsConfig struct {
	Topic string                                     // takes the cancels
	Kafka func(context.Context) (*kgo.Client, error) // returns a client that writes it; required
	Tasks int                                        // that a record cancels, in one transaction. From a thousand on, a statement needs a temporary table
	Ahead int                                        // records of one request that may wait to be decided
}

// ErrUndecided means: no scanner has decided cancels in time. Scanners will as soon as they can.
var ErrUndecided = errors.New("the cancels are published, and no scanner has decided them in time: see that scanners of this version run, and send the request again, which is harmless")

// CancelMany cancels the stored and matching tasks, a page at a time, in turn with other callers'
// requests. The cancels of a page are published as one record, and the answer comes after the
// scanners' decisions. After the time of the request, the answer has a cursor. After an error,
// published cancels are decided all the same; the audit log has their number.
func (l *Local) CancelMany(ctx context.Context, r CancelMany) (out CancelledMany, err error) {
	return l.cancelMany(ctx, r, time.Now().Add(l.budget(ctx)), func(context.Context) error { return nil })
}

// cancelMany publishes nothing while moving fails.
func (l *Local) cancelMany(ctx context.Context, r CancelMany, ends time.Time, moving func(context.Context) error) (out CancelledMany, err error) {
	if err := r.check(); err != nil {
		return out, err
	}
	r.Topic = schemas.TargetName(r.Topic)
	after, err := parseCursor(r.Cursor, r.Tag)
	if err != nil {
		return out, err
	}
	c := &canceller{Local: l, dry: r.DryRun, ends: ends, moving: moving, filter: look.ListFilter{
		Topic: r.Topic, IDPrefix: r.IDPrefix, Tag: r.Tag, From: r.From.Millis(), To: r.To.Millis(), Limit: l.Cancels.Tasks, After: after,
	}}
	ctx = admin.Auditing(ctx, admin.AuditEntry{What: "cancel many", Topic: r.Topic, Detail: admin.AuditDetail(map[string]any{
		"topic": r.Topic, "id_prefix": r.IDPrefix, "tag": r.Tag, "from": r.From.Millis(), "to": r.To.Millis(), "all": r.All,
	})})
	if err = c.run(ctx); err != nil && c.out.Cancelled > 0 {
		err = fmt.Errorf("after %d tasks were cancelled: %w", c.out.Cancelled, err)
	}
	return c.out, err
}

// kafkaError is of Kafka, and says nothing of the database.
type kafkaError struct{ error }

func (e kafkaError) Unwrap() error { return e.error }

type canceller struct {
	*Local
	filter       look.ListFilter
	dry          bool                        // counts only
	ends         time.Time                   // no page is published from then on
	moving       func(context.Context) error // why listed tasks may leave the database
	installation string                      // of all records, as audit is; empty before the first one
	audit        int64
	ahead        []page // published and not decided
	stopped      bool   // no more pages are published
	out          CancelledMany
}

// page is a published page of the list. more is where the next one begins.
type page struct {
	look.CancelRecord
	more *look.ListPlace
}

// run publishes pages as long as there is time, and collects the decisions.
func (c *canceller) run(ctx context.Context) error {
	for turn := ctx; ; {
		for len(c.ahead) < c.Cancels.Ahead && !c.stopped {
			err := c.next(ctx, turn)
			if errors.Is(err, share.ErrTurn) && turn != ctx {
				c.stopped = true
			} else if err != nil {
				return err
			}
			turn = share.Wait(ctx)
		}
		if len(c.ahead) == 0 {
			c.out.Cursor = formatCursor(c.filter.After)
			return nil
		}
		first := c.ahead[0]
		cancelled, tooLate, decided, err := look.New(c.store).Cancelled(ctx, first.CancelRecord)
		switch {
		case err != nil:
			return err
		case decided:
			c.ahead = c.ahead[1:]
			c.out.Cancelled, c.out.TooLate = c.out.Cancelled+cancelled, c.out.TooLate+tooLate
			c.out.Matched = c.out.Cancelled + c.out.TooLate
			c.out.Cursor = formatCursor(first.more)
		case !time.Now().Before(c.ends.Add(cancelPatience)):
			if c.out.Cursor == "" {
				return ErrUndecided
			}
			return nil // with the cursor behind what is decided
		default:
			if err := loop.Rest(ctx, cancelLook); err != nil {
				return err
			}
		}
	}
}

// next publishes the cancels of the next page with tasks. A dry run counts instead: each of its
// pages is one of the few lists allowed at a time, with a rest after it, and delays neither cancels
// nor lists.
func (c *canceller) next(ctx, turn context.Context) error {
	bound, cancel := context.WithDeadline(ctx, c.ends.Add(cancelPatience))
	defer cancel()
	list := func(ctx context.Context) (task.Cancels, error) {
		many, more, err := look.New(c.store).ListCancels(ctx, c.filter)
		if err == nil {
			c.filter.After, c.stopped = more, more == nil || !time.Now().Before(c.ends)
		}
		return many, err
	}
	if began := time.Now(); c.dry {
		found, err := listing(turn, c.Local, list)
		if c.out.Matched += int64(len(found.Tasks)); err != nil || c.stopped {
			return err
		}
		return loop.Rest(ctx, time.Since(began))
	}
	leave, err := c.changes.Take(turn, access.From(ctx).Account(), 1)
	if err != nil {
		return err
	}
	defer leave()
	if err := c.moving(bound); err != nil {
		return err
	}
	many, err := list(bound)
	if err != nil || len(many.Tasks) == 0 {
		return err
	}
	if c.installation == "" {
		if c.audit, err = admin.New(c.store).BeginAudit(ctx); err == nil {
			c.installation, err = c.store.Installation(ctx)
		}
		if err != nil {
			return err
		}
	}
	many.Installation, many.Audit = c.installation, c.audit
	data, err := json.Marshal(many)
	if err != nil {
		return err
	}
	client, err := c.Cancels.Kafka(bound)
	if err != nil {
		return kafkaError{err}
	}
	if err := c.moving(bound); err != nil {
		return err
	}
	record := &kgo.Record{Topic: c.Cancels.Topic, Value: data}
	if err := produce(bound, client, record, func() {}); err != nil {
		return kafkaError{fmt.Errorf("publishing cancels to %s: %w", c.Cancels.Topic, err)}
	}
	if err := c.moving(bound); err != nil { // a move that begins later waits for what is published
		return err
	}
	c.ahead = append(c.ahead, page{look.CancelRecord{Topic: record.Topic, Partition: record.Partition, Offset: record.Offset, Tasks: many.Tasks}, c.filter.After})
	return nil
}

// CancelMany cancels the matching tasks. The answer may have a cursor, as the service's.
func (c *Client) CancelMany(ctx context.Context, r CancelMany) (CancelledMany, error) {
	return post[CancelledMany](ctx, c, "/tasks/cancel-many", r, nil)
}

type cancelManyInput struct {
	Async
	Body CancelMany
}

func (in *cancelManyInput) scope(c access.Caller) error { return withinTopics(c, in.Body.Topic) }

func (s *server) cancelMany(ctx context.Context, in *cancelManyInput) (out CancelledMany, err error) {
	err = s.cursors.page(ctx, "cancel-many", &in.Body.Cursor, &out.Cursor, func() (err error) {
		out, err = s.fleet.CancelMany(ctx, in.Body)
		return err
	})
	return out, err
}
