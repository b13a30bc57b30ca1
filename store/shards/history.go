package shards

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"

	"github.com/notyet/notyet/internal/shardmap"
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
func (d Databases) historyFollows(ctx context.Context, rule shardmap.Rule) error {
	return d.shipping(ctx, rule, func(ctx context.Context, left func()) error {
		return d.eachEnded(ctx, rule, func(page []int64, next *look.ListPlace) (more bool, err error) {
			if err := d.leaveEnded(ctx, rule, page); err != nil {
				return false, err
			}
			left()
			return true, d[rule.Former].noteHistory(ctx, rule.Token, next)
		})
	})
}

// eachEnded reads the ended tasks of the targets that follow, page by page, while more are wanted.
// It goes on where it is noted: no more end in the former home.
func (d Databases) eachEnded(ctx context.Context, rule shardmap.Rule, see func(page []int64, next *look.ListPlace) (more bool, err error)) error {
	former := d[rule.Former]
	sources, err := former.intake().DeliverySources(ctx)
	if err != nil {
		return err
	}
	partitions := make(map[int]intake.Source, len(sources))
	for _, s := range sources {
		partitions[s.ID] = s
	}
	f := look.ListFilter{Topic: rule.Literal(), Allowed: rule.Matches, Limit: 2 * followPage, Ended: true}
	if f.After, err = former.historyAt(ctx, rule.Token); err != nil {
		return err
	}
	for {
		page, err := look.New(former.h.Ref()).List(ctx, f)
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
		if f.After = page.More; f.After == nil {
			return nil
		}
	}
}

func (d Databases) leaveEnded(ctx context.Context, rule shardmap.Rule, seqs []int64) error {
	if len(seqs) == 0 {
		return nil
	}
	_, err := d.leave(ctx, rule, func(in intake.Moves, arrived int64) (int, error) {
		return in.TakeOutEnded(ctx, following(rule), arrived, seqs)
	})
	return err
}
