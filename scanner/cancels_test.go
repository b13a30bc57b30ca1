package scanner

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// cancels is a record for tasks of the topic orders as a list shows them.
func (f *fixture) cancels(prefix string) task.Cancels {
	f.Helper()
	many, _, err := look.New(f.store).ListCancels(f.Context(), look.ListFilter{Topic: "orders", IDPrefix: prefix, Limit: 1000})
	require.NoError(f, err)
	many.Installation, err = f.store.Installation(f.Context())
	require.NoError(f, err)
	return many
}

func (f *fixture) publishCancels(many ...task.Cancels) {
	f.Helper()
	for _, m := range many {
		data, err := json.Marshal(m)
		require.NoError(f, err)
		f.publish(&kgo.Record{Topic: schemas.TopicCancels, Value: data})
	}
}

func (f *fixture) ended(state task.State) int {
	return f.count("SELECT COUNT(*) FROM tasks WHERE state = ?", int(state))
}

// Cancels of many are decided record by record. What is no record of notyet's is ignored.
func TestCancelsOfMany(t *testing.T) {
	f := newFixture(t)
	f.start(f.store, Config{})
	for i := range 30 {
		f.publish(ask(fmt.Sprint("a", i), int32(i%intakeParts)), ask(fmt.Sprint("b", i), 0))
	}
	f.eventually("all are stored", func() bool { return f.ended(task.StateLine) == 60 })
	first, second := f.cancels("a"), f.cancels("b")
	second.Tasks = second.Tasks[:10]
	for _, bad := range []string{"", "{}", `{"tasks":[{"ident":"AA==","seq":1}]}`, `{"tasks":[{"ident":"AAAAAAAAAAAAAAAAAAAAAA==","seq":-1}]}`, "\xff"} {
		f.publish(&kgo.Record{Topic: schemas.TopicCancels, Value: []byte(bad)})
	}
	others := f.cancels("b")
	others.Installation = "another, which shares the topic"
	f.publishCancels(others, first, second, first)
	f.eventually("all are decided", func() bool {
		return f.count("SELECT COALESCE(SUM(next_offset), 0) FROM sources WHERE topic = ?", []byte(schemas.TopicCancels)) == 9
	})
	require.Equal(t, 40, f.ended(task.StateCancelled))
	require.Equal(t, 20, f.ended(task.StateLine))
	require.Zero(t, f.count("SELECT COUNT(*) FROM dead_letters"))
	requests := map[string]int{}
	for _, e := range f.events(func(all []schemas.Event) bool { return len(all) == 70 }) {
		require.Equal(t, schemas.StateCancelled, e.State)
		requests[e.Request]++
	}
	require.Equal(t, map[string]int{"notyet.cancels/0/6": 30, "notyet.cancels/0/7": 10, "notyet.cancels/0/8": 30}, requests)
}

// Cancels that come later hold up nobody, even where one worker does all the work.
func TestCancelsThatComeLater(t *testing.T) {
	f := newFixture(t)
	s := f.scanner(f.store, Config{Workers: 1})
	s.worker.kept = func(context.Context) (map[intake.Place]intake.Extent, error) {
		return map[intake.Place]intake.Extent{{Topic: schemas.TopicIntake}: {To: 10}}, nil
	}
	f.run(s)
	f.publish(ask("a", 0))
	f.eventually("it is stored", func() bool { return f.ended(task.StateLine) == 1 })
	many := f.cancels("a")
	source, offset := task.SplitSeq(many.Tasks[0].Seq)
	require.Zero(t, offset)
	many.Tasks[0].Seq = task.Seq(source, 3) // the database will have it in a moment
	f.publishCancels(many)
	for i := range 2 {
		f.publish(ask(fmt.Sprint("other", i), 1))
		f.eventually("others are stored", func() bool { return f.ended(task.StateLine) == 2+i })
	}
	require.Zero(t, f.count("SELECT COALESCE(SUM(next_offset), 0) FROM sources WHERE topic = ?", []byte(schemas.TopicCancels)))
	for i := range 3 {
		f.publish(ask(fmt.Sprint("more", i), 0))
	}
	f.eventually("they are decided", func() bool {
		return f.count("SELECT COALESCE(SUM(next_offset), 0) FROM sources WHERE topic = ?", []byte(schemas.TopicCancels)) == 1
	})
	require.Zero(t, f.ended(task.StateCancelled), "it has other content")
}

// An installation that migrate has not made the topic for takes requests, and says what is missing.
func TestWithoutATopicOfCancels(t *testing.T) {
	f := newFixture(t)
	s := f.start(f.store, Config{Cancels: "missing"})
	f.publish(ask("a", 0))
	f.eventually("it is stored", func() bool { return f.ended(task.StateLine) == 1 })
	f.eventually("it is said", func() bool {
		err := s.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "fetching missing/-1: UNKNOWN_TOPIC_OR_PARTITION")
	})
}

func TestCancelsAreTakenAlone(t *testing.T) {
	q := newQueue(10, "apart")
	of := func(topic string, first int64) stretch {
		s := stretchOf(0, first, 2)
		s.reading = &reading{key: partitionKey{topic, 0}}
		return s
	}
	all := []stretch{of("t", 0), of("apart", 0), of("u", 0), of("apart", 2)}
	q.put(t.Context(), all)
	first := q.take(100)
	require.Equal(t, []stretch{all[0], all[2]}, first)
	second := q.take(100)
	require.Equal(t, []stretch{all[1]}, second)
	q.done(second)
	require.Equal(t, []stretch{all[3]}, q.take(100))
}

// Kafka has lost the requests by the time a restored database reads again: what is cancelled is not to come.
func TestCatchUpOfCancelsWhoseTasksAreGone(t *testing.T) {
	ctx := t.Context()
	for name, lost := range map[string]struct {
		sources string
		lose    func(*testing.T, *kadm.Client)
	}{
		"deleted": {"UPDATE sources SET next_offset = 0", func(t *testing.T, adm *kadm.Client) {
			ends, err := adm.ListEndOffsets(ctx, schemas.TopicIntake)
			require.NoError(t, err)
			_, err = adm.DeleteRecords(ctx, ends.Offsets())
			require.NoError(t, err)
		}},
		"with their intake, which is younger than the backup and was made anew": {"DELETE FROM sources", func(t *testing.T, adm *kadm.Client) {
			_, err := adm.DeleteTopics(ctx, schemas.TopicIntake)
			require.NoError(t, err)
			_, err = adm.CreateTopics(ctx, intakeParts, 1, nil, schemas.TopicIntake)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.cancelsOf20()
			f.sql("DELETE FROM tasks", lost.sources)
			lost.lose(t, kadm.NewClient(f.client))
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			require.NoError(t, f.scanner(f.store, Config{}).CatchUp(ctx, func(int64) {}))
		})
	}
}

// cancelsOf20 has a scanner store 20 tasks and cancel 11 of them.
func (f *fixture) cancelsOf20() {
	f.Helper()
	before := f.start(f.store, Config{})
	f.publish(asks("a", 20)...)
	f.eventually("all are stored", func() bool { return f.ended(task.StateLine) == 20 })
	f.publishCancels(f.cancels("a1"))
	f.eventually("they are decided", func() bool { return f.ended(task.StateCancelled) == 11 })
	before.end()
}
