package task

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/notyet/notyet/schemas"
)

// Unread is a task's memory of the latest unreadable report about it.
type Unread struct {
	Number int32 // see SendNumber: of the latest delivery that was known then
	At     int64 // Unix ms
	Reason string
}

// maxUnread is how much of a reason is kept, in bytes.
const maxUnread = 500

// unread tells of an unreadable report, and changes nothing. It tells once for each delivery of the
// task: however many such reports come, there are no more events and writes than deliveries.
func unread(cur *Task, reason string, now int64) Verdict {
	v := Verdict{Next: cur}
	if cur == nil || cur.MadeByCancel() {
		return v
	}
	u := Unread{SendNumber(cur.Replay, cur.Attempt), now, schemas.CutUTF8(reason, maxUnread)}
	if cur.Unread.At > 0 && cur.Unread.Number >= u.Number {
		return v
	}
	v.Unread = u
	v.Event = u.event(cur)
	return v
}

func (u Unread) event(t *Task) schemas.Event {
	_, attempt := SplitSendNumber(u.Number)
	e := schemas.Event{Topic: t.Topic, ID: t.ID, State: schemas.StateRejected, Due: t.Due, Attempt: attempt, Kind: schemas.KindReport, Reason: u.Reason}
	if attempt > 0 {
		e.Lateness = schemas.LatenessUnknown
	}
	return e
}

// Encode returns the row's bytes; none for the zero value.
func (u Unread) Encode() []byte {
	if u.At == 0 {
		return []byte{}
	}
	return fmt.Appendf(nil, "%d %d %s", u.Number, u.At, u.Reason)
}

// DecodeUnread reads what Encode wrote. Anything else is the zero value.
func DecodeUnread(b []byte) (u Unread) {
	parts := strings.SplitN(string(b), " ", 3)
	if len(parts) < 3 {
		return u
	}
	number, _ := strconv.ParseInt(parts[0], 10, 32)
	at, _ := strconv.ParseInt(parts[1], 10, 64)
	return Unread{int32(number), at, parts[2]}
}
