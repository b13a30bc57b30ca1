package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/notyet/notyet/internal/sendlog"
)

// ReadSendLog adds all entries of the send log in dir, which is of one database. name is the name of
// its dispatcher, which must have stopped.
func (h *History) ReadSendLog(ctx context.Context, name, dir string, database int, log *zap.Logger) error {
	sent, err := sendlog.Open(dir, sendlog.Config{}, log)
	if err != nil {
		return fmt.Errorf("opening the send log of %s: %w", name, err)
	}
	defer func() { _ = sent.Close() }()
	if database > 0 {
		name = fmt.Sprintf("%s/%d", name, database)
	}
	err = sent.Replay(ctx, time.UnixMilli(0), func(e sendlog.Entry) error {
		s := Sent{Log: name, At: e.At}
		if i := e.Intent; i != nil {
			s.Seq, s.Attempt, s.Topic, s.ID, s.Slot, s.Epoch = i.Seq, int(i.Attempt), i.Topic, i.ID, database*DatabaseSlots+int(i.Slot), i.Epoch
		} else {
			o := e.Outcome
			s.Outcome, s.Seq, s.Attempt, s.Acked, s.Partition, s.Offset = true, o.Seq, int(o.Attempt), o.Acked, o.Partition, o.Offset
		}
		h.Sent = append(h.Sent, s)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the send log of %s: %w", name, err)
	}
	return nil
}

// ForgetSent drops what send logs have of targets that are judged elsewhere. An outcome does not name its target.
func (h *History) ForgetSent(elsewhere func(topic string) bool) {
	theirs := map[int64]bool{}
	for _, s := range h.Sent {
		theirs[s.Seq] = theirs[s.Seq] || elsewhere(s.Topic)
	}
	h.Sent = slices.DeleteFunc(h.Sent, func(s Sent) bool { return theirs[s.Seq] })
}
