package shards

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/notyet/notyet/internal/wrap"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/store/internal/handle"
	"github.com/notyet/notyet/store/internal/tables"
	"github.com/notyet/notyet/store/look"
	"github.com/notyet/notyet/task"
)

// followHistory names, in table meta, how far the history of a rule's targets has followed.
const followHistory = "follow.history"

// historyAt returns the place behind which the history has not left yet; nil: it begins.
func (s Shards) historyAt(ctx context.Context, token string) (*look.ListPlace, error) {
	data, err := tables.ReadMeta(ctx, s.h.Reads(), followHistory)
	text, ours := strings.CutPrefix(string(data), token)
	if err != nil || !ours {
		return nil, wrap.Err(err, "reading how far ended tasks have followed")
	}
	var at look.ListPlace
	return &at, json.Unmarshal([]byte(text), &at)
}

func (s Shards) noteHistory(ctx context.Context, token string, at *look.ListPlace) error {
	if at == nil {
		return nil
	}
	text, err := json.Marshal(at)
	if err == nil {
		err = s.h.Transact(ctx, func(tx *sql.Tx) error {
			if err := handle.EnsureMeta(ctx, tx, []byte(followHistory), 0); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "UPDATE meta SET data = ? WHERE name = ?", append([]byte(token), text...), []byte(followHistory))
			return err
		})
	}
	return wrap.Err(err, "noting how far ended tasks have followed")
}

// historyFollows has ended tasks of the targets follow, the latest first: an id is not used again,
// and no lower version, because the targets have moved. A delivered task with a default id stays.
func (f follower) historyFollows(ctx context.Context) error {
	return f.shipping(ctx, func(ctx context.Context, left func()) error {
		return f.eachEnded(ctx, func(page []int64, next *look.ListPlace) (more bool, err error) {
			if err := leave(ctx, f, intake.Moves.TakeOutEnded, page); err != nil {
				return false, err
			}
			left()
			return true, f.former.noteHistory(ctx, f.rule.Token, next)
		})
	})
}

// eachEnded reads the ended tasks of the targets that follow, page by page, while more are wanted.
// It goes on where it is noted: no more end in the former home.
func (f follower) eachEnded(ctx context.Context, see func(page []int64, next *look.ListPlace) (more bool, err error)) error {
	sources, err := f.former.intake().DeliverySources(ctx)
	if err != nil {
		return err
	}
	partitions := make(map[int]intake.Source, len(sources))
	for _, s := range sources {
		partitions[s.ID] = s
	}
	tasks := look.ListFilter{Topic: f.rule.Literal(), Allowed: f.leaves, Limit: 2 * followPage, Ended: true}
	if tasks.After, err = f.former.historyAt(ctx, f.rule.Token); err != nil {
		return err
	}
	for {
		page, err := look.New(f.former.h.Ref()).List(ctx, tasks)
		if err != nil {
			return err
		}
		var seqs []int64
		for _, t := range page.Tasks {
			source, offset := task.SplitSeq(t.Seq)
			from := partitions[source]
			if t.State != "delivered" || t.ID != schemas.DefaultID(from.Topic, from.Partition, offset) {
				seqs = append(seqs, t.Seq)
			}
		}
		if more, err := see(seqs, page.More); err != nil || !more {
			return err
		}
		if tasks.After = page.More; tasks.After == nil {
			return nil
		}
	}
}
