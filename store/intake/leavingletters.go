package intake

import (
	"context"
	"fmt"
	"slices"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// TakeOutLetters has dead letters leave that can be replayed, and returns how many left. Others
// stay as history.
func (in Moves) TakeOutLetters(ctx context.Context, f Following, arrived int64, ids []int64) (n int, err error) {
	pieces, err := in.pieces(ctx, ids, "SELECT id, LENGTH(body) + LENGTH(reason) FROM dead_letters WHERE id")
	if err != nil {
		return 0, fmt.Errorf("reading how large %d dead letters are: %w", len(ids), err)
	}
	n, err = leaveIn(ctx, in, f, arrived, pieces, (*leaving).takeOutLetters)
	return n, wrap.Err(err, "having dead letters leave")
}

func (l *leaving) takeOutLetters(ctx context.Context, ids []int64) (int, error) {
	slices.Sort(ids)
	letters, err := tables.FetchIn(ctx, l.tx, tables.ScanDead, "SELECT "+tables.DeadColumns+" FROM dead_letters WHERE id", ids, " ORDER BY id"+l.h.Locking(handle.LockExclusive))
	if err != nil {
		return 0, err
	}
	letters = slices.DeleteFunc(letters, func(d task.DeadLetter) bool { return !Follows(d) })
	var gone []int64
	for _, d := range letters {
		gone = append(gone, d.ID)
	}
	for i := range letters {
		l.left = append(l.left, leaver{Letter: &letters[i]})
	}
	if err := tables.ExecIn(ctx, l.tx, "DELETE FROM dead_letters WHERE id", gone); err != nil {
		return 0, err
	}
	return len(gone), l.write(ctx)
}

// Follows tells whether a dead letter follows its target. One whose content only its task's row has
// stays with the row.
func Follows(d task.DeadLetter) bool {
	return d.ReplayedAt == 0 && d.Kind != schemas.KindRejected && len(d.Body) > 0
}
