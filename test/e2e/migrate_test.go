package e2e

import (
	"encoding/base64"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/scanner"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/recordtest"
)

// The ladder of retries, in Go and with Spring.
func ladder(payments [3]string) []string {
	twice, never, works := payments[0], payments[1], payments[2]
	return []string{
		twice + " failed at attempt 1", twice + " failed at attempt 2", twice + " is charged at attempt 3",
		never + " failed at attempt 1", never + " failed at attempt 2", never + " failed at attempt 3", never + " failed at attempt 4",
		never + " is a dead letter after attempt 4: bank busy", works + " is charged at attempt 1",
	}
}

// TestMigrationSamples runs the samples of docs/migrate, which check themselves too.
func TestMigrationSamples(t *testing.T) {
	if os.Getenv("NOTYET_LONG") == "" && os.Getenv("NOTYET_CLIENTS") != "1" {
		t.Skip("NOTYET_LONG=1 runs it: it compiles each sample")
	}
	onOneDatabase(t, func(t *testing.T, s *stack) {
		sc, err := scanner.New(s.scannerDeps(), scanner.Config{
			Group: s.name, Intake: []string{s.intake}, Reports: s.reports, Results: s.results, Limits: schemas.Limits{Aliases: []schemas.Alias{schemas.AliasETF1}},
		})
		require.NoError(t, err)
		s.start(sc.Run)
		s.dispatcher("migrate")
		env := []string{"NOTYET_INTAKE=" + s.intake, "NOTYET_REPORTS=" + s.reports, "SAMPLE_PREFIX=" + s.name + "-"}
		for _, c := range []struct {
			name    string
			ordered bool
			want    []string
		}{
			{"retry-topics", false, ladder([3]string{"card-1", "card-2", "card-3"})},
			{"sleeping-consumer", true, []string{"mail to quick@example.com", "mail to slow@example.com"}},
			{"cron-table", true, []string{"remind of order-4", "remind of order-1", "remind of order-2"}},
			{"asynq", false, []string{"attempt 1 for ada", "attempt 2 for ada", "attempt 3 for ada", "attempt 1 for nobody"}},
			{"etf1", true, []string{"target of vid-1: online", "target of vid-3: offline"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				lines := strings.Split(strings.TrimSpace(s.example(t, "../../examples/migrate/"+c.name, env, "go", "run", ".")), "\n")
				require.ElementsMatch(t, c.want, lines)
				if c.ordered {
					require.Equal(t, c.want, lines, "in the order of their due times")
				}
			})
		}
		t.Run("spring", func(t *testing.T) {
			mayInstall(t)
			out := s.example(t, "../../examples/migrate", env, "./run.sh", "spring")
			lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool { return !strings.Contains(line, "attempt") }) // the logger warns, too
			require.ElementsMatch(t, ladder([3]string{"busy twice", "never works", "works"}), lines)
		})
	})
}

// mayInstall is for tests that fetch clients and libraries: the long ones of CI.
func mayInstall(t *testing.T) {
	t.Helper()
	if (os.Getenv("CI") != "true" || os.Getenv("NOTYET_LONG") == "") && os.Getenv("NOTYET_CLIENTS") != "1" {
		t.Skip("it installs clients or libraries: set NOTYET_CLIENTS=1 to run it")
	}
}

// TestDebeziumOutbox publishes what Debezium's outbox router makes of a row that schedules and a row that cancels.
func TestDebeziumOutbox(t *testing.T) {
	mayInstall(t)
	s := newStack(t, false)
	s.scanner()
	due := time.Now().Add(time.Hour).UnixMilli()
	records := routed(t, s.example(t, "../../examples/migrate", nil, "./run.sh", "debezium", strconv.FormatInt(due, 10)))
	require.Len(t, records, 2)
	for _, r := range records {
		r.Timestamp = time.Now()
		require.Equal(t, "notyet.intake", r.Topic)
		r.Topic = s.intake
	}
	got, err := schemas.Decode(records[0], schemas.Limits{})
	require.NoError(t, err)
	require.Equal(t, "reminders", got.Topic)
	require.Equal(t, "order-4711", got.ID)
	require.Equal(t, due, got.Due)
	require.Equal(t, int64(1), got.Version)
	require.Equal(t, "customer-7", string(got.Key))
	require.Equal(t, []byte("{}\x00\xff"), got.Value)
	require.Equal(t, []kgo.RecordHeader{{Key: "id", Value: []byte("4d47e190-0402-4048-bc2c-89dd54343cdc")}}, got.Headers, "Debezium's own")

	null := *records[0] // a NULL in a column becomes a header without a value
	null.Headers = slices.Clone(null.Headers)
	for i := range null.Headers {
		if null.Headers[i].Key == schemas.HeaderVersion {
			null.Headers[i].Value = nil
		}
	}
	_, err = schemas.Decode(&null, schemas.Limits{})
	require.ErrorContains(t, err, schemas.HeaderVersion)

	require.NoError(t, s.client.ProduceSync(t.Context(), records...).FirstErr())
	s.read(s.reader([]string{s.results}), time.Minute, func(r *kgo.Record) bool {
		require.NotEqual(t, string(schemas.StateRejected), recordtest.Header(r, schemas.HeaderState), "%s", r.Value)
		return string(r.Key) == "order-4711" && recordtest.Header(r, schemas.HeaderState) == string(schemas.StateCancelled)
	})
}

// routed parses what Route.java prints.
func routed(t *testing.T, out string) (records []*kgo.Record) {
	t.Helper()
	text := func(word string) []byte {
		encoded, ok := strings.CutPrefix(word, "=")
		if !ok {
			return nil
		}
		b, err := base64.StdEncoding.DecodeString(encoded)
		require.NoError(t, err)
		return b
	}
	for line := range strings.Lines(out) {
		switch words := strings.Fields(line); {
		case len(words) == 4 && words[0] == "record":
			records = append(records, &kgo.Record{Topic: words[1], Key: text(words[2]), Value: text(words[3])})
		case len(words) == 3 && words[0] == "header":
			last := records[len(records)-1]
			last.Headers = append(last.Headers, kgo.RecordHeader{Key: words[1], Value: text(words[2])})
		}
	}
	return records
}
