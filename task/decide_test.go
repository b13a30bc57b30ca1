package task

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/notyet/notyet/internal/slots"
	"github.com/notyet/notyet/schemas"
)

const (
	testNow   = 1_000_000
	testSlots = 4
)

// stored returns a task that is known, and its phase.
func stored(ph Phase, state State, version int64) (*Task, Phase) {
	t := &Task{Seq: 7, Slot: 1, Pos: 2_000_000, Due: 2_000_000, State: state, Version: version, Created: 500, Topic: "orders", ID: "a",
		Body: schemas.EncodeBody(nil, nil, []byte("old"), nil, schemas.DefaultSettings())}
	if state >= StateCancelled {
		t.Slot = OutOfLine
	}
	return t, ph
}

func request(op schemas.Op, change func(r *schemas.Request)) Change {
	r := &schemas.Request{Op: op, Topic: "orders", ID: "a", GivenID: true, Due: 3_000_000, Accepted: 900, Version: schemas.NoVersion, Value: []byte("new"),
		Settings: schemas.DefaultSettings()}
	r.Settings.Events = schemas.EventsAll
	if change != nil {
		change(r)
	}
	return Change{Seq: 8, Request: r}
}

// What a request does to a task in each phase: see the table in docs/design/protocol.md.
func TestDecideRequests(t *testing.T) {
	ifExists := func(mode schemas.IfExists) func(r *schemas.Request) {
		return func(r *schemas.Request) { r.Settings.IfExists = mode }
	}
	version := func(n int64) func(r *schemas.Request) { return func(r *schemas.Request) { r.Version = n } }
	none := func() (*Task, Phase) { return nil, Ended }
	in := func(ph Phase, state State, version int64) func() (*Task, Phase) {
		return func() (*Task, Phase) { return stored(ph, state, version) }
	}
	pending, flying, retrying := in(Pending, StateLine, -1), in(InFlight, StateLine, -1), in(Between, StateRetry, -1)
	waiting := func(state State, version int64) func() (*Task, Phase) {
		return func() (*Task, Phase) {
			t, ph := stored(Between, state, version)
			t.Idle, t.Attempt = true, 2
			return t, ph
		}
	}
	idle, awaiting, stopped, halted := waiting(StateRetry, -1), waiting(StateReport, -1), in(Ended, StateStopped, -1), in(Ended, StateHalted, 5)
	delivered, dead, cancelled, tombstone := in(Ended, StateLine, -1), in(Ended, StateDead, -1), in(Ended, StateCancelled, -1), in(Ended, StateTombstone, 5)
	for name, c := range map[string]struct {
		known  func() (*Task, Phase)
		op     schemas.Op
		change func(r *schemas.Request)
		answer schemas.State // "": it waits
		next   string        // same, new, ended, stopped, fired or sooner
		taken  bool
		again  bool
	}{
		"schedule, unknown":                 {known: none, op: schemas.OpSchedule, answer: schemas.StateScheduled, next: "new"},
		"schedule, pending":                 {known: pending, op: schemas.OpSchedule, answer: schemas.StateScheduled, next: "new"},
		"schedule keep, pending":            {known: pending, op: schemas.OpSchedule, change: ifExists(schemas.Keep), answer: schemas.StateKept, next: "same"},
		"schedule keep, delivered":          {known: delivered, op: schemas.OpSchedule, change: ifExists(schemas.Keep), answer: schemas.StateScheduled, next: "new"},
		"schedule once, delivered":          {known: delivered, op: schemas.OpSchedule, change: ifExists(schemas.Once), answer: schemas.StateKept, next: "same"},
		"schedule once, in flight":          {known: flying, op: schemas.OpSchedule, change: ifExists(schemas.Once), answer: schemas.StateKept, next: "same"},
		"schedule once, unknown":            {known: none, op: schemas.OpSchedule, change: ifExists(schemas.Once), answer: schemas.StateScheduled, next: "new"},
		"schedule merge, pending":           {known: pending, op: schemas.OpSchedule, change: ifExists(schemas.Merge), answer: schemas.StateMerged, next: "new"},
		"schedule, in flight":               {known: flying, op: schemas.OpSchedule, next: "same"},
		"schedule keep, in flight":          {known: flying, op: schemas.OpSchedule, change: ifExists(schemas.Keep), next: "same"},
		"schedule, between attempts":        {known: retrying, op: schemas.OpSchedule, next: "same"},
		"schedule, delivered":               {known: delivered, op: schemas.OpSchedule, answer: schemas.StateScheduled, next: "new"},
		"schedule, dead":                    {known: dead, op: schemas.OpSchedule, answer: schemas.StateScheduled, next: "new"},
		"schedule, a later version":         {known: in(Pending, StateLine, 5), op: schemas.OpSchedule, change: version(6), answer: schemas.StateScheduled, next: "new"},
		"schedule, the same version":        {known: in(Pending, StateLine, 5), op: schemas.OpSchedule, change: version(5), answer: schemas.StateScheduled, next: "new"},
		"schedule, an earlier version":      {known: in(Pending, StateLine, 5), op: schemas.OpSchedule, change: version(4), answer: schemas.StateStale, next: "same"},
		"schedule, an earlier, in flight":   {known: in(InFlight, StateLine, 5), op: schemas.OpSchedule, change: version(4), answer: schemas.StateStale, next: "same"},
		"schedule, the cancelled version":   {known: tombstone, op: schemas.OpSchedule, change: version(5), answer: schemas.StateStale, next: "same"},
		"schedule, the stopped version":     {known: halted, op: schemas.OpSchedule, change: version(5), answer: schemas.StateStale, next: "same"},
		"schedule, above the stopped one":   {known: halted, op: schemas.OpSchedule, change: version(6), answer: schemas.StateScheduled, next: "new"},
		"schedule, stopped":                 {known: stopped, op: schemas.OpSchedule, answer: schemas.StateScheduled, next: "new"},
		"schedule once, stopped":            {known: stopped, op: schemas.OpSchedule, change: ifExists(schemas.Once), answer: schemas.StateKept, next: "same"},
		"schedule, waits for a retry":       {known: idle, op: schemas.OpSchedule, next: "same"},
		"schedule, above the cancelled one": {known: tombstone, op: schemas.OpSchedule, change: version(6), answer: schemas.StateScheduled, next: "new"},

		"cancel, unknown":               {known: none, op: schemas.OpCancel, answer: schemas.StateNotFound, next: "same"},
		"cancel a version, unknown":     {known: none, op: schemas.OpCancel, change: version(3), answer: schemas.StateCancelled, next: "ended"},
		"cancel, pending":               {known: pending, op: schemas.OpCancel, answer: schemas.StateCancelled, next: "ended"},
		"cancel, in flight":             {known: flying, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same", taken: true},
		"cancel, a retry in flight":     {known: in(InFlight, StateRetry, -1), op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, between attempts":      {known: retrying, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, delivered":             {known: delivered, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, dead":                  {known: dead, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, cancelled":             {known: cancelled, op: schemas.OpCancel, answer: schemas.StateCancelled, next: "same"},
		"cancel a version, cancelled":   {known: cancelled, op: schemas.OpCancel, change: version(1), answer: schemas.StateCancelled, next: "ended"},
		"cancel the same version again": {known: tombstone, op: schemas.OpCancel, change: version(5), answer: schemas.StateCancelled, next: "same"},
		"cancel, waits for a retry":     {known: idle, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, waits for a report":    {known: awaiting, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel, stopped":               {known: stopped, op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel a version, stopped":     {known: stopped, op: schemas.OpCancel, change: version(7), answer: schemas.StateTooLate, next: "same"},
		"cancel again, in flight":       {known: flying, op: schemas.OpCancel, again: true, next: "same"},
		"cancel again, a retry":         {known: in(InFlight, StateRetry, -1), op: schemas.OpCancel, again: true, answer: schemas.StateTooLate, next: "same"},
		"cancel again, pending":         {known: pending, op: schemas.OpCancel, again: true, answer: schemas.StateCancelled, next: "ended"},
		"cancel, unsure":                {known: in(Unsure, StateLine, -1), op: schemas.OpCancel, next: "same"},
		"cancel, unsure, a retry":       {known: in(Unsure, StateRetry, -1), op: schemas.OpCancel, answer: schemas.StateTooLate, next: "same"},
		"cancel an earlier version":     {known: tombstone, op: schemas.OpCancel, change: version(4), answer: schemas.StateStale, next: "same"},

		"fire, unknown":            {known: none, op: schemas.OpFire, answer: schemas.StateNotFound, next: "same"},
		"fire, pending":            {known: pending, op: schemas.OpFire, answer: schemas.StateFired, next: "fired"},
		"fire, in flight":          {known: flying, op: schemas.OpFire, answer: schemas.StateTooLate, next: "same", taken: true},
		"fire, waits for a retry":  {known: idle, op: schemas.OpFire, answer: schemas.StateFired, next: "sooner"},
		"fire, waits for a report": {known: awaiting, op: schemas.OpFire, answer: schemas.StateTooLate, next: "same"},
		"fire, stopped":            {known: stopped, op: schemas.OpFire, answer: schemas.StateTooLate, next: "same"},
		"fire again, in flight":    {known: flying, op: schemas.OpFire, again: true, next: "same"},
		"fire, unsure":             {known: in(Unsure, StateLine, -1), op: schemas.OpFire, next: "same"},
		"fire, unsure, a retry":    {known: in(Unsure, StateRetry, -1), op: schemas.OpFire, next: "same"},
		"fire, unsure, a report":   {known: in(Unsure, StateReport, -1), op: schemas.OpFire, answer: schemas.StateTooLate, next: "same"},
		"fire, between attempts":   {known: retrying, op: schemas.OpFire, answer: schemas.StateTooLate, next: "same"},
		"fire, delivered":          {known: delivered, op: schemas.OpFire, answer: schemas.StateTooLate, next: "same"},
		"fire, cancelled":          {known: cancelled, op: schemas.OpFire, answer: schemas.StateNotFound, next: "same"},

		"stop, unknown":                 {known: none, op: schemas.OpStop, answer: schemas.StateNotFound, next: "same"},
		"stop a version, unknown":       {known: none, op: schemas.OpStop, change: version(3), answer: schemas.StateCancelled, next: "ended"},
		"stop, pending":                 {known: pending, op: schemas.OpStop, answer: schemas.StateCancelled, next: "ended"},
		"stop, in flight":               {known: flying, op: schemas.OpStop, next: "same"},
		"stop, a retry in flight":       {known: in(InFlight, StateRetry, -1), op: schemas.OpStop, next: "same"},
		"stop, a report in flight":      {known: in(InFlight, StateReport, -1), op: schemas.OpStop, next: "same"},
		"stop, unsure":                  {known: in(Unsure, StateLine, -1), op: schemas.OpStop, next: "same"},
		"stop, unsure, a retry":         {known: in(Unsure, StateRetry, -1), op: schemas.OpStop, next: "same"},
		"stop, unsure, a report":        {known: in(Unsure, StateReport, -1), op: schemas.OpStop, next: "same"},
		"stop, waits for a retry":       {known: idle, op: schemas.OpStop, answer: schemas.StateStopped, next: "stopped"},
		"stop, waits for a report":      {known: awaiting, op: schemas.OpStop, answer: schemas.StateStopped, next: "stopped"},
		"stop a version, waits":         {known: awaiting, op: schemas.OpStop, change: version(3), answer: schemas.StateStopped, next: "stopped"},
		"stop, perhaps under way":       {known: retrying, op: schemas.OpStop, next: "same"},
		"stop, delivered":               {known: delivered, op: schemas.OpStop, answer: schemas.StateTooLate, next: "same"},
		"stop, dead":                    {known: dead, op: schemas.OpStop, answer: schemas.StateTooLate, next: "same"},
		"stop, cancelled":               {known: cancelled, op: schemas.OpStop, answer: schemas.StateCancelled, next: "same"},
		"stop a version, cancelled":     {known: cancelled, op: schemas.OpStop, change: version(1), answer: schemas.StateCancelled, next: "ended"},
		"stop, stopped":                 {known: stopped, op: schemas.OpStop, answer: schemas.StateStopped, next: "same"},
		"stop a version, stopped":       {known: stopped, op: schemas.OpStop, change: version(1), answer: schemas.StateStopped, next: "stopped"},
		"stop the same version again":   {known: halted, op: schemas.OpStop, change: version(5), answer: schemas.StateStopped, next: "same"},
		"stop an earlier version":       {known: halted, op: schemas.OpStop, change: version(4), answer: schemas.StateStale, next: "same"},
		"stop below the task's version": {known: waiting(StateRetry, 4), op: schemas.OpStop, change: version(3), answer: schemas.StateStale, next: "same"},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := c.known()
			var before Task
			if cur != nil {
				before = *cur
			}
			change := request(c.op, c.change)
			change.Again = c.again
			v := Decide(cur, ph, change, slots.Even(testSlots), testNow)
			require.Equal(t, c.answer == "", v.Wait)
			require.Equal(t, c.answer, v.Event.State)
			require.Equal(t, c.taken, v.ToldTooLate)
			require.Nil(t, v.Dead)
			if cur != nil {
				require.Equal(t, before, *cur, "what came in is only read")
			}
			switch c.next {
			case "same":
				require.Same(t, cur, v.Next)
			case "new":
				require.Equal(t, int64(8), v.Next.Seq)
				require.Equal(t, int64(3_000_000), v.Next.Pos)
				require.Equal(t, StateLine, v.Next.State)
				require.NotEqual(t, schemas.Once, settingsOf(t, v.Next).IfExists, "the version before does not know it")
			case "ended":
				require.Equal(t, OutOfLine, v.Next.Slot)
				require.Equal(t, int64(testNow), v.Next.Pos)
				require.Contains(t, []State{StateCancelled, StateTombstone}, v.Next.State)
			case "stopped":
				require.Equal(t, OutOfLine, v.Next.Slot)
				require.Equal(t, int64(testNow), v.Next.Pos)
				require.Empty(t, v.Next.Body)
				require.Equal(t, cur.Attempt, v.Event.Attempt)
				require.False(t, v.Event.KnowsLateness())
				require.Equal(t, request(c.op, c.change).Request.Version >= 0, v.Next.State == StateHalted)
				require.Equal(t, request(c.op, c.change).Request.Version < 0, v.Next.State == StateStopped)
			case "fired":
				require.Equal(t, int64(7), v.Next.Seq)
				require.Equal(t, int64(testNow), v.Next.Due)
				require.Equal(t, int64(testNow), v.Next.Pos)
			case "sooner":
				require.Equal(t, cur.Due, v.Next.Due, "notyet-due is the task's in every retry")
				require.Equal(t, int64(testNow), v.Next.Pos)
				require.Equal(t, StateRetry, v.Next.State)
				require.True(t, v.Next.Idle)
			}
		})
	}
}

// Who comes too late learns what the task waits for and until when, and a cancel that stop would have ended it.
func TestTooLateSaysWhatTheTaskWaitsFor(t *testing.T) {
	at := func(ph Phase, change func(t *Task)) func() (*Task, Phase) {
		return func() (*Task, Phase) {
			t, _ := stored(ph, StateRetry, -1)
			t.Idle, t.Attempt = true, 2
			change(t)
			return t, ph
		}
	}
	const stop = "; send notyet-op stop to end its attempts"
	for name, c := range map[string]struct {
		known        func() (*Task, Phase)
		cancel, fire string
	}{
		"a report": {at(Between, func(t *Task) { t.State = StateReport }), "the task waits for a report on attempt 2 until 1970-01-01T00:33:20Z" + stop,
			"the task waits for a report on attempt 2 until 1970-01-01T00:33:20Z"},
		"a retry":          {at(Between, func(t *Task) { t.Pos++ }), "the task waits for attempt 3 until 1970-01-01T00:33:20.001Z" + stop, ""},
		"a held retry":     {at(Between, func(t *Task) { t.Pos = Held(t.Pos) }), "the task waits for attempt 3, held since 1970-01-01T00:33:20Z by its target's pause or limit" + stop, ""},
		"its outcome":      {at(InFlight, func(t *Task) { t.State = StateLine }), "the task is being delivered" + stop, "the task is being delivered"},
		"it is not sure":   {at(Between, func(t *Task) { t.Idle = false }), "the task is being delivered" + stop, "the task is being delivered"},
		"nothing":          {at(Ended, func(t *Task) { t.State = StateLine }), "the task has been delivered", "the task has been delivered"},
		"nothing, dead":    {at(Ended, func(t *Task) { t.State = StateDead }), "the task is dead: its dead letter or its last event says why", "the task is dead: its dead letter or its last event says why"},
		"nothing, stopped": {at(Ended, func(t *Task) { t.State = StateStopped }), "the task was stopped after attempt 2", "the task was stopped after attempt 2"},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := c.known()
			v := Decide(cur, ph, request(schemas.OpCancel, nil), slots.Even(testSlots), testNow)
			require.Equal(t, schemas.StateTooLate, v.Event.State)
			require.Equal(t, c.cancel, v.Event.Reason)
			v = Decide(cur, ph, request(schemas.OpFire, nil), slots.Even(testSlots), testNow)
			require.Equal(t, c.fire, v.Event.Reason)
		})
	}
}

// A request that waits says for what.
func TestAwaits(t *testing.T) {
	retry, _ := stored(Between, StateRetry, -1)
	retry.Attempt = 2
	idle := *retry
	idle.Idle = true
	for name, c := range map[string]struct {
		task *Task
		ph   Phase
		op   schemas.Op
		want string
	}{
		"in flight":          {retry, InFlight, schemas.OpSchedule, "the outcome of the task's delivery"},
		"a stop, in flight":  {retry, InFlight, schemas.OpStop, "the outcome of the task's delivery"},
		"perhaps under way":  {retry, Between, schemas.OpStop, "the outcome of the task's delivery"},
		"unsure":             {&idle, Unsure, schemas.OpCancel, "the outcome of the task's delivery"},
		"between attempts":   {&idle, Between, schemas.OpSchedule, "the end of the task's attempts: the task waits for attempt 3 until 1970-01-01T00:33:20Z"},
		"a stop in a moment": {&idle, Between, schemas.OpStop, "a scanner, which decides it in a moment"},
		"ended":              {retry, Ended, schemas.OpSchedule, "a scanner, which decides it in a moment"},
		"pending":            {retry, Pending, schemas.OpSchedule, "a scanner, which decides it in a moment"},
	} {
		require.Equal(t, c.want, c.task.Awaits(c.ph, c.op), name)
	}
}

func settingsOf(t *testing.T, row *Task) schemas.Settings {
	body, err := schemas.DecodeBody(row.Body)
	require.NoError(t, err)
	return body.Settings
}

// A version outlives the requests without one that follow it.
func TestDecideKeepsTheVersion(t *testing.T) {
	cur, ph := stored(Pending, StateLine, 5)
	require.Equal(t, int64(5), Decide(cur, ph, request(schemas.OpSchedule, nil), slots.Even(testSlots), testNow).Next.Version)
	cur, ph = stored(Ended, StateTombstone, 5)
	require.Equal(t, int64(5), Decide(cur, ph, request(schemas.OpSchedule, nil), slots.Even(testSlots), testNow).Next.Version)
}

// Requests that cannot be carried out change nothing, and leave a letter and an event.
func TestDecideRejects(t *testing.T) {
	sum := func(r *schemas.Request) { r.Settings.IfExists, r.Settings.Merge = schemas.Merge, schemas.MergeSum }
	for name, c := range map[string]struct {
		verdict func(cur *Task) Verdict
		reason  string
	}{
		"an unknown operation": {func(cur *Task) Verdict {
			return Decide(cur, Pending, request(schemas.Op(99), nil), slots.Even(testSlots), testNow)
		}, "notyet-op"},
		"a value that cannot be added": {func(cur *Task) Verdict {
			return Decide(cur, Pending, request(schemas.OpSchedule, sum), slots.Even(testSlots), testNow)
		}, `value "3 bytes": is not a JSON object`},
		"too many that wait": {func(cur *Task) Verdict { return TooMany(request(schemas.OpSchedule, nil), cur) }, `notyet-id "a": requests wait`},
	} {
		t.Run(name, func(t *testing.T) {
			cur, _ := stored(Pending, StateLine, -1)
			v := c.verdict(cur)
			require.Same(t, cur, v.Next)
			require.False(t, v.Wait)
			require.Equal(t, schemas.StateRejected, v.Event.State)
			require.Contains(t, v.Event.Reason, c.reason)
			require.Equal(t, schemas.KindRejected, v.Dead.Kind)
			require.Equal(t, int64(8), v.Dead.Seq)
			require.Equal(t, v.Event.Reason, v.Dead.Reason)
		})
	}
}

// A request that found no room in a quota opens no task, and does all that opens none.
func TestDecideBeyondAQuota(t *testing.T) {
	none := func() (*Task, Phase) { return nil, Ended }
	in := func(ph Phase, state State) func() (*Task, Phase) {
		return func() (*Task, Phase) { return stored(ph, state, 3) }
	}
	for name, c := range map[string]struct {
		known  func() (*Task, Phase)
		op     schemas.Op
		change func(r *schemas.Request)
		answer schemas.State // "": it waits
	}{
		"unknown":             {known: none, answer: schemas.StateRejected},
		"unknown, keep":       {known: none, change: func(r *schemas.Request) { r.Settings.IfExists = schemas.Keep }, answer: schemas.StateRejected},
		"unknown, once":       {known: none, change: func(r *schemas.Request) { r.Settings.IfExists = schemas.Once }, answer: schemas.StateRejected},
		"delivered":           {known: in(Ended, StateLine), answer: schemas.StateRejected},
		"cancelled":           {known: in(Ended, StateCancelled), answer: schemas.StateRejected},
		"delivered, once":     {known: in(Ended, StateLine), change: func(r *schemas.Request) { r.Settings.IfExists = schemas.Once }, answer: schemas.StateKept},
		"below the version":   {known: in(Ended, StateLine), change: func(r *schemas.Request) { r.Version = 2 }, answer: schemas.StateStale},
		"pending":             {known: in(Pending, StateLine), answer: schemas.StateScheduled},
		"pending, keep":       {known: in(Pending, StateLine), change: func(r *schemas.Request) { r.Settings.IfExists = schemas.Keep }, answer: schemas.StateKept},
		"pending, merge":      {known: in(Pending, StateLine), change: func(r *schemas.Request) { r.Settings.IfExists = schemas.Merge }, answer: schemas.StateMerged},
		"in flight":           {known: in(InFlight, StateLine)},
		"between":             {known: in(Between, StateRetry)},
		"cancel of a pending": {known: in(Pending, StateLine), op: schemas.OpCancel, answer: schemas.StateCancelled},
		"cancel before":       {known: none, op: schemas.OpCancel, change: func(r *schemas.Request) { r.Version = 4 }, answer: schemas.StateCancelled},
		"stop":                {known: in(Pending, StateLine), op: schemas.OpStop, answer: schemas.StateCancelled},
		"fire":                {known: in(Pending, StateLine), op: schemas.OpFire, answer: schemas.StateFired},
	} {
		t.Run(name, func(t *testing.T) {
			cur, ph := c.known()
			change := request(c.op, c.change)
			change.Beyond = "pending-tasks"
			v := Decide(cur, ph, change, slots.Even(testSlots), testNow)
			require.Equal(t, c.answer == "", v.Wait)
			require.Equal(t, c.answer, v.Event.State)
			require.Equal(t, c.answer == schemas.StateRejected, v.Dead != nil)
			if v.Dead != nil {
				require.Same(t, cur, v.Next)
				require.Contains(t, v.Event.Reason, `quota "pending-tasks"`)
				require.Equal(t, v.Event.Reason, v.Dead.Reason)
				require.Equal(t, schemas.KindRejected, v.Dead.Kind)
			}
		})
	}
}
