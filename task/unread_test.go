package task

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

func decideUnread(cur *Task, ph Phase) Verdict {
	return Decide(cur, ph, Change{Seq: 8, Report: &schemas.Report{Topic: "orders", ID: "a"}, Unread: "notyet-status is missing: a report needs it"}, slots.Even(testSlots), testNow)
}

// A report that cannot be read changes nothing, whatever the task is at, and is told once for each delivery.
func TestDecideUnread(t *testing.T) {
	require.Equal(t, Verdict{}, decideUnread(nil, Ended))
	tombstone := &Task{State: StateTombstone, Slot: OutOfLine}
	require.Equal(t, Verdict{Next: tombstone}, decideUnread(tombstone, Ended), "no task of this id is known")
	for ph := Pending; ph <= Unsure; ph++ {
		cur, _ := stored(ph, StateReport, -1)
		cur.Attempt = 2
		v := decideUnread(cur, ph)
		require.Same(t, cur, v.Next)
		require.False(t, v.Wait)
		require.Nil(t, v.Dead)
		require.Equal(t, schemas.Event{Topic: "orders", ID: "a", State: schemas.StateRejected, Due: cur.Due, Attempt: 2, Lateness: schemas.LatenessUnknown,
			Kind: schemas.KindReport, Reason: "notyet-status is missing: a report needs it"}, v.Event)
		cur.Unread = v.Unread
		require.Equal(t, Verdict{Next: cur}, decideUnread(cur, ph), "once")
		cur.Attempt++
		require.NotEmpty(t, decideUnread(cur, ph).Event, "of the next delivery again")
		cur.Replay, cur.Attempt = 1, 0
		require.NotEmpty(t, decideUnread(cur, ph).Event)
	}
}

func TestNotesInTheRow(t *testing.T) {
	require.NotNil(t, EncodeNotes())
	require.Equal(t, []byte{}, EncodeNotes(Note{}))
	for _, notes := range [][]Note{nil, {{1, 2, ""}}, {{SendNumber(3, 4), 1_700_000_000_000, "notyet-status \"O K\" is none"}, {5, 6, "and\nmore"}}} {
		require.Equal(t, notes, DecodeNotes(EncodeNotes(notes...)))
	}
	for _, broken := range []string{"", "x", "1 2"} {
		require.Empty(t, DecodeNotes([]byte(broken)))
	}
	require.Equal(t, "a b", NewNote(0, 1, 2, "a\x00b").Reason)
	var failures []Note
	for n := range maxFailures + 2 {
		kept := Failed(failures, NewNote(0, n+1, 1_700_000_000_000, strings.Repeat("é", 4000)))
		require.Equal(t, kept, Failed(kept, NewNote(0, n+1, 1_800_000_000_000, "again")), "once for each attempt")
		failures = kept
	}
	require.Equal(t, []int{maxFailures, 3, maxFailures + 2}, []int{len(failures), int(failures[0].Number), int(failures[maxFailures-1].Number)})
	require.LessOrEqual(t, len(EncodeNotes(failures...)), 2800, "their column holds no more")
	cur, _ := stored(Between, StateReport, -1)
	v := Decide(cur, Between, Change{Report: &schemas.Report{Topic: "orders", ID: "a"}, Unread: strings.Repeat("é", 4000)}, slots.Even(testSlots), testNow)
	require.LessOrEqual(t, len(EncodeNotes(v.Unread)), 600, "its column holds no more")
}
