package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/admin"
	"github.com/notyet/notyet/task"
)

// BenchmarkPages is how long each page takes with 200,000 tasks of a hundred targets, due within a day, 20,000 cancelled ones, 2,000 dead
// letters and 1,000 policies. It tells the bytes of each page too.
func BenchmarkPages(b *testing.B) {
	w := newWorld(b, true)
	const tasks, batch = 200_000, 1000
	begin := time.Now()
	for first := 0; first < tasks; first += batch {
		var all []task.Change
		for i := first; i < first+batch; i++ {
			c := w.request(fmt.Sprintf("orders-%d", i%100), fmt.Sprint("order-", i), []byte(`{"amount":42}`))
			c.Request.Due = begin.Add(time.Minute + time.Duration(i)*24*time.Hour/tasks).UnixMilli()
			if i%10 == 0 {
				c.Request.Settings.Tag = "campaign"
			}
			all = append(all, c)
		}
		w.apply(all...)
		all = nil
		for i := first; i < first+batch/10; i++ {
			c := w.request(fmt.Sprintf("orders-%d", i%100), fmt.Sprint("order-", i), nil)
			c.Request.Op = schemas.OpCancel
			all = append(all, c)
		}
		w.apply(all...)
	}
	for i := range 2000 {
		w.die(task.DeadLetter{Topic: fmt.Sprintf("orders-%d", i%100), TaskID: fmt.Sprint("dead-", i), Kind: schemas.KindRejected, Reason: fmt.Sprintf("the value %d is no amount", i), DiedAt: begin.UnixMilli() - int64(i)*1000})
	}
	for i := range admin.MaxPolicies {
		_, err := admin.New(w.store).SetPolicy(b.Context(), fmt.Sprintf("orders-%d", i), 1, func(admin.Policy) admin.Policy { return admin.Policy{Paused: i%10 == 0, Rate: 1} })
		require.NoError(b, err)
	}
	operator := w.as("operate")
	for _, path := range append(append([]string{}, everyPage...), taskPath("orders-1", "order-101"), "/find?q=order-150101", "/find?q=nobody", "/find?tag=campaign", "/find?topic=orders-1", "/?topic=orders-1") {
		b.Run(path, func(b *testing.B) {
			size := 0
			for b.Loop() {
				resp, text := operator.get(path)
				require.Less(b, resp.StatusCode, http.StatusBadRequest, text)
				size = len(text)
			}
			b.ReportMetric(float64(size), "B/page")
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/page")
		})
	}
}
