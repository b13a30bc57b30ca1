package shards_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/shardmap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/task"
)

// BenchmarkMove moves a target with 10,000 tasks to and fro. All of them follow: none is due soon.
func BenchmarkMove(b *testing.B) {
	const tasks = 10_000
	d := open(b, 2)
	src := d.sources[0]
	for from := range tasks / 500 {
		var changes []task.Change
		for i := range 500 {
			n := int64(from*500 + i)
			r := &schemas.Request{Topic: "orders", ID: fmt.Sprint(n), GivenID: true, Version: schemas.NoVersion, Due: clock + 3_600_000 + n, Settings: schemas.DefaultSettings(), Key: []byte(fmt.Sprint(n)), Value: make([]byte, 200)}
			changes = append(changes, task.Change{Seq: task.Seq(src.ID, n), Request: r})
		}
		require.NoError(b, d.store(b, 0, 0, changes...))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		for n := range d.stores { // what the other has passed
			for d.sources[n].Next < tasks+int64(i) {
				m, err := d.Databases[n].Map(b.Context())
				require.NoError(b, err)
				require.NoError(b, d.store(b, n, m.Version))
			}
		}
		b.StartTimer()
		_, err := d.Move(b.Context(), shardmap.Rule{Pattern: "*", Former: i % 2, Shard: 1 - i%2})
		require.NoError(b, err)
		require.NoError(b, d.Follow(b.Context()))
	}
	b.ReportMetric(tasks*float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
