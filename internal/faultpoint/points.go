package faultpoint

// The places, in the order of a task's way, each with its file. Rows says where in the way it is.
// Behind the file stands what an error stands for. Without an error, only death and a pause make
// sense.
const (
	ScannerReport          = "scanner.report"          // scanner/decode.go: no error
	ScannerPolled          = "scanner.polled"          // scanner/worker.go: the database rejects the batch
	StoreReplacing         = "store.replacing"         // store/intake/place.go, store/intake/timers.go, under locks of rows and slots (of cancels of many, of rows): the transaction fails
	StoreBuried            = "store.buried"            // store/internal/handle/deadletters.go: the transaction fails
	ScannerStored          = "scanner.stored"          // scanner/worker.go: the commit's reply is lost
	ScannerRemoving        = "scanner.removing"        // scanner/index.go: Redis refuses
	ScannerIndexed         = "scanner.indexed"         // scanner/commits.go: Kafka refuses
	DispatcherAcquired     = "dispatcher.acquired"     // dispatcher/ownership.go: the reply is lost
	DispatcherDrained      = "dispatcher.drained"      // dispatcher/giveaway.go: the database refuses
	StoreMaking            = "store.making"            // store/intake/runs.go: the transaction fails
	DispatcherMade         = "dispatcher.made"         // dispatcher/runs.go: the reply is lost
	DispatcherWindow       = "dispatcher.window"       // dispatcher/indexer.go: Redis refuses
	DispatcherClaimed      = "dispatcher.claimed"      // dispatcher/claim.go: the reply is lost
	DispatcherLogged       = "dispatcher.logged"       // dispatcher/fetchbodies.go: writing failed
	DispatcherTrusted      = "dispatcher.trusted"      // dispatcher/send.go: the producer refuses it
	DispatcherSent         = "dispatcher.sent"         // dispatcher/send.go: the answer is lost
	DispatcherAcknowledged = "dispatcher.acknowledged" // dispatcher/settle.go: writing them fails
	DispatcherNoted        = "dispatcher.noted"        // dispatcher/settle.go: the database refuses
	DispatcherSettled      = "dispatcher.settled"      // dispatcher/settle.go: the reply is lost
	DispatcherMarked       = "dispatcher.marked"       // dispatcher/indexer.go: Redis refuses
	DispatcherUnreported   = "dispatcher.unreported"   // dispatcher/flight/putback.go: no error
	StoreReplaying         = "store.replaying"         // store/intake/replay.go: the transaction fails
	DeadletterReplayed     = "deadletter.replayed"     // deadletter/replay.go: the reply is lost
)

// Row is the consequence of a death at a place: a row of the table in docs/design/failures.md.
type Row struct{ Name, After, Then string }

// Rows has one row for each place.
var Rows = []Row{
	{ScannerReport, "report received, not stored", "as polled, not stored"},
	{ScannerPolled, "polled, not stored", "the partition's next reader begins at the offset in MySQL (a dead scanner is noticed within 6 s)"},
	{StoreReplacing, "cancel decided, not committed (cancel racing a claim)", "rolled back: a claim that waited takes the task, and the cancel, read again, is `too_late`"},
	{StoreBuried, "dead letter written, task not closed", "one transaction, rolled back: the task dies once when it is repeated"},
	{ScannerStored, "stored, not indexed, not told, reply lost", "the next reader begins behind it, and tells its answers from the outbox; the sweep finds its tasks within a second"},
	{ScannerRemoving, "cancel or replacement stored, index entry not removed", "the dispatcher claims a little early, and finds nothing; the comparison every 30 s mends the index"},
	{ScannerIndexed, "indexed, offset not committed to Kafka", "only lag monitors notice"},
	{DispatcherAcquired, "mid slot change: slots taken, not begun", "they stay the dead owner's until its session ends"},
	{DispatcherDrained, "mid slot change: slots drained, not released", "likewise; nothing is in doubt"},
	{StoreMaking, "runs of timers inserted, not committed", "rolled back: the slot's next owner makes them"},
	{DispatcherMade, "runs of timers stored, index not told, reply lost", "they are not made again; the sweep finds them within a second"},
	{DispatcherWindow, "window read, not indexed", "loaded again from the mark, which has not moved"},
	{DispatcherClaimed, "claimed, not logged", "the next owner sends `(done, claimed]`, after the session (4 s), or at once in the same directory"},
	{DispatcherLogged, "logged, not sent", "the same: an intent alone proves nothing"},
	{DispatcherTrusted, "paused between the look at trust and the send", "as logged, not sent; on waking, it sends at most 256 tasks, and what its producer holds, as second copies; its claims and settlements are refused"},
	{DispatcherSent, "sent, response lost", "the producer tries again without a second copy; after a death the next owner sends one"},
	{DispatcherAcknowledged, "acknowledged, outcome not logged", "a second copy, likewise"},
	{DispatcherNoted, "outcome logged, not marked in MySQL", "restarted in its directory: proven, not sent again, the event is told. Another dispatcher: a second copy"},
	{DispatcherSettled, "marked in MySQL, reply lost, events of transitions not told", "the settlement is repeated; its events wait in the outbox for the owner of slot 0"},
	{DispatcherMarked, "marked, not removed from Redis", "the next settlement or the look every 2 s trims them"},
	{DispatcherUnreported, "timeout of a report decided, not resent", "the row is in doubt: the next owner decides again"},
	{StoreReplaying, "replayed, not marked", "one transaction, rolled back: run again, each letter is replayed once"},
	{DeadletterReplayed, "replayed and marked, index not told", "the sweep finds it; run again, the letter is skipped"},
}
