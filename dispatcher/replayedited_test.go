package dispatcher

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
	"github.com/notyet/notyet/test/recordtest"
)

// A task that was replayed with another content is delivered as that, with its number of replays, a first attempt and a key that no other
// content has. A report of the former delivery says nothing of it.
func TestEditedReplayIsDelivered(t *testing.T) {
	for name, topic := range map[string]string{"its topic": "orders", "another topic": "others"} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, 2, "orders", "others")
			orders, others := f.read("orders"), f.read("others")
			d := f.start(f.elect(5), t.TempDir(), Config{MemberID: "one"})
			f.eventually("owned", func() bool { return d.owned() > 0 })
			f.schedule(ask("orders", "a", time.Now(), schemas.HeaderAck, "report", schemas.HeaderMaxAttempts, "1"))
			f.eventually("it is delivered", func() bool { return orders.count() == 1 })
			first := orders.all()[0]
			f.report(schemas.Report{Topic: "orders", ID: "a", Attempt: 1, Status: schemas.StatusFail})
			var dead []task.DeadLetter
			f.eventually("it is dead", func() bool {
				var err error
				dead, err = lettertest.All(t.Context(), letters.New(f.store), letters.Filter{})
				require.NoError(t, err)
				return len(dead) == 1
			})
			report, _, err := intake.New(f.store).ReplayEdited(t.Context(), dead[0].ID, task.Edit{Topic: topic, Body: func(b *schemas.Body) { b.Key, b.Value = nil, []byte("better") }}, "me", nowMillis())
			require.NoError(t, err)
			require.Empty(t, report[0].Skipped)
			to, before := orders, 1
			if topic == "others" {
				to, before = others, 0
			}
			f.eventually("it is delivered again", func() bool { return to.count() == before+1 })
			r := to.all()[before]
			require.Nil(t, r.Key)
			require.Equal(t, "better", string(r.Value))
			require.Equal(t, []string{"a", "1", "1"}, []string{recordtest.Header(r, schemas.HeaderID), recordtest.Header(r, schemas.HeaderAttempt), recordtest.Header(r, schemas.HeaderReplay)})
			require.NotEmpty(t, recordtest.Header(r, schemas.HeaderDelivery))
			require.NotEqual(t, recordtest.Header(first, schemas.HeaderDelivery), recordtest.Header(r, schemas.HeaderDelivery))
			f.report(schemas.Report{Topic: topic, ID: "a", Attempt: 1, Status: schemas.StatusFail, Delivery: recordtest.Header(first, schemas.HeaderDelivery)})
			f.report(schemas.Report{Topic: topic, ID: "a", Attempt: 1, Status: schemas.StatusOK, Delivery: recordtest.Header(r, schemas.HeaderDelivery)})
			all, err := lettertest.All(t.Context(), letters.New(f.store), letters.Filter{Replayed: true})
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.NotZero(t, all[0].ReplayedAt)
		})
	}
}
