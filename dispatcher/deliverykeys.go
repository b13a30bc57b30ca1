package dispatcher

import (
	"context"

	"github.com/notyet/notyet/store"
	"github.com/notyet/notyet/task"
)

// sources returns idempotency keys from intake positions and send numbers.
type sources struct {
	store *store.Store
	known map[int]store.Source
}

func (s *sources) deliveryKey(ctx context.Context, seq int64, number int) (string, error) {
	src, offset := task.SplitSeq(seq)
	known, ok := s.known[src]
	for failures := 1; !ok; failures++ {
		all, err := s.store.DeliverySources(ctx)
		if err == nil {
			s.known = make(map[int]store.Source, len(all))
			for _, a := range all {
				s.known[a.ID] = a
			}
			if known, ok = s.known[src]; !ok {
				return "", store.ErrNotFound
			}
			break
		}
		if sleep(ctx, pauseAfter(failures)); ctx.Err() != nil {
			return "", err
		}
	}
	return known.DeliveryKey(offset, number), nil
}
