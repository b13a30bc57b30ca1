package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

func TestNotReplayable(t *testing.T) {
	letter := DeadLetter{Seq: 7, Kind: schemas.KindDead, Topic: "orders", TaskID: "a", Body: []byte("body")}
	with := func(change func(d *DeadLetter)) DeadLetter {
		d := letter
		change(&d)
		return d
	}
	newer := func(state State, version int64) *Task {
		return &Task{Seq: 8, Topic: letter.Topic, ID: letter.TaskID, State: state, Version: version}
	}
	for name, c := range map[string]struct {
		letter DeadLetter
		cur    *Task
		ph     Phase
		want   string // "": it can be replayed
	}{
		"nothing is known":            {letter: letter, ph: Ended},
		"its own task":                {letter: letter, cur: &Task{Seq: 7, Topic: letter.Topic, ID: letter.TaskID, State: StateDead, Version: 5}, ph: Ended},
		"a newer one was delivered":   {letter: letter, cur: newer(StateLine, -1), ph: Ended},
		"the last replay":             {letter: with(func(d *DeadLetter) { d.Replay = MaxReplays - 1 }), ph: Ended},
		"its body is in its row":      {letter: with(func(d *DeadLetter) { d.Body = nil }), cur: &Task{Seq: 7, Topic: letter.Topic, ID: letter.TaskID, State: StateDead}, ph: Ended},
		"its body is gone":            {letter: with(func(d *DeadLetter) { d.Body = nil }), cur: newer(StateLine, -1), ph: Ended, want: "body is gone"},
		"a rejected request":          {letter: with(func(d *DeadLetter) { d.Kind = schemas.KindRejected }), ph: Ended, want: "a rejected request"},
		"a second time":               {letter: with(func(d *DeadLetter) { d.ReplayedAt = 1 }), ph: Ended, want: "replayed already"},
		"too often":                   {letter: with(func(d *DeadLetter) { d.Replay = MaxReplays }), ph: Ended, want: "replayed 10 times"},
		"a newer one is pending":      {letter: letter, cur: newer(StateLine, -1), ph: Pending, want: "under way"},
		"a newer one is in flight":    {letter: letter, cur: newer(StateLine, -1), ph: InFlight, want: "under way"},
		"a newer one waits":           {letter: letter, cur: newer(StateReport, -1), ph: Between, want: "under way"},
		"a newer one was cancelled":   {letter: letter, cur: newer(StateCancelled, -1), ph: Ended, want: "was cancelled"},
		"a version was cancelled":     {letter: letter, cur: newer(StateTombstone, 3), ph: Ended, want: "was cancelled"},
		"a newer version is known":    {letter: letter, cur: newer(StateLine, 3), ph: Ended, want: "of version 3"},
		"another topic's":             {letter: letter, cur: &Task{Seq: 8, Topic: "another", ID: letter.TaskID}, ph: Ended, want: "same hash"},
		"another id's":                {letter: letter, cur: &Task{Seq: 8, Topic: letter.Topic, ID: "another"}, ph: Ended, want: "same hash"},
		"a rejected one of a live id": {letter: with(func(d *DeadLetter) { d.Kind = schemas.KindRejected }), cur: newer(StateLine, -1), ph: Pending, want: "a rejected request"},
	} {
		t.Run(name, func(t *testing.T) {
			got := NotReplayable(c.letter, c.cur, c.ph)
			if c.want == "" {
				require.Empty(t, got)
			} else {
				require.Contains(t, got, c.want)
			}
		})
	}
}

func TestReplayed(t *testing.T) {
	body := schemas.EncodeBody(nil, []byte("k"), []byte("v"), nil, schemas.DefaultSettings())
	d := DeadLetter{Seq: 7, Topic: "orders", TaskID: "a", Due: 3, Attempt: 5, Replay: 2, Body: body}
	want := Task{Seq: 7, Slot: slots.Of("orders", []byte("k"), "a", testSlots), Pos: testNow, Class: ClassRetried, Due: testNow, Replay: 3, Version: -1,
		Created: testNow, Topic: "orders", ID: "a", Body: body}
	require.Equal(t, want, *Replayed(d, nil, slots.Even(testSlots), testNow))
	want.Version = 4
	require.Equal(t, want, *Replayed(d, &Task{Seq: 8, Version: 4}, slots.Even(testSlots), testNow), "the version that is known stays known")
	d.Body = nil
	require.Equal(t, want, *Replayed(d, &Task{Seq: 7, Version: 4, Body: body}, slots.Even(testSlots), testNow), "the row has the body that the letter could not keep")
}
