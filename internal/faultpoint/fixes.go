package faultpoint

// Fix is a mistake of the past that is mended. Built with the tag faultpoints, a test can take the fix away again, to see that the
// simulator finds the mistake.
type Fix string

// What each fix sees to.
const (
	// NothingBehindFailure: what was read behind a stretch that could not be stored is not stored either (scanner/reading.go).
	NothingBehindFailure Fix = "nothing behind a failure"
	// ReleasedWhenDrained: a slot is given back when it is drained, a claim under way included, and its epoch ends with that
	// (dispatcher/ownedslot.go, store/sabotage.go).
	ReleasedWhenDrained Fix = "released when drained"
	// ReportOfDelivery: a report that names its delivery is about that delivery alone (store/delivered.go).
	ReportOfDelivery Fix = "report of its delivery"
	// DoubtIsSent: what may have been sent is not held to its lateness (dispatcher/claimedtask.go).
	DoubtIsSent Fix = "doubt is sent"
	// RefusedAlone: a record that the database refuses becomes a small dead letter, alone (scanner/retry.go,
	// scanner/isolate.go).
	RefusedAlone Fix = "refused alone"
	// ClaimedAhead: a line that is claimed beyond the look-ahead is claimed a little further, and claims rest (dispatcher/ownedslot.go,
	// dispatcher/claim.go).
	ClaimedAhead Fix = "claimed ahead"
	// CountedOnce: staging counts a task once, however often it is let go of (dispatcher/staging.go).
	CountedOnce Fix = "counted once"
	// SettledInPieces: ends of tasks are settled in pieces, and a refused one is halved (dispatcher/pieces.go, store/outbox.go).
	SettledInPieces Fix = "settled in pieces"
	// ResultsApart: nothing waits for the results topic (events/publisher.go).
	ResultsApart Fix = "results apart"
	// RoomForOthers: targets that do not answer leave room in the producer, and it gives up what they do not take
	// (dispatcher/outlet.go, dispatcher/parking.go).
	RoomForOthers Fix = "room for others"
	// JudgedByPartition: a partition that does not answer is noticed although others of its topic do (dispatcher/outlet.go).
	JudgedByPartition Fix = "judged by partition"
	// RetiredToTheLast: retiring goes on until nothing is left (dispatcher/retention.go).
	RetiredToTheLast Fix = "retired to the last"
)

// Fixes are all that can be taken away.
var Fixes = []Fix{
	NothingBehindFailure, ReleasedWhenDrained, ReportOfDelivery, DoubtIsSent, RefusedAlone, ClaimedAhead, CountedOnce, RetiredToTheLast,
	SettledInPieces, ResultsApart, RoomForOthers, JudgedByPartition,
}
