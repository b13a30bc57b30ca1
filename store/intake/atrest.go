package intake

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/task"
)

// ErrUnderWay: a delivery of the targets is under way.
var ErrUnderWay = errors.New("a delivery is under way")

var errUnsureSlots = fmt.Errorf("%w: the dispatchers have not compared their slots with the database yet", ErrUnderWay)

// asideAhead is longer than a sending without an answer is set aside for.
const asideAhead = 15 * time.Second

// AtRest fails with ErrUnderWay if a task of the targets is claimed, or may be, or was set aside
// because its broker has not answered: it would not follow. Nobody claims one until the transaction
// ends. topic is the only target; "": there may be several.
func (in Moves) AtRest(ctx context.Context, tx *sql.Tx, topic string, matches func(topic string) bool) error {
	rows, err := in.h.Slots(ctx, tx)
	if err != nil {
		return err
	}
	set := handle.SlotSet{}
	for _, s := range rows {
		set.Add(s.Slot)
	}
	slots, err := in.h.LockSlots(ctx, tx, set, handle.LockShared)
	if err != nil {
		return err
	}
	only, lanes := "", []any(nil)
	if topic != "" {
		key, err := in.h.LaneKeyIn(ctx, tx)
		if err != nil {
			return err
		}
		for _, lane := range key.Lanes(topic) {
			lanes = append(lanes, int64(lane))
		}
		only = " AND lane IN (" + tables.Marks(len(lanes)) + ")"
	}
	for _, s := range rows {
		s := slots[s.Slot]
		if s.Unsure {
			return errUnsureSlots
		}
		if s.Claimed <= s.Done {
			continue
		}
		topics, err := tables.Column[string](ctx, tx, "SELECT DISTINCT topic FROM tasks WHERE slot = ? AND pos > ? AND pos <= ?"+only, append([]any{s.Slot, s.Done, s.Claimed}, lanes...)...)
		if err != nil {
			return fmt.Errorf("looking for what is claimed: %w", err)
		}
		if topic, some := firstMatching(topics, matches); some {
			return fmt.Errorf("%w: of the target %s", ErrUnderWay, topic)
		}
	}
	now, err := in.h.TimeIn(ctx, tx)
	if err != nil {
		return err
	}
	topics, err := tables.Column[string](ctx, tx, "SELECT DISTINCT t.topic FROM tasks t JOIN slots s ON s.slot = t.slot WHERE t.pos > s.done AND t.pos <= ? AND t.state = ? AND t.idle <> t.pos"+only,
		append([]any{now.Add(asideAhead).UnixMilli(), int(task.StateRetry)}, lanes...)...)
	if err != nil {
		return fmt.Errorf("looking for what a broker has not answered: %w", err)
	}
	if topic, some := firstMatching(topics, matches); some {
		return fmt.Errorf("%w: its broker has not answered, of the target %s", ErrUnderWay, topic)
	}
	return nil
}

func firstMatching(topics []string, matches func(topic string) bool) (string, bool) {
	if i := slices.IndexFunc(topics, matches); i >= 0 {
		return topics[i], true
	}
	return "", false
}
