package task

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
	"github.com/notyet/notyet/timer"
)

// Version 0 is a version: it is compared, kept and forgotten as any other.
func TestVersionZero(t *testing.T) {
	version := func(n int64) func(r *schemas.Request) { return func(r *schemas.Request) { r.Version = n } }
	for name, c := range map[string]struct {
		op        schemas.Op
		ph        Phase
		state     State
		known     int64 // of the task
		version   int64 // of the request
		answer    schemas.State
		wantState State
		want      int64
	}{
		"below 5":                             {schemas.OpSchedule, Pending, StateLine, 5, 0, schemas.StateStale, StateLine, 5},
		"a tie":                               {schemas.OpSchedule, Pending, StateLine, 0, 0, schemas.StateScheduled, StateLine, 0},
		"a tie with a cancel":                 {schemas.OpSchedule, Ended, StateTombstone, 0, 0, schemas.StateStale, StateTombstone, 0},
		"of a task without one":               {schemas.OpSchedule, Pending, StateLine, -1, 0, schemas.StateScheduled, StateLine, 0},
		"none after 0":                        {schemas.OpSchedule, Pending, StateLine, 0, -1, schemas.StateScheduled, StateLine, 0},
		"cancel":                              {schemas.OpCancel, Pending, StateLine, -1, 0, schemas.StateCancelled, StateTombstone, 0},
		"cancel what was cancelled without":   {schemas.OpCancel, Ended, StateCancelled, -1, 0, schemas.StateCancelled, StateTombstone, 0},
		"cancel a cancelled one of the same":  {schemas.OpCancel, Ended, StateCancelled, 3, 3, schemas.StateCancelled, StateTombstone, 3},
		"cancel a later version":              {schemas.OpCancel, Ended, StateTombstone, 5, 6, schemas.StateCancelled, StateTombstone, 6},
		"cancel the same version":             {schemas.OpCancel, Ended, StateTombstone, 5, 5, schemas.StateCancelled, StateTombstone, 5},
		"cancel without one keeps it":         {schemas.OpCancel, Pending, StateLine, 5, -1, schemas.StateCancelled, StateCancelled, 5},
		"fire":                                {schemas.OpFire, Pending, StateLine, -1, 0, schemas.StateFired, StateLine, 0},
		"fire without one keeps it":           {schemas.OpFire, Pending, StateLine, 5, -1, schemas.StateFired, StateLine, 5},
		"fire a later version":                {schemas.OpFire, Pending, StateLine, 5, 7, schemas.StateFired, StateLine, 7},
		"stop what was stopped, a later one":  {schemas.OpStop, Ended, StateHalted, 5, 6, schemas.StateStopped, StateHalted, 6},
		"stop what was stopped, the same one": {schemas.OpStop, Ended, StateHalted, 5, 5, schemas.StateStopped, StateHalted, 5},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := stored(c.ph, c.state, c.known)
			v := Decide(cur, ph, request(c.op, version(c.version)), slots.Even(testSlots), testNow)
			require.Equal(t, c.answer, v.Event.State)
			require.Equal(t, c.wantState, v.Next.State)
			require.Equal(t, c.want, v.Next.Version)
		})
	}
	v := Decide(nil, Ended, request(schemas.OpCancel, version(0)), slots.Even(testSlots), testNow)
	require.Equal(t, schemas.StateCancelled, v.Event.State)
	require.Equal(t, StateTombstone, v.Next.State)
	require.True(t, v.Next.MadeByCancel())
	require.Zero(t, v.Next.Version)
}

// A stale answer says which rule it comes from.
func TestAStaleAnswerSaysHow(t *testing.T) {
	for state, reason := range map[State]string{StateLine: "notyet-version 4 is below the known version 5", StateTombstone: "notyet-version 5 is not above the cancelled or stopped version 5"} {
		cur, ph := stored(Ended, state, 5)
		v := Decide(cur, ph, request(schemas.OpSchedule, func(r *schemas.Request) {
			if r.Version = 4; state == StateTombstone {
				r.Version = 5
			}
		}), slots.Even(testSlots), testNow)
		require.Equal(t, reason, v.Event.Reason)
	}
}

// Whoever wants no events is answered all the same about a cancel or a fire. A rejection always comes.
func TestWhichAnswersAreWanted(t *testing.T) {
	for name, c := range map[string]struct {
		op     schemas.Op
		events schemas.Events
		told   bool
	}{
		"schedule, none":  {schemas.OpSchedule, schemas.EventsNone, false},
		"schedule, final": {schemas.OpSchedule, schemas.EventsFinal, false},
		"schedule, all":   {schemas.OpSchedule, schemas.EventsAll, true},
		"cancel, none":    {schemas.OpCancel, schemas.EventsNone, true},
		"fire, none":      {schemas.OpFire, schemas.EventsNone, true},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := stored(Pending, StateLine, -1)
			v := Decide(cur, ph, request(c.op, func(r *schemas.Request) { r.Settings.Events = c.events }), slots.Even(testSlots), testNow)
			require.Equal(t, c.told, v.Event.State != "")
			require.Zero(t, v.Event.Attempt)
			require.Zero(t, v.Event.Lateness, "nothing was delivered")
		})
	}
}

// A merge goes with a pending task alone. It may be put off until the time that was granted to the first request, and no further.
func TestWhatAMergeMeets(t *testing.T) {
	merge := func(due int64) Change {
		return request(schemas.OpSchedule, func(r *schemas.Request) {
			r.Due, r.Value = due, []byte(`{"n":2}`)
			r.Settings.IfExists, r.Settings.Merge, r.Settings.MaxWait = schemas.Merge, schemas.MergeSum, 3000*time.Millisecond
		})
	}
	for name, c := range map[string]struct {
		ph      Phase
		due     int64
		answer  schemas.State
		want    int64
		created int64
		value   string
	}{
		"within the wait":   {Pending, 3499, schemas.StateMerged, 3499, 500, `{"n":3}`},
		"at its end":        {Pending, 3500, schemas.StateMerged, 3500, 500, `{"n":3}`},
		"beyond it":         {Pending, 3501, schemas.StateMerged, 3500, 500, `{"n":3}`},
		"after a delivery":  {Ended, 3899, schemas.StateScheduled, 3899, 900, `{"n":2}`},
		"likewise, too far": {Ended, 9999, schemas.StateScheduled, 3900, 900, `{"n":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := stored(c.ph, StateLine, -1)
			cur.Body = schemas.EncodeBody(nil, nil, []byte(`{"n":1}`), nil, schemas.DefaultSettings())
			v := Decide(cur, ph, merge(c.due), slots.Even(testSlots), testNow)
			require.Equal(t, c.answer, v.Event.State)
			require.Equal(t, []int64{c.want, c.want, c.created}, []int64{v.Next.Due, v.Next.Pos, v.Next.Created})
			body, err := schemas.DecodeBody(v.Next.Body)
			require.NoError(t, err)
			require.Equal(t, c.value, string(body.Value))
		})
	}
}

// A change is about the task of its topic and its id, not of one of the two.
func TestAChangeIsAboutTopicAndID(t *testing.T) {
	for _, c := range []struct {
		topic, id string
		same      bool
	}{{"orders", "a", true}, {"orders", "b", false}, {"bills", "a", false}} {
		cur, ph := stored(Between, StateReport, -1)
		cur.Attempt = 1
		cur.Body = schemas.EncodeBody(nil, nil, nil, nil, func() schemas.Settings { s := schemas.DefaultSettings(); s.Ack = schemas.AckReport; return s }())
		rep := &schemas.Report{Topic: c.topic, ID: c.id, Attempt: 1, Status: schemas.StatusOK}
		v := Decide(cur, ph, Change{Seq: 8, Report: rep}, slots.Even(testSlots), testNow)
		require.Equal(t, c.same, v.Next != cur)
		v = Decide(cur, ph, request(schemas.OpStop, func(r *schemas.Request) { r.Topic, r.ID = c.topic, c.id }), slots.Even(testSlots), testNow)
		require.Equal(t, map[bool]schemas.State{true: schemas.StateStopped, false: schemas.StateRejected}[c.same], v.Event.State)
	}
}

// What merging costs is what it copies, and a sum costs more.
func TestMergeCost(t *testing.T) {
	old, value := plain("12345"), []byte("123")
	require.Equal(t, []int{0, 3, 8}, []int{mergeCost(old, schemas.MergeLast, value), mergeCost(nil, schemas.MergeAppend, value), mergeCost(old, schemas.MergeAppend, value)})
	require.Equal(t, []int{3 * sumCost, 8 * sumCost}, []int{mergeCost(nil, schemas.MergeSum, value), mergeCost(old, schemas.MergeSum, value)})
}

// Each bound of a merge, at it and beyond it.
func TestBoundsOfMerges(t *testing.T) {
	for _, c := range []struct {
		limit int
		old   *schemas.Body
		taken bool
	}{{6, plain("12"), true}, {5, plain("12"), false}, {2, nil, true}, {0, plain("12"), true}} { // [12,3], and alone [3]
		got, err := mergeValue(c.old, schemas.MergeAppend, []byte("3"), c.limit)
		require.Equal(t, c.taken, err == nil, "%d: %v", c.limit, err)
		require.Equal(t, c.taken, len(got) > 0)
	}
	_, err := mergeValue(plain(strings.Repeat("1", schemas.DefaultMaxValueBytes)), schemas.MergeAppend, []byte("3"), 0)
	require.ErrorContains(t, err, fmt.Sprint(schemas.DefaultMaxValueBytes), "the version before took no limit along")
	_, err = mergeValue(plain("x"), schemas.MergeAppend, []byte("3"), 1)
	require.ErrorContains(t, err, "is not JSON", "what is wrong with the value comes before its size")

	padded := func(n int) string { return `{"n":1` + strings.Repeat(" ", n-7) + "}" }
	for bytes, taken := range map[int]bool{MaxSummed: true, MaxSummed + 1: false} {
		_, err := sumValues(nil, []byte(padded(bytes)))
		require.Equal(t, taken, err == nil)
		_, err = sumValues(plain(padded(bytes)), []byte(`{"n":1}`))
		require.Equal(t, taken, err == nil)
	}
	for number, taken := range map[string]bool{
		strings.Repeat("7", maxDigits): true, strings.Repeat("7", maxDigits+1): false, "1e308": true, "1e309": false, "1e-308": true, "1e-309": false,
	} {
		_, err := sumValues(plain(`{"n":1}`), []byte(`{"n":`+number+`}`))
		require.Equal(t, taken, err == nil, number)
	}
}

// A sum that was merged before is one value, and an array that was sent is none of appended values.
func TestOnlyWhatWasAppendedIsAList(t *testing.T) {
	for name, c := range map[string]struct {
		exists schemas.IfExists
		mode   schemas.MergeMode
		want   string
	}{
		"appended": {schemas.Merge, schemas.MergeAppend, `[1,2]`}, "replaced": {schemas.Merge, schemas.MergeLast, `[[1],2]`}, "not merged": {schemas.Replace, schemas.MergeAppend, `[[1],2]`},
	} {
		b := plain("[1]")
		b.Settings.IfExists, b.Settings.Merge = c.exists, c.mode
		got, err := appendValues(b, []byte("2"))
		require.NoError(t, err)
		require.Equal(t, c.want, string(got), name)
	}
}

// Gaps of one kind with no run between them are one; the latest are remembered.
func TestGapsThatTouchAreOne(t *testing.T) {
	s, err := timer.Parse(timer.Definition{Every: 10 * time.Second, From: 0, Zone: "UTC"})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		last Gap
		from int64
		why  string
		want []Gap
	}{
		"the next run":                   {Gap{10_000, 10_001, WhyMisfire}, 20_000, WhyMisfire, []Gap{{10_000, 20_001, WhyMisfire}}},
		"the same run":                   {Gap{10_000, 10_001, WhyMisfire}, 10_000, WhyMisfire, []Gap{{10_000, 20_001, WhyMisfire}}},
		"up to a run, which is missed":   {Gap{0, 20_000, WhyMisfire}, 20_000, WhyMisfire, []Gap{{0, 20_001, WhyMisfire}}},
		"up to a run, which was made":    {Gap{0, 20_000, WhyMisfire}, 30_000, WhyMisfire, []Gap{{0, 20_000, WhyMisfire}, {30_000, 20_001, WhyMisfire}}},
		"a run lies between":             {Gap{0, 1, WhyMisfire}, 20_000, WhyMisfire, []Gap{{0, 1, WhyMisfire}, {20_000, 20_001, WhyMisfire}}},
		"of another kind":                {Gap{10_000, 10_001, WhyOverlap}, 20_000, WhyMisfire, []Gap{{10_000, 10_001, WhyOverlap}, {20_000, 20_001, WhyMisfire}}},
		"the one before lasts":           {Gap{10_000, 0, WhyMisfire}, 20_000, WhyMisfire, []Gap{{10_000, 0, WhyMisfire}, {20_000, 20_001, WhyMisfire}}},
		"it begins before the one there": {Gap{30_000, 30_001, WhyMisfire}, 20_000, WhyMisfire, []Gap{{30_000, 30_001, WhyMisfire}, {20_000, 20_001, WhyMisfire}}},
	} {
		t.Run(name, func(t *testing.T) {
			tm := &Timer{Gaps: []Gap{c.last}}
			tm.Miss(s, c.from, 20_001, c.why)
			require.Equal(t, c.want, tm.Gaps)
		})
	}
	ends, err := timer.Parse(timer.Definition{Every: 10 * time.Second, From: 0, Until: 10_000, Zone: "UTC"})
	require.NoError(t, err)
	over := &Timer{Gaps: []Gap{{0, 10_001, WhyMisfire}}}
	over.Miss(ends, 90_000, 90_001, WhyMisfire)
	require.Equal(t, []Gap{{0, 90_001, WhyMisfire}}, over.Gaps, "no run follows at all")

	tm := &Timer{}
	for i := range int64(MostGaps + 3) {
		tm.note(Gap{From: i, To: i + 1, Why: WhyOverlap})
	}
	require.Len(t, tm.Gaps, MostGaps)
	require.Equal(t, int64(3), tm.Gaps[0].From, "the latest")
}

// While the number of slots changes a task that is placed anew goes where its key belongs by then; otherwise it stays.
func TestWhereATaskIsPlacedAnew(t *testing.T) {
	key := []byte("key")
	cur, ph := stored(Pending, StateLine, -1)
	cur.Body = schemas.EncodeBody(nil, key, []byte("v"), nil, schemas.DefaultSettings())
	cur.Slot = 3
	fire := request(schemas.OpFire, nil)
	require.Equal(t, 3, Decide(cur, ph, fire, slots.Even(testSlots), testNow).Next.Slot, "where it stands, be it the wrong place")
	for _, split := range [][]bool{nil, {true, true, true, true}} {
		spread := slots.Changing(testSlots, 64, 64, split)
		require.Equal(t, spread.Of("orders", key, "a"), Decide(cur, ph, fire, spread, testNow).Next.Slot)
	}
	cur.Body = []byte{0xff}
	require.Equal(t, 3, Decide(cur, ph, fire, slots.Changing(testSlots, 64, 64, nil), testNow).Next.Slot, "a body that cannot be read")
}

// What a proof says of a task, and when.
func TestProveTellsHowLate(t *testing.T) {
	prove := func(topic string, at int64, refused string) Verdict {
		cur, _ := stored(Pending, StateLine, -1)
		s := schemas.DefaultSettings()
		s.Events = schemas.EventsAll
		cur.Topic, cur.Due, cur.Body = topic, 2_000_000, schemas.EncodeBody(nil, nil, nil, nil, s)
		return Prove(cur, Proof{Attempt: 1, At: at, Refused: refused}, testNow)
	}
	require.Equal(t, int64(250), prove("orders", 2_000_250, "").Event.Lateness)
	require.Zero(t, prove("orders", 1_999_999, "").Event.Lateness, "clocks may differ")
	require.Equal(t, schemas.StateSucceeded, prove("https://shop.example", 2_000_250, "").Event.State)
	refused := prove("https://shop.example", 2_000_250, "answered 410")
	require.Equal(t, schemas.KindCallback, refused.Dead.Kind)
	require.Equal(t, 1, refused.Next.Attempt)
	refused = prove("orders", 2_000_250, "too large")
	require.Equal(t, schemas.KindUndeliverable, refused.Dead.Kind)
	require.Zero(t, refused.Next.Attempt)
}

// A replay goes to the slot of its key, with the body of its letter, or with that of the very task that died.
func TestReplayedBodyAndSlot(t *testing.T) {
	body := func(key string) []byte {
		return schemas.EncodeBody(nil, []byte(key), nil, nil, schemas.DefaultSettings())
	}
	spread := slots.Even(1024)
	died := &Task{Seq: 7, Version: 3, State: StateDead, Slot: OutOfLine, Topic: "orders", ID: "a", Body: body("row")}
	other := &Task{Seq: 8, Version: 4, State: StateDead, Slot: OutOfLine, Topic: "orders", ID: "a", Body: body("other")}
	for name, c := range map[string]struct {
		letter []byte
		cur    *Task
		want   []byte
	}{
		"the letter's":                    {body("letter"), died, body("letter")},
		"the letter's, beside another":    {body("letter"), other, body("letter")},
		"the row's, which died":           {nil, died, body("row")},
		"no other row's":                  {nil, other, nil},
		"the letter's, nothing is there":  {body("letter"), nil, body("letter")},
		"one that is no body stays as is": {[]byte{0xff}, nil, []byte{0xff}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Replayed(DeadLetter{Seq: 7, Topic: "orders", TaskID: "a", Body: c.letter}, c.cur, spread, testNow)
			require.True(t, bytes.Equal(c.want, got.Body))
			slot := 0
			if b, err := schemas.DecodeBody(c.want); err == nil {
				slot = spread.Of("orders", b.Key, "a")
			}
			require.Equal(t, slot, got.Slot)
		})
	}
	other.Version = 0
	require.Contains(t, NotReplayable(DeadLetter{Seq: 7, Topic: "orders", TaskID: "a", Body: body("letter")}, other, Ended), "a newer request, of version 0")
	other.Version = -1
	require.Empty(t, NotReplayable(DeadLetter{Seq: 7, Topic: "orders", TaskID: "a", Body: body("letter")}, other, Ended))
}

// A report ends what is in flight only if it is ok, proves the one delivery that there was, and no event of that delivery is to come first.
func TestAReportOfTheOnlyDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		status    schemas.Status
		delivery  string
		attempt   int
		events    schemas.Events
		ends      bool
		keepsWait bool
	}{
		"ok, proven":                     {schemas.StatusOK, "d", 1, schemas.EventsFinal, true, false},
		"ok, no events":                  {schemas.StatusOK, "d", 1, schemas.EventsNone, true, false},
		"ok, its delivery is told":       {schemas.StatusOK, "d", 1, schemas.EventsAll, false, true},
		"ok, not proven":                 {schemas.StatusOK, "", 1, schemas.EventsFinal, false, true},
		"retry, proven":                  {schemas.StatusRetry, "d", 1, schemas.EventsFinal, false, true},
		"fail, proven":                   {schemas.StatusFail, "d", 1, schemas.EventsFinal, false, true},
		"ok, of an attempt that was not": {schemas.StatusOK, "d", 2, schemas.EventsFinal, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			settings := schemas.DefaultSettings()
			settings.Ack, settings.Events = schemas.AckReport, c.events
			cur, _ := stored(SentOnce, StateLine, -1)
			cur.Body = schemas.EncodeBody(nil, nil, nil, nil, settings)
			rep := &schemas.Report{Topic: "orders", ID: "a", Attempt: c.attempt, Status: c.status, Delivery: c.delivery, RetryAfter: schemas.NoRetryAfter}
			v := Decide(cur, SentOnce, Change{Seq: 8, Report: rep}, slots.Even(testSlots), testNow)
			require.Equal(t, c.keepsWait, v.Wait)
			require.Equal(t, c.ends, v.Next != cur)
			if c.ends {
				require.Equal(t, StateSucceeded, v.Next.State)
				require.Equal(t, 1, v.Next.Attempt)
			}
		})
	}
}

// A proof alone makes no attempt of one that the row does not expect: the report of a task that waits for another attempt's report, or one that
// names no delivery.
func TestAProofIsOfTheNextAttempt(t *testing.T) {
	settings := schemas.DefaultSettings()
	settings.Ack = schemas.AckReport
	for name, c := range map[string]struct {
		state    State
		attempt  int
		delivery string
	}{
		"a report is awaited":    {StateReport, 2, "d"},
		"no delivery is named":   {StateRetry, 2, ""},
		"the one after the next": {StateRetry, 3, "d"},
	} {
		t.Run(name, func(t *testing.T) {
			cur, _ := stored(Between, c.state, -1)
			cur.Attempt, cur.Body = 1, schemas.EncodeBody(nil, nil, nil, nil, settings)
			rep := &schemas.Report{Topic: "orders", ID: "a", Attempt: c.attempt, Status: schemas.StatusOK, Delivery: c.delivery}
			require.Same(t, cur, Decide(cur, Between, Change{Seq: 8, Report: rep}, slots.Even(testSlots), testNow).Next)
		})
	}
}

func TestAnIDThatIsANumberIsOrderedToo(t *testing.T) {
	for _, prefix := range []string{"", "in/0", "/"} {
		a, b := Ident("orders", prefix+"/1"), Ident("orders", prefix+"/2")
		require.Equal(t, a[0], b[0], prefix)
		require.Equal(t, []byte{0, 0, 0, 1}, a[1:5], prefix)
		require.Equal(t, []byte{0, 0, 0, 2}, b[1:5], prefix)
	}
}

// An id that has just room for its source keeps it.
func TestIDWithSourceAtItsBound(t *testing.T) {
	fits, long := strings.Repeat("x", schemas.MaxIDLen-3), strings.Repeat("x", schemas.MaxIDLen-2)
	require.Equal(t, fits+"@16", idWithSource(fits, 16))
	require.Len(t, idWithSource(long, 16), 32+3)
}

// A cancel makes nobody the owner of an id, though it comes first.
func TestACancelOwnsNoID(t *testing.T) {
	cancel := Change{Seq: Seq(17, 5), Request: &schemas.Request{Op: schemas.OpCancel, Topic: "orders", ID: "in/0/5"}}
	own, renamed := RenameTaken(nil, []Change{cancel, {Seq: Seq(16, 5), Request: &schemas.Request{Op: schemas.OpSchedule, Topic: "orders", ID: "in/0/5"}}})
	require.Len(t, own, 2)
	require.Empty(t, renamed)
}

// Of a replayed task whose letters were purged, nothing is known.
func TestHistoryOfAReplayWithoutLetters(t *testing.T) {
	require.Empty(t, History(&Task{Seq: 7, Topic: "o", ID: "a", Replay: 1, Pos: 2000, Due: 2000}, Pending, nil))
}
