package dispatcher

import (
	"context"
	"fmt"

	"github.com/notyet/notyet/store/intake"
	"github.com/notyet/notyet/task"
)

// sources returns idempotency keys from intake positions and send numbers.
type sources struct {
	intake intake.Intake
	known  map[int]intake.Source
}

// learn reads the sources anew if one of the tasks came from another than is known. Sources are only ever added.
func (s *sources) learn(ctx context.Context, rows []task.Task) error {
	for i := range rows {
		src, _ := task.SplitSeq(rows[i].Seq)
		if _, ok := s.known[src]; ok {
			continue
		}
		all, err := s.intake.DeliverySources(ctx)
		if err != nil {
			return err
		}
		s.known = make(map[int]intake.Source, len(all))
		for _, a := range all {
			s.known[a.ID] = a
		}
		return nil
	}
	return nil
}

func (s *sources) DeliveryKey(seq int64, number int) (string, error) {
	src, offset := task.SplitSeq(seq)
	known, ok := s.known[src]
	if !ok {
		return "", fmt.Errorf("it came from source %d, which table sources does not have", src)
	}
	return known.DeliveryKey(offset, number), nil
}
