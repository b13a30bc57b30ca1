package scanner

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// remember keeps what the database has by now, and forget makes it all that the database knows.
func (f *fixture) remember() {
	f.Helper()
	for _, table := range []string{"tasks", "sources", "outbox"} {
		f.sql("DROP TABLE IF EXISTS was_"+table, "CREATE TABLE was_"+table+" AS SELECT * FROM "+table)
	}
}

func (f *fixture) forget() {
	f.Helper()
	for _, table := range []string{"tasks", "sources", "outbox"} {
		f.sql("DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM was_"+table)
	}
}

// catchUp has a scanner of its own store all that a topic has.
func (f *fixture) catchUp(topic string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), bound)
	defer cancel()
	require.NoError(f, f.scanner(f.store, Config{Read: []string{topic}}).CatchUp(ctx, func(int64) {}))
}

// Requests that came after cancels of many come after them also where a database that was set back has forgotten both, and the intake is
// read first. Requests that came before come before them.
func TestRequestsThatCameAfterCancelsOfMany(t *testing.T) {
	merging := []string{schemas.HeaderIfExists, "merge", schemas.HeaderMerge, "append"}
	value := func(r *kgo.Record, v string) *kgo.Record { r.Value = []byte(v); return r }
	own := func(r *kgo.Record) *kgo.Record { // the client writes into records
		return &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	for name, c := range map[string]struct {
		before, after *kgo.Record
		state, body   string
	}{
		"keep":                   {nil, ask("a", 0, schemas.HeaderIfExists, "keep"), "pending", "body"},
		"merge":                  {nil, value(ask("a", 0, merging...), "2"), "pending", "[2]"},
		"fire":                   {nil, record(schemas.TopicIntake, 0, schemas.HeaderTopic, "orders", schemas.HeaderID, "a", schemas.HeaderOp, "fire"), "cancelled", ""},
		"another's":              {nil, ask("b", 0), "cancelled", ""},
		"keep that came before":  {ask("a", 0, schemas.HeaderIfExists, "keep"), ask("b", 0), "cancelled", ""},
		"merge that came before": {value(ask("a", 0, merging...), "2"), ask("b", 0), "cancelled", ""},
	} {
		for _, knows := range []string{"nothing of them", "the task", "all but the last"} {
			t.Run(name+" knows "+knows, func(t *testing.T) {
				f := newFixture(t)
				first := value(ask("a", 0, merging...), "1")
				at := func(stage string) {
					if stage == knows {
						f.remember()
					}
				}
				f.publish(ask("other", 0))
				f.catchUp(schemas.TopicIntake)
				at("nothing of them")
				f.publish(first)
				if f.catchUp(schemas.TopicIntake); c.before != nil {
					f.publish(own(c.before))
				}
				at("the task")
				f.catchUp(schemas.TopicIntake)
				many := f.cancels("a")
				require.Len(t, many.Tasks, 1)
				f.publishCancels(many)
				f.catchUp(schemas.TopicCancels)
				require.Equal(t, 1, f.ended(task.StateCancelled))
				at("all but the last")
				f.publish(own(c.after), ask("more", 0))
				f.catchUp(schemas.TopicIntake)
				same := func(when string) {
					is, err := look.New(f.store).Get(t.Context(), "orders", "a")
					require.NoError(t, err)
					require.Equal(t, c.state, is.State, when)
					if c.body == "" {
						return
					}
					body, err := schemas.DecodeBody(is.Body)
					require.NoError(t, err)
					require.Equal(t, c.body, string(body.Value), when)
				}
				same("at first")
				f.forget()
				f.catchUp(schemas.TopicIntake)
				same("once it is read again")
				f.catchUp(schemas.TopicCancels)
				same("once the cancels are read again")
			})
		}
	}
}

// A reading holds some records of cancels, however many are undecided.
func TestMoreCancelsThanAReadingHolds(t *testing.T) {
	f := newFixture(t)
	const tasks = 2*mostAhead + 5
	f.remember()
	for i := range tasks {
		id := fmt.Sprint("a", i)
		f.publish(ask(id, 0))
		f.catchUp(schemas.TopicIntake)
		f.publishCancels(f.cancels(id))
		f.catchUp(schemas.TopicCancels)
		f.publish(ask(id, 0, schemas.HeaderIfExists, "keep"))
	}
	f.forget()
	f.catchUp(schemas.TopicIntake)
	f.catchUp(schemas.TopicCancels)
	require.Equal(t, tasks, f.ended(task.StateLine), "all that were kept")
}

// Where Kafka does not say what is cancelled, all partitions of the intake together do not wait for it for long.
func TestIntakeWithoutWordOfCancels(t *testing.T) {
	f := newFixture(t)
	s := f.scanner(f.store, Config{Workers: 1})
	asked := make(chan struct{}, 100)
	s.worker.undecided = func(ctx context.Context, _ func(int64, task.Cancels) bool) error {
		asked <- struct{}{}
		<-ctx.Done() // after aheadPatience
		return ctx.Err()
	}
	for part := range int32(intakeParts) {
		f.publish(ask(fmt.Sprint("a", part), part))
	}
	f.run(s)
	f.eventually("they are stored", func() bool { return f.ended(task.StateLine) == intakeParts })
	require.Len(t, asked, 1)
}
