package watching

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/test/program"
	"github.com/notyet/notyet/test/recordtest"
)

// load is some of everything that a pipeline does, good and bad.
type load struct {
	t        *testing.T
	client   *kgo.Client
	receiver *httptest.Server // of callbacks
	dead     string           // an origin that nobody listens at
	rounds   int
}

func newLoad(t *testing.T, broker string) *load {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	l := &load{t: t, client: client, receiver: httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), dead: "http://" + program.FreeAddr(t)}
	t.Cleanup(l.receiver.Close)
	l.publish(
		request("timer", schemas.HeaderOp, "timer", schemas.HeaderTopic, "orders", schemas.HeaderEvery, "1s"),
		request("alone", schemas.HeaderOp, "timer", schemas.HeaderTopic, "orders", schemas.HeaderEvery, "1s", schemas.HeaderAck, "report", schemas.HeaderOverlap, "skip"),
	)
	return l
}

func (l *load) publish(records ...*kgo.Record) {
	l.t.Helper()
	require.NoError(l.t, l.client.ProduceSync(l.t.Context(), records...).FirstErr())
}

// request is a record for the intake; headers are pairs.
func request(id string, headers ...string) *kgo.Record {
	return &kgo.Record{Topic: schemas.TopicIntake, Key: []byte(id), Value: []byte(`{"order":1}`), Headers: recordtest.Headers(append(headers, schemas.HeaderID, id)...)}
}

// round publishes one task of each fate. What is reported on was delivered in an earlier round.
func (l *load) round() {
	l.rounds++
	id := func(what string) string { return fmt.Sprint(what, "-", l.rounds) }
	orders, now := []string{schemas.HeaderTopic, "orders"}, []string{schemas.HeaderDelay, "0s"}
	with := func(more ...string) []string { return slices.Concat(orders, now, more) }
	records := []*kgo.Record{
		request(id("reported"), with(schemas.HeaderAck, "report")...),
		request(id("silent"), with(schemas.HeaderAck, "report", schemas.HeaderAckTimeout, "100ms", schemas.HeaderMaxAttempts, "1")...),
		request(id("rejected"), with("notyet-dely", "3s")...),
		request(id("expired"), slices.Concat(orders, []string{schemas.HeaderAt, "2020-01-01T00:00:00Z", schemas.HeaderMaxLateness, "1s"})...),
		request(id("unknown"), schemas.HeaderOp, "cancel", schemas.HeaderTopic, "orders"),
		request(id("called"), slices.Concat(now, []string{schemas.HeaderURL, l.receiver.URL})...),
		request(id("lost"), slices.Concat(now, []string{schemas.HeaderURL, l.dead, schemas.HeaderMaxAttempts, "1"})...),
		{Topic: schemas.TopicReports, Value: []byte("no report")},
	}
	for i := range 20 {
		records = append(records, request(id(fmt.Sprint("task", i)), with()...))
	}
	for earlier := max(1, l.rounds-20); earlier < l.rounds; earlier++ {
		records = append(records, schemas.EncodeReport(schemas.TopicReports, schemas.Report{
			Topic: "orders", ID: fmt.Sprint("reported-", earlier), Attempt: 1, Status: schemas.StatusFail, RetryAfter: -1, Error: "out of paper"}))
	}
	l.publish(records...)
}
