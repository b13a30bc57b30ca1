package scanner

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/letters"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
	"github.com/notyet/notyet/test/lettertest"
)

// refusing is a database that refuses some records as too long, and their dead letters as long as they have a body.
type refusing struct {
	intake.Intake
	offsets    []int64
	lettersToo bool
	tries      atomic.Int32
}

func (d *refusing) Apply(ctx context.Context, b intake.Batch, now func() int64) (intake.Applied, error) {
	d.tries.Add(1)
	for _, c := range b.Changes {
		_, offset := task.SplitSeq(c.Seq)
		if slices.Contains(d.offsets, offset) && (c.Request != nil || d.lettersToo && len(c.Rejected.Body) > 0) {
			return intake.Applied{}, fmt.Errorf("storing: %w", &mysql.MySQLError{Number: 1406, Message: "Data too long for column 'body'"})
		}
	}
	return d.Intake.Apply(ctx, b, now)
}

func TestARecordThatTheDatabaseRefusesBecomesADeadLetterAlone(t *testing.T) {
	f := newFixture(t)
	for i, lettersToo := range []bool{false, true} {
		s := f.scanner(f.store, Config{})
		t.Cleanup(s.asks.Close)
		s.group.Close() // it joins the group by itself, and would forget the source that is set here
		st := f.store
		db := &refusing{Intake: intake.New(st), offsets: []int64{0, 617, 618, 999}, lettersToo: lettersToo}
		s.worker.applier = db
		key := partitionKey{schemas.TopicIntake, int32(i)}
		src, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, key.partition, 0)
		require.NoError(t, err)
		s.parts.sources[key] = &src
		left, err := s.worker.storeStretches(t.Context(), []stretch{asksAt(&reading{key: key}, 0, 1000)})
		require.NoError(t, err)
		require.Empty(t, left)
		require.Less(t, int(db.tries.Load()), 150, "the neighbours wait for that many transactions")
		after, err := intake.New(st).Source(t.Context(), key.topic, [16]byte{1}, key.partition, 0)
		require.NoError(t, err)
		require.EqualValues(t, 1000, after.Next)
		letters, err := lettertest.All(t.Context(), letters.New(st), letters.Filter{})
		require.NoError(t, err)
		letters = letters[i*len(db.offsets):]
		require.Len(t, letters, len(db.offsets))
		for i, d := range letters {
			require.Equal(t, task.Seq(src.ID, db.offsets[i]), d.Seq)
			require.Equal(t, schemas.KindRejected, d.Kind)
			require.Contains(t, d.Reason, "Data too long")
			require.Equal(t, lettersToo, len(d.Body) == 0)
		}
		for _, id := range []string{"1", "616", "619", "998"} {
			_, err := look.New(st).Get(t.Context(), "orders", id)
			require.NoError(t, err)
		}
	}
}
